package attack

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/attack"
)

const (
	allowed = "allowed.test" // which nobody has (RFC 6761)
	next    = 18001
	program = "/workspace/attack/cofferdam-attack"
	planned = "/workspace/attack/plan.json"
	expire  = 15 * time.Minute // should this command be killed
)

// metadata are the addresses where clouds tell machines their secrets, as a rule
// may write them.
func metadata() []string {
	return []string{
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "192.0.0.192", "168.63.129.16",
		"fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::169.254.169.254",
	}
}

// request is the sandbox of a box.
func (a *assault) request(box string) api.SandboxRequest {
	r := api.SandboxRequest{ExpireSeconds: int64(expire.Seconds())}
	var rules strings.Builder
	rule := func(host string, ports ...int) {
		fmt.Fprintf(&rules, "      - {host: '%s', ports: %s}\n", host, strings.ReplaceAll(fmt.Sprint(ports), " ", ", "))
	}
	switch box {
	case attack.Named:
		for _, m := range metadata() {
			rule(m, 80, 443)
		}
		for _, h := range a.plan.Hosts {
			for _, port := range []int{a.plan.TCP, a.plan.API} {
				if port != 0 {
					rule(h, port)
				}
			}
		}
	case attack.Through:
		if u, err := netip.ParseAddrPort("127.0.0.1:" + after(a.o.upstream)); err == nil {
			rule(strings.TrimSuffix(a.o.upstream, ":"+after(a.o.upstream)), int(u.Port()))
		}
	case attack.Small:
		r.Limits = &api.Limits{PIDs: 120, Files: 256, Disk: 64 << 20, Memory: 256 << 20, Output: 1 << 20, TimeSeconds: 60}
		return r
	default:
		rule(allowed, 80, 443)
	}
	r.Policy = "version: 1\nagent:\n  network:\n    allow:\n" + rules.String()
	return r
}

func after(hostport string) string { return hostport[strings.LastIndex(hostport, ":")+1:] }

// box makes a sandbox of the installation and brings the program and its plan into
// it.
func (a *assault) box(ctx context.Context, c *client.Client, box string, ids []string) (string, error) {
	plan := a.plan
	plan.IDs = ids
	id, err := a.bring(ctx, c, box, a.request(box), plan)
	if id != "" {
		a.mu.Lock()
		a.made = append(a.made, id)
		a.mu.Unlock()
	}
	return id, err
}

// bring makes a sandbox and brings the program and its plan into it. The id is given
// where there is one, also with an error.
func (a *assault) bring(ctx context.Context, c *client.Client, box string, r api.SandboxRequest, plan attack.Plan) (string, error) {
	s, err := c.CreateSandbox(ctx, r)
	if err != nil {
		return "", fmt.Errorf("the %s sandbox: %w", box, err)
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return s.ID, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		mode int64
		data []byte
	}{{"attack/plan.json", 0o644, text}, {"attack/cofferdam-attack", 0o755, a.program}} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}))
		_, werr := w.Write(f.data)
		err = errors.Join(err, werr)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return s.ID, err
	}
	if err := c.PutFiles(ctx, s.ID, "/workspace", &b); err != nil {
		return s.ID, fmt.Errorf("the %s sandbox gets no files: %w", box, err)
	}
	return s.ID, nil
}

// sh runs a script in a sandbox and returns what it printed.
func sh(ctx context.Context, c *client.Client, id, script string) (string, api.CommandStatus, error) {
	var out bytes.Buffer
	st, err := c.Run(ctx, id, api.ExecRequest{Argv: []string{"sh", "-c", script}, TimeoutSeconds: 30}, &out, &out)
	return out.String(), st, err
}

// clear removes the sandboxes. It is asked for when the command was told to stop, too.
func (a *assault) clear(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	for _, id := range a.made {
		if err := c.RemoveSandbox(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("sandbox %s is left; remove it with `cofferdam sandbox rm`: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// own reads the program that runs inside, which lies beside this one, and gives the
// folder of the programs of a platform apart.
func own(bin string) (inside []byte, folder string, err error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return nil, "", fmt.Errorf("this executable: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(exe), "cofferdam-attack"))
	if err != nil {
		return nil, "", fmt.Errorf("the program that runs inside is not beside this one: %w", err)
	}
	return text, cmp.Or(bin, filepath.Dir(exe)), nil
}

// limited keeps the first bytes of what is written to it and counts them all.
type limited struct {
	buf  bytes.Buffer
	most int
	all  int64
}

func (l *limited) Write(p []byte) (int, error) {
	l.all += int64(len(p))
	if room := l.most - l.buf.Len(); room > 0 {
		l.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

var _ io.Writer = (*limited)(nil)

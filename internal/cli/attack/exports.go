package attack

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/attack"
)

// trial is one check that this command tries itself. It gives what was refused,
// and an error when it could not be tried.
type trial func(ctx context.Context) (fell bool, happened string, err error)

// shaped makes the links and pipes that the checks are about; @ is the folder of
// the machine's canary.
const shaped = `set -e; rm -rf /workspace/x; mkdir -p /workspace/x/packed; cd /workspace/x
ln -s @/canary link; ln -s @ folder; ln -s @/made dangling; ln -s @/canary packed/link; ln -s @ packed/folder; mkfifo pipe
t=@/canary; i=0; while [ $i -lt 40 ]; do ln -s $t deep$i; t=/workspace/x/deep$i; i=$((i+1)); done; echo shaped`

// exports tries files that bite outside, by the Files API, and who may ask it.
func (a *assault) exports(ctx context.Context, c *client.Client, id string, failed error) {
	trials := a.trials(c, id)
	var ids []string
	for _, k := range attack.Select(a.o.only, false) {
		if _, ok := trials[k.ID]; ok {
			ids = append(ids, k.ID)
		}
	}
	if failed == nil && len(ids) > 0 {
		out, _, err := sh(ctx, c, id, strings.ReplaceAll(shaped, "@", a.can.dir))
		if failed = err; err == nil && !strings.Contains(out, "shaped") {
			failed = fmt.Errorf("the files could not be shaped: %s", out)
		}
	}
	a.untried(ids, failed)
	if failed != nil {
		return
	}
	for _, check := range ids {
		within, cancel := context.WithTimeout(ctx, 20*time.Second)
		fell, happened, err := trials[check](within)
		cancel()
		switch {
		case fell:
			a.say(check, attack.Fell, "%s", happened)
		case err != nil:
			a.say(check, attack.Untried, "%v", err)
		default:
			a.say(check, attack.Held, "%s", happened)
		}
	}
}

func (a *assault) trials(c *client.Client, id string) map[string]trial {
	at := func(path string, follow bool) client.File {
		return client.File{Sandbox: id, Path: path, Follow: follow}
	}
	read := func(path string, follow bool) trial {
		return func(ctx context.Context) (bool, string, error) { return a.reads(ctx, c, at(path, follow)) }
	}
	write := func(path string) trial {
		return func(ctx context.Context) (bool, string, error) { return a.writes(ctx, c, at(path, true)) }
	}
	return map[string]trial{
		"export.link-read":      read("/workspace/x/link", false),
		"export.link-followed":  read("/workspace/x/link", true),
		"export.folder-link":    read("/workspace/x/folder/canary", true),
		"export.deep-links":     read("/workspace/x/deep39", true),
		"export.dots":           read("/workspace/x/../.."+a.can.files[0], true),
		"export.outside-roots":  read(a.can.files[0], true),
		"export.write-through":  write("/workspace/x/link"),
		"export.write-dangling": write("/workspace/x/dangling"),
		"export.link-archive":   func(ctx context.Context) (bool, string, error) { return a.archive(ctx, c, id) },
		"export.upload-dots": func(ctx context.Context) (bool, string, error) {
			return a.unpacks(ctx, c, id, tar.Header{Name: "../../../../../../.." + a.can.dir + "/made", Typeflag: tar.TypeReg})
		},
		"export.upload-link": func(ctx context.Context) (bool, string, error) {
			return a.unpacks(ctx, c, id, tar.Header{Name: "out", Linkname: a.can.dir, Typeflag: tar.TypeSymlink, Mode: 0o777}, tar.Header{Name: "out/made", Typeflag: tar.TypeReg})
		},
		"export.pipe": func(ctx context.Context) (bool, string, error) {
			_, happened, err := a.reads(ctx, c, at("/workspace/x/pipe", false))
			return errors.Is(ctx.Err(), context.DeadlineExceeded), happened, err
		},
		"exec.as-root": func(ctx context.Context) (bool, string, error) {
			var out bytes.Buffer
			st, err := c.Run(ctx, id, api.ExecRequest{Argv: []string{"id", "-u"}, User: "root", TimeoutSeconds: 10}, &out, &out)
			if err != nil {
				return refusal(err)
			}
			return strings.TrimSpace(out.String()) == "0", fmt.Sprintf("it ran, and said %q %s", out.String(), st.Error), nil
		},
		"exec.without-token": func(ctx context.Context) (bool, string, error) { return a.withoutToken(ctx, id) },
	}
}

// refusal takes the server's word for a refusal; that it wasn't there is none.
func refusal(err error) (bool, string, error) {
	if f, ok := errors.AsType[*api.Problem](err); ok && !strings.HasPrefix(f.Code, "infra.") {
		return false, "refused: " + f.Error(), nil
	}
	return false, "", err
}

func (a *assault) reads(ctx context.Context, c *client.Client, f client.File) (bool, string, error) {
	_, body, err := c.ReadFile(ctx, f, client.FileRange{})
	if err != nil {
		return refusal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, 1<<20))
	if bytes.Contains(text, []byte(a.can.nonce)) {
		return true, "the machine's file was read", nil
	}
	return false, fmt.Sprintf("%d bytes came, and not the machine's", len(text)), err
}

// writes tries to change the machine's files; whether it did is seen on the machine.
func (a *assault) writes(ctx context.Context, c *client.Client, f client.File) (bool, string, error) {
	text := []byte("changed\n")
	sum := sha256.Sum256(text)
	_, err := c.WriteFile(ctx, f, client.NewFile{Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}, func() (io.Reader, error) { return bytes.NewReader(text), nil })
	return a.unchanged(err)
}

func (a *assault) unchanged(done error) (bool, string, error) {
	have, err := os.ReadFile(a.can.files[0])
	if err != nil || string(have) != "canary "+a.can.nonce+"\n" {
		return true, "the machine's file was changed", nil
	}
	if _, err := os.Lstat(filepath.Join(a.can.dir, "made")); err == nil {
		return true, "a file was made on the machine", nil
	}
	if done != nil {
		return refusal(done)
	}
	return false, "what was written stayed in the sandbox", nil
}

func (a *assault) unpacks(ctx context.Context, c *client.Client, id string, headers ...tar.Header) (bool, string, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			return false, "", err
		}
	}
	if err := w.Close(); err != nil {
		return false, "", err
	}
	return a.unchanged(c.PutFiles(ctx, id, "/workspace/x/packed", &b))
}

// archive takes a folder with links out of the sandbox.
func (a *assault) archive(ctx context.Context, c *client.Client, id string) (bool, string, error) {
	body, err := c.GetFiles(ctx, id, "/workspace/x/packed")
	if err != nil {
		return refusal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, 16<<20))
	if bytes.Contains(text, []byte(a.can.nonce+"\n")) {
		return true, "the archive has the machine's file", nil
	}
	return false, fmt.Sprintf("the archive of %d bytes has links, and nothing of the machine", len(text)), err
}

func (a *assault) withoutToken(ctx context.Context, id string) (bool, string, error) {
	for _, token := range []string{"", "Bearer ", "Bearer " + a.can.nonce} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(a.o.url, "/")+"/v1/sandboxes/"+id, nil)
		if err != nil {
			return false, "", err
		}
		if token != "" {
			req.Header.Set("Authorization", token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, "", err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			return true, "the API answered " + resp.Status, nil
		}
	}
	return false, "401, with no token and with a made-up one", nil
}

// floods makes a sandbox with small limits use all it can, a kind after the other,
// and looks that the neighbour and the API live on.
func (a *assault) floods(ctx context.Context, c *client.Client, neighbour string, checks []attack.Check) {
	ids := of(checks, attack.Small)
	for _, own := range []string{"limits.output", "limits.time"} {
		if slices.ContainsFunc(checks, func(k attack.Check) bool { return k.ID == own }) {
			ids = append(ids, own)
		}
	}
	if len(ids) == 0 {
		return
	}
	// The memory's comes last: it may take the sandbox along.
	slices.SortStableFunc(ids, func(x, y string) int {
		return btoi(x == "limits.memory") - btoi(y == "limits.memory")
	})
	id, err := a.box(ctx, c, attack.Small, ids)
	if err != nil {
		a.untried(append(ids, "neighbour.answers"), err)
		return
	}
	for _, check := range ids {
		a.flood(ctx, c, id, check)
	}
	if !slices.ContainsFunc(checks, func(k attack.Check) bool { return k.ID == "neighbour.answers" }) {
		return
	}
	out, _, err := sh(ctx, c, neighbour, "echo alive")
	_, herr := c.Health(ctx)
	if err = errors.Join(err, herr); err != nil || !strings.Contains(out, "alive") {
		a.say("neighbour.answers", attack.Fell, "after the floods: %q %v", out, err)
		return
	}
	a.say("neighbour.answers", attack.Held, "after %d floods the neighbour ran a command and the API answered", len(ids))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a *assault) flood(ctx context.Context, c *client.Client, id, check string) {
	said := limited{most: 64 << 10}
	req := api.ExecRequest{Argv: []string{program, planned, check}, TimeoutSeconds: 60}
	switch check {
	case "limits.output":
		req.Argv = []string{"sh", "-c", "yes | head -c 50000000"}
	case "limits.time":
		req.Argv, req.TimeoutSeconds = []string{"sh", "-c", "trap '' TERM INT HUP; while :; do :; done"}, 3
	}
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	st, err := c.Run(ctx, id, req, &said, io.Discard)
	switch check {
	case "limits.output":
		if err == nil && said.all <= 2<<20 {
			a.say(check, attack.Held, "%d bytes of output came, and %s", said.all, st.Reason)
			return
		}
		if said.all > 2<<20 {
			a.say(check, attack.Fell, "%d bytes of output came", said.all)
			return
		}
	case "limits.time":
		if err == nil && st.Reason != "" && st.TimedOut {
			a.say(check, attack.Held, "ended for %s", st.Reason)
			return
		}
		if ctx.Err() != nil {
			a.say(check, attack.Fell, "the loop went on after its time") // ctx is this check's own
			return
		}
	default:
		line, _, whole := strings.Cut(said.buf.String(), "\n")
		if s, rerr := attack.ReadSaying(line, []string{check}); whole && rerr == nil {
			a.say(check, s.Outcome, "%s", s.Happened)
			return
		}
		// A command that its limit ended says nothing; the account says why.
		if strings.HasPrefix(st.Reason, "limit.") {
			a.say(check, attack.Held, "ended for %s", st.Reason)
			return
		}
		if s, serr := c.Sandbox(ctx, id); err != nil && serr == nil && strings.HasPrefix(s.Reason, "limit.") {
			a.say(check, attack.Held, "the sandbox was ended for %s", s.Reason)
			return
		}
	}
	a.say(check, attack.Untried, "it ended with %d %s %s after %d bytes of output: %v", st.ExitCode, st.Reason, st.Error, said.all, err)
}

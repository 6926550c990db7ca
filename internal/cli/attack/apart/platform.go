// Package apart has what the attack suite makes beside the installation that it is
// run against: a platform of its own, by the same programs on the same machine,
// whose operator trusts servers that are the suite's. So nothing real is at stake
// when credentials, redirects and misshapen requests are tried.
//
// Words. The far side are those servers, which keep what must not have arrived. A
// value is what a throw-away credential lends; nobody else takes it for anything.
//
// Not promised: anything about the policy of the installation itself. The platform
// needs root, as `cofferdam up` does.
package apart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/attack"
)

// removing is how long taking it away may take.
const removing = time.Minute

// Platform is the one that the suite made.
type Platform struct {
	Data    string // its folder, gone after Down
	Client  *client.Client
	program string
}

// Up starts it. bin is the folder of the programs. What was begun is to be ended by
// Down, also after an error.
func Up(ctx context.Context, bin string, f *Far) (*Platform, error) {
	p := &Platform{program: filepath.Join(bin, "cofferdam")}
	var err error
	if p.Data, err = os.MkdirTemp("/var/tmp", "cofferdam-apart-"); err != nil {
		return p, err
	}
	// Daemons of other users look into it.
	if err := os.Chmod(p.Data, 0o755); err != nil {
		return p, err
	}
	roots, policy := filepath.Join(p.Data, "roots.pem"), filepath.Join(p.Data, "operator.yaml")
	var private strings.Builder
	private.WriteString("version: 1\nprivate:\n")
	for _, name := range []string{attack.FarName, attack.ElseName, attack.FalseName} {
		fmt.Fprintf(&private, "  - {host: %s, ports: [%d, %d, %d]}\n", name, f.Ports.Bound, f.Ports.Other, f.Ports.Plain)
	}
	for file, text := range map[string][]byte{roots: f.PEM, policy: []byte(private.String())} {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return p, err
		}
	}
	if err := p.run(ctx, "up", "--data", p.Data, "--listen", "127.0.0.1:0", "--detach", "--bin", bin, "--images", "off", "--dns", f.Names, "--roots", roots, "--policy-operator", policy); err != nil {
		return p, fmt.Errorf("the platform apart does not start: %w", err)
	}
	var conf struct{ URL, Token string }
	text, err := os.ReadFile(filepath.Join(p.Data, "client.json"))
	if err == nil {
		err = json.Unmarshal(text, &conf)
	}
	if err == nil {
		p.Client, err = client.New(conf.URL, conf.Token)
	}
	return p, err
}

// Down ends and removes it, also when ctx has ended.
func (p *Platform) Down(ctx context.Context) error {
	if p.Data == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removing)
	defer cancel()
	if err := p.run(ctx, "down", "--data", p.Data); err != nil {
		return fmt.Errorf("the platform apart is left; end it with `cofferdam down --data %s` and remove that folder: %w", p.Data, err)
	}
	return os.RemoveAll(p.Data)
}

// run runs the program as a user who has no other installation.
func (p *Platform) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, p.program, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SUDO_") && !strings.HasPrefix(v, "COFFERDAM_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+p.Data, "XDG_CONFIG_HOME="+filepath.Join(p.Data, "config"))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cofferdam %s: %w: %s", args[0], err, attack.Brief(said.String()))
	}
	return nil
}

// Lend puts the throw-away credentials into the vault.
func (p *Platform) Lend(ctx context.Context, f *Far) error {
	port := []uint16{uint16(f.Ports.Bound)}
	var errs []error
	for i, r := range []api.CredentialRequest{
		{Name: "far-key", Hosts: []string{attack.FarName, attack.FalseName}, Methods: []string{"GET"}, Paths: []string{"/ok/**"}, Header: keyHeader, Env: "FAR_KEY"},
		{Name: "far-query", Kind: "query", Hosts: []string{attack.FarName}, Paths: []string{"/query/**"}, Settings: map[string]string{"parameter": parameter}, Env: "FAR_QUERY"},
		{Name: "far-basic", Kind: "basic", Hosts: []string{attack.FarName}, Paths: []string{"/basic/**"}, Settings: map[string]string{"user": user}, Env: "FAR_BASIC"},
		{Name: "far-git", Kind: "git", Hosts: []string{attack.FarName}, Settings: map[string]string{"repository": "acme/app"}, Env: "FAR_GIT"},
	} {
		r.Ports, r.Value = port, f.Values[i]
		if _, err := p.Client.AddCredential(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("the throw-away credential %s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Policy is the policy of the task that they are lent to.
func (f *Far) Policy() string {
	var b strings.Builder
	b.WriteString("version: 1\nfiles: {hidden: [hidden.pem]}\nagent:\n  network:\n    allow:\n")
	rule := func(host, rest string, ports ...int) {
		fmt.Fprintf(&b, "      - {host: %s, ports: %s, %s}\n", host, strings.ReplaceAll(fmt.Sprint(ports), " ", ", "), rest)
	}
	for _, host := range []string{attack.FarName, attack.FalseName} {
		rule(host, "methods: [GET], paths: ['/ok/**'], credential: far-key", f.Ports.Bound)
	}
	rule(attack.FarName, "paths: ['/query/**'], credential: far-query", f.Ports.Bound)
	rule(attack.FarName, "paths: ['/basic/**'], credential: far-basic", f.Ports.Bound)
	rule(attack.FarName, "paths: ['/acme/**'], credential: far-git", f.Ports.Bound)
	rule(attack.FarName, "paths: ['/open/**']", f.Ports.Bound)
	for _, host := range []string{attack.FarName, attack.ElseName} {
		rule(host, "protocol: http", f.Ports.Other, f.Ports.Plain)
	}
	return b.String()
}

// OpenPolicy is that of the sandboxes that are lent nothing.
func (f *Far) OpenPolicy() string {
	return fmt.Sprintf("version: 1\nagent:\n  network:\n    allow:\n      - {host: %s, ports: [%d, %d]}\n", attack.FarName, f.Ports.Bound, f.Ports.Plain)
}

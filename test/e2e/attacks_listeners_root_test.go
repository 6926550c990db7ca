//go:build root

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// Of a machine whose owner opens one service of its own by host and port, that
// port is reached and no other; and the control plane's own listeners are not,
// though the owner opens each of them by name (B08).
func TestOneServiceOfTheHost(t *testing.T) {
	open, shut := serve(t, "0.0.0.0:0"), serve(t, "0.0.0.0:0")
	address := hostAddress(t)
	ns := testenv.Names(t, map[string]string{"me.test.": address, "loop.test.": "127.0.0.1"})
	e := testenv.Start(t, testenv.Config{DNS: ns.Addr, OperatorPolicy: "version: 1\n"})

	// Where the control plane listens is known now, and is so again after a restart.
	own := []int{serverPort(t, strings.TrimPrefix(e.URL, "http://"))}
	own = append(own, enginePorts(t, e)...)
	if len(own) != 6 {
		t.Fatalf("the control plane listens on %v", own)
	}
	e.Down()
	policy := fmt.Sprintf("version: 1\nprivate:\n  - {host: me.test, ports: [%d]}\n  - {host: '%s', ports: [%d]}\n", open.port, address, open.port)
	for _, port := range own {
		policy += fmt.Sprintf("  - {host: loop.test, ports: [%d]}\n  - {host: me.test, ports: [%d]}\n", port, port)
	}
	if err := os.WriteFile(e.Data+".operator.yaml", []byte(policy), 0o644); err != nil {
		t.Fatal(err)
	}
	e.Up()
	if again := enginePorts(t, e); fmt.Sprint(again) != fmt.Sprint(own[1:]) {
		t.Fatalf("the engine listens on %v, and before on %v", again, own[1:])
	}

	ports := append([]int{open.port, shut.port}, own...)
	rules, urls := "", ""
	for _, host := range []string{"me.test", "loop.test", address} {
		for _, port := range ports {
			rules += fmt.Sprintf("{host: '%s', ports: [%d]}, ", host, port)
			urls += fmt.Sprintf(" http://%s/v1/health", net.JoinHostPort(host, fmt.Sprint(port)))
		}
	}
	sandbox := sandboxOf(t, e, api.SandboxRequest{Policy: "version: 1\nagent: {network: {allow: [" + strings.TrimSuffix(rules, ", ") + "]}}\n"})
	out, _ := execIn(t, e, sandbox.ID, "for u in "+urls+"; do echo \"$u $(curl -s -m 10 $u | head -c 300 | tr '\\n' ' ')\"; done")
	if hello := strings.Count(out, "hello from"); hello != 2 || shut.conns.Load() != 0 {
		t.Errorf("%d of 2 were reached, and %d connections came to a service that is not opened; it prints %s", hello, shut.conns.Load(), out)
	}
	// What the gateway says of each: the one port is allowed under its two names, and
	// nothing else was dialled.
	refused := map[string]bool{}
	for _, r := range (&box{c: &clients{e: e}, id: sandbox.ID}).records(t) {
		name := r.Name
		if name == "" {
			name = r.Address
		}
		opened := int(r.Port) == open.port && name != "loop.test"
		if (r.Verdict == "allowed") != opened || !opened && r.Reason != task.PolicyAddress {
			t.Errorf("%s port %d: %s %s", name, r.Port, r.Verdict, r.Reason)
		}
		if r.Verdict == "denied" {
			refused[fmt.Sprint(name, r.Port)] = true
		}
	}
	if want := 3*len(ports) - 2; len(refused) != want {
		t.Errorf("%d refusals of %d are on record", len(refused), want)
	}
}

// enginePorts are all that the engine listens on.
func enginePorts(t *testing.T, e *testenv.Env) []int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.Data, "engine", "boot.json"))
	if err != nil {
		t.Fatal(err)
	}
	var boot struct {
		Address string
		Inner   []string
	}
	if err := json.Unmarshal(text, &boot); err != nil {
		t.Fatal(err)
	}
	var ports []int
	for _, at := range append([]string{boot.Address}, boot.Inner...) {
		ports = append(ports, serverPort(t, at))
	}
	return ports
}

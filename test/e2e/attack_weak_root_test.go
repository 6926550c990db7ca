//go:build root && slow

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	suite "github.com/cofferdam/cofferdam/internal/attack"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// weakening is a defence that is taken away, in one place of one program.
type weakening struct {
	name     string
	program  string
	file     string // of the project
	old, new string // old stands there exactly once
	only     string // the checks that are run
	falls    string // the one that must fall
}

func weakenings() []weakening {
	return []weakening{
		{
			"no address is guarded", "cofferdam-gateway", "internal/egress/outbound/reach.go",
			"switch r.Guard.Judge(a, use.Port) {", "switch guard.Public {", "metadata.", "metadata.aws",
		},
		{
			"no address is guarded, nor the machine's", "cofferdam-gateway", "internal/egress/outbound/reach.go",
			"switch r.Guard.Judge(a, use.Port) {", "switch guard.Public {", "host.addresses", "host.addresses-named",
		},
		{
			"what no rule names is allowed", "cofferdam-gateway", "internal/policy/decide/decide.go",
			"\td := task.Decision{Verdict: task.Denied, Reason: task.PolicyDenied}", "\td := task.Decision{Verdict: task.Allowed}", "egress.", "egress.denied-name",
		},
		{
			"records of names are told apart", "cofferdam-gateway", "internal/egress/nameserver/nameserver.go",
			"\t\treturn r // the name exists and has no such record", "\t\tr.Rcode = dns.RcodeNameError\n\t\treturn r", "dns.t", "dns.txt",
		},
		{
			"names are answered as a resolver would", "cofferdam-gateway", "internal/egress/nameserver/nameserver.go",
			"\tentry, rcode := s.allot(ctx, name)\n", "\tentry, rcode := s.allot(ctx, name)\n\trcode = dns.RcodeNameError\n", "dns.unknown", "dns.unknown-name",
		},
		{
			"commands are root", "cofferdam-guest", "internal/guest/agent/user.go",
			"\treturn &syscall.Credential{Uid: agentUID, Gid: agentGID, Groups: []uint32{agentGID}}", "\treturn &syscall.Credential{}", "kernel.become", "kernel.become-root",
		},
		{
			"commands are root, and read the first process", "cofferdam-guest", "internal/guest/agent/user.go",
			"\treturn &syscall.Credential{Uid: agentUID, Gid: agentGID, Groups: []uint32{agentGID}}", "\treturn &syscall.Credential{}", "secrets.first", "secrets.first-descriptors",
		},
		{
			"processes have no limit", "cofferdam-guest", "internal/guest/agent/start.go",
			"\tif c.nproc > 0 && !c.root {\n\t\tlimit :=", "\tif c.nproc > 1<<40 {\n\t\tlimit :=", "limits.processes", "limits.processes",
		},
		{
			"a folder of the machine is seen inside", "cofferdam-worker", "internal/sandbox/gvisor/spec.go",
			"\t\t\t{Destination: \"/proc\", Type: \"proc\", Source: \"proc\"},\n", "\t\t\t{Destination: \"/proc\", Type: \"proc\", Source: \"proc\"},\n\t\t\t{Destination: \"/var/tmp\", Type: \"bind\", Source: \"/var/tmp\", Options: []string{\"rbind\", \"ro\"}},\n", "files.", "files.machine",
		},
		{
			"files have no limit", "cofferdam-worker", "internal/sandbox/gvisor/runsc.go",
			"strconv.FormatInt(b.record.Spec.Limits.Disk, 10)", "strconv.FormatInt(b.record.Spec.Limits.Disk<<10, 10)", "limits.disk", "limits.disk",
		},
		{
			"who asks for root gets it", "cofferdam-worker", "internal/sandbox/gvisor/command/command.go",
			"\t\tif !spec.Sudo {", "\t\tif spec.Sudo {", "exec.", "exec.as-root",
		},
	}
}

// weaken builds the program with its fault, beside the other programs as they are.
func weaken(t *testing.T, w weakening) string {
	t.Helper()
	root := testenv.Root(t)
	file := filepath.Join(root, w.file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), w.old); n != 1 {
		t.Fatalf("the place in %s stands there %d times, want once", w.file, n)
	}
	dir := t.TempDir()
	patched, list, bin := filepath.Join(dir, "patched.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "bin")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: patched}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{patched: []byte(strings.Replace(string(text), w.old, w.new, 1)), list: overlay} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", "-rs", testenv.Bin(t), bin).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(bin, w.program)); err != nil {
		t.Fatal(err)
	}
	// Users without rights run some of the programs.
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-overlay", list, "-o", filepath.Join(bin, w.program), "./cmd/"+w.program)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the weakened program does not build: %v\n%s", err, out)
	}
	return bin
}

// fallen fails the test unless the check fell.
func fallen(t *testing.T, rep suite.Report, code int, id string) {
	t.Helper()
	for _, c := range rep.Checks {
		if c.ID != id {
			continue
		}
		if c.Outcome != suite.Fell || code == 0 || rep.OK {
			t.Errorf("the check stands, and it ends with %d: %+v", code, c)
		}
		t.Logf("%s: %s", c.ID, c.Happened)
		return
	}
	t.Errorf("there is no check %s in %+v", id, rep)
}

// Each defence that is taken away makes its check fall: the suite can fail.
func TestAttackSeesWeakenings(t *testing.T) {
	for _, w := range weakenings() {
		t.Run(w.name, func(t *testing.T) {
			e := testenv.Start(t, testenv.Config{Flags: []string{"--bin", weaken(t, w)}})
			rep, code := assault(t, e, "--only", w.only)
			fallen(t, rep, code, w.falls)
		})
	}
}

// What the operator opens on the machine is open: the canaries can be reached, and
// say so.
func TestAttackSeesWhatTheOperatorOpened(t *testing.T) {
	port := testenv.FreePort(t)
	address := hostAddress(t)
	e := testenv.Start(t, testenv.Config{OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: '%s', ports: [%d]}\n", address, port)})
	rep, code := assault(t, e, "--only", "host.addresses", "--canary-port", fmt.Sprint(port))
	fallen(t, rep, code, "host.addresses-named")
}

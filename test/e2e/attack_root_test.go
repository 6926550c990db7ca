//go:build root

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	suite "github.com/cofferdam/cofferdam/internal/attack"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// assault runs the attack suite and returns its report and its exit code.
func assault(t *testing.T, e *testenv.Env, args ...string) (suite.Report, int) {
	t.Helper()
	cmd := e.Command(append([]string{"doctor", "--attack", "--json"}, args...)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	var rep suite.Report
	if jerr := json.Unmarshal(out, &rep); jerr != nil {
		t.Fatalf("prints %q, %q: %v", out, complaint.String(), jerr)
	}
	return rep, testenv.ExitCode(err)
}

// On a platform as it is, every check is tried and holds, and nothing is left.
func TestAttackHolds(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	page := filepath.Join(t.TempDir(), "report.html")
	before, _ := filepath.Glob("/var/tmp/cofferdam-attack-*")
	rep, code := assault(t, e, "--page", page)
	if code != 0 || !rep.OK || rep.Held != len(rep.Checks) || rep.Held < 80 {
		t.Errorf("ends with %d: %d held, %d fell, %d untried", code, rep.Held, rep.Fell, rep.Untried)
	}
	for _, c := range rep.Checks {
		if c.Outcome != suite.Held || c.Tried == "" || c.Happened == "" {
			t.Errorf("%+v", c)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), `<td class="held">`); n != rep.Held || strings.Contains(string(text), "<script") {
		t.Errorf("the page tells of %d checks", n)
	}
	left, err := e.Client.Sandboxes(t.Context())
	if err != nil || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
	after, _ := filepath.Glob("/var/tmp/cofferdam-attack-*")
	if left, _ := testenv.Diff(before, after); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

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
		{"no address is guarded", "cofferdam-gateway", "internal/egress/outbound/reach.go",
			"switch r.Guard.Judge(a, use.Port) {", "switch guard.Public {", "metadata.", "metadata.aws"},
		{"what no rule names is allowed", "cofferdam-gateway", "internal/policy/decide/decide.go",
			"\td := task.Decision{Verdict: task.Denied, Reason: task.PolicyDenied}", "\td := task.Decision{Verdict: task.Allowed}", "egress.", "egress.denied-name"},
		{"records of names are told apart", "cofferdam-gateway", "internal/egress/nameserver/nameserver.go",
			"\t\treturn r // the name exists and has no such record", "\t\tr.Rcode = dns.RcodeNameError\n\t\treturn r", "dns.t", "dns.txt"},
		{"names are answered as a resolver would", "cofferdam-gateway", "internal/egress/nameserver/nameserver.go",
			"\tentry, rcode := s.allot(ctx, name)\n", "\tentry, rcode := s.allot(ctx, name)\n\trcode = dns.RcodeNameError\n", "dns.unknown", "dns.unknown-name"},
		{"commands are root", "cofferdam-guest", "internal/guest/agent/user.go",
			"\treturn &syscall.Credential{Uid: agentUID, Gid: agentGID, Groups: []uint32{agentGID}}", "\treturn &syscall.Credential{}", "kernel.become", "kernel.become-root"},
		{"commands are root, and read the first process", "cofferdam-guest", "internal/guest/agent/user.go",
			"\treturn &syscall.Credential{Uid: agentUID, Gid: agentGID, Groups: []uint32{agentGID}}", "\treturn &syscall.Credential{}", "secrets.first", "secrets.first-descriptors"},
		{"processes have no limit", "cofferdam-guest", "internal/guest/agent/start.go",
			"\tif c.nproc > 0 && !c.root {", "\tif c.nproc > 1<<40 {", "limits.processes", "limits.processes"},
		{"output has no limit", "cofferdam-guest", "internal/guest/agent/start.go",
			"limit: cmd.MaxOutput,", "limit: 1 << 40,", "limits.output", "limits.output"},
		{"a folder of the machine is seen inside", "cofferdam-worker", "internal/sandbox/gvisor/spec.go",
			"\t\t\t{Destination: \"/proc\", Type: \"proc\", Source: \"proc\"},\n", "\t\t\t{Destination: \"/proc\", Type: \"proc\", Source: \"proc\"},\n\t\t\t{Destination: \"/var/tmp\", Type: \"bind\", Source: \"/var/tmp\", Options: []string{\"rbind\", \"ro\"}},\n", "files.", "files.machine"},
		{"files have no limit", "cofferdam-worker", "internal/sandbox/gvisor/runsc.go",
			"strconv.FormatInt(b.record.Spec.Limits.Disk, 10)", "strconv.FormatInt(b.record.Spec.Limits.Disk<<10, 10)", "limits.disk", "limits.disk"},
		{"who asks for root gets it", "cofferdam-worker", "internal/sandbox/gvisor/command/command.go",
			"\t\tif !spec.Sudo {", "\t\tif spec.Sudo {", "exec.", "exec.as-root"},
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

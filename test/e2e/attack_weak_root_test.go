//go:build root && slow

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	suite "github.com/cofferdam/cofferdam/internal/attack"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// weakening is a defence that is taken away, in as few places as it stands in.
type weakening struct {
	name     string
	program  string
	file     string // of the project
	old, new string // old stands there exactly once
	only     string // the checks that are run
	falls    string // the one that must fall
	more     []place
}

// place is one more place where the same defence stands.
type place struct{ program, file, old, new string }

func (w weakening) places() []place {
	return append([]place{{w.program, w.file, w.old, w.new}}, w.more...)
}

func weakenings() []weakening {
	return []weakening{
		{
			"no address is guarded", "cofferdam-gateway", "internal/egress/outbound/reach.go",
			"switch r.Guard.Judge(a, use.Port) {", "switch guard.Public {", "metadata.", "metadata.aws", nil,
		},
		{
			"no address is guarded, nor the machine's", "cofferdam-gateway", "internal/egress/outbound/reach.go",
			"switch r.Guard.Judge(a, use.Port) {", "switch guard.Public {", "host.addresses", "host.addresses-named", nil,
		},
		{
			"what no rule names is allowed", "cofferdam-gateway", "internal/policy/decide/decide.go",
			"\td := task.Decision{Verdict: task.Denied, Reason: task.PolicyDenied}", "\td := task.Decision{Verdict: task.Allowed}", "egress.", "egress.denied-name", nil,
		},
		{
			"records of names are told apart", "cofferdam-gateway", "internal/egress/nameserver/nameserver.go",
			"\t\treturn r // the name exists and has no such record", "\t\tr.Rcode = dns.RcodeNameError\n\t\treturn r", "dns.t", "dns.txt", nil,
		},
		{
			"names are answered as a resolver would", "cofferdam-gateway", "internal/egress/nameserver/nameserver.go",
			"\tentry, rcode := s.allot(ctx, name)\n", "\tentry, rcode := s.allot(ctx, name)\n\trcode = dns.RcodeNameError\n", "dns.unknown", "dns.unknown-name", nil,
		},
		{
			"commands are root", "cofferdam-guest", "internal/guest/agent/user.go",
			"\treturn &syscall.Credential{Uid: agentUID, Gid: agentGID, Groups: []uint32{agentGID}}", "\treturn &syscall.Credential{}", "kernel.become", "kernel.become-root", nil,
		},
		{
			"commands are root, and read the first process", "cofferdam-guest", "internal/guest/agent/user.go",
			"\treturn &syscall.Credential{Uid: agentUID, Gid: agentGID, Groups: []uint32{agentGID}}", "\treturn &syscall.Credential{}", "secrets.first", "secrets.first-descriptors", nil,
		},
		{
			"processes have no limit", "cofferdam-guest", "internal/guest/agent/start.go",
			"\tif c.nproc > 0 && !c.root {\n\t\tlimit :=", "\tif c.nproc > 1<<40 {\n\t\tlimit :=", "limits.processes", "limits.processes", nil,
		},
		{
			"a folder of the machine is seen inside", "cofferdam-worker", "internal/sandbox/gvisor/spec.go",
			"\t\t\t{Destination: \"/proc\", Type: \"proc\", Source: \"proc\"},\n", "\t\t\t{Destination: \"/proc\", Type: \"proc\", Source: \"proc\"},\n\t\t\t{Destination: \"/var/tmp\", Type: \"bind\", Source: \"/var/tmp\", Options: []string{\"rbind\", \"ro\"}},\n", "files.", "files.machine", nil,
		},
		{
			"files have no limit", "cofferdam-worker", "internal/sandbox/gvisor/runsc.go",
			"strconv.FormatInt(b.record.Spec.Limits.Disk, 10)", "strconv.FormatInt(b.record.Spec.Limits.Disk<<10, 10)", "limits.disk", "limits.disk", nil,
		},
		{
			"who asks for root gets it", "cofferdam-worker", "internal/sandbox/gvisor/command/command.go",
			"\t\tif !spec.Sudo {", "\t\tif spec.Sudo {", "exec.", "exec.as-root", nil,
		},
		{
			"sandboxes have the machine's network", "cofferdam-worker", "internal/sandbox/gvisor/runsc.go",
			"\t\tkind = \"sandbox\"", "\t\tkind = \"host\"", "neighbour.by", "neighbour.by-loopback",
			[]place{{"cofferdam-worker", "internal/sandbox/gvisor/runsc.go", "low, spec, nsPath)", "low, spec, \"\")"}},
		},
		{
			"files may be asked for in a folder of the machine", "cofferdam-worker", "internal/sandbox/gvisor/spec.go",
			"\t\t\t{Destination: \"/proc\", Type: \"proc\", Source: \"proc\"},\n", "\t\t\t{Destination: \"/proc\", Type: \"proc\", Source: \"proc\"},\n\t\t\t{Destination: \"/var/tmp\", Type: \"bind\", Source: \"/var/tmp\", Options: []string{\"rbind\", \"ro\"}},\n", "export.", "export.outside-roots",
			[]place{{"cofferdam-guest", "internal/guest/agent/single.go", "a.opts.Root + \"/tmp\"}", "a.opts.Root + \"/tmp\", \"/var/tmp\"}"}},
		},
		{
			"a placeholder passes anywhere", "cofferdam-gateway", "internal/egress/outbound/gate.go",
			"if slices.ContainsFunc(standIns(&g.Grant.Leases[i]), rest.holds) {", "if slices.ContainsFunc(standIns(&g.Grant.Leases[i])[:0], rest.holds) {", "credential.", "credential.other-header", nil,
		},
		{
			"what is masked is not held until it is whole", "cofferdam-gateway", "internal/task/mask/stream.go",
			"func (s *stream) next(m *Masker, b []byte, final bool) []byte {\n", "func (s *stream) next(m *Masker, b []byte, final bool) []byte {\n\tfinal = true\n", "credential.repeated", "credential.repeated-in-pieces", nil,
		},
		{
			"a length beside chunks passes", "cofferdam-gateway", "internal/egress/strict/head.go",
			"case f.chunked && f.length >= 0:", "case false:", "smuggle.length", "smuggle.length-and-chunks", nil,
		},
		{
			"protected files can be written to", "cofferdam-guest", "internal/guest/agent/protect/protect.go",
			"\t\treturn lock(fd)", "\t\treturn nil", "protect.", "protect.write", nil,
		},
		{
			"connections have no limit of the sandbox's own", "cofferdam-gateway", "internal/egress/gateway.go",
			"\tif own > 0 && own < int64(most) {", "\tif own > 1<<40 {", "limits.connections", "limits.connections", nil,
		},
	}
}

// weaken builds the programs with their fault, beside the others as they are.
func weaken(t *testing.T, w weakening) string {
	t.Helper()
	root := testenv.Root(t)
	dir := t.TempDir()
	list, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "bin")
	texts, replace := map[string]string{}, map[string]string{}
	var programs []string
	for _, p := range w.places() {
		file := filepath.Join(root, p.file)
		if _, ok := texts[file]; !ok {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file], replace[file] = string(text), filepath.Join(dir, fmt.Sprintf("patched%d.go", len(texts)))
		}
		if n := strings.Count(texts[file], p.old); n != 1 {
			t.Fatalf("the place in %s stands there %d times, want once", p.file, n)
		}
		texts[file] = strings.Replace(texts[file], p.old, p.new, 1)
		if !slices.Contains(programs, p.program) {
			programs = append(programs, p.program)
		}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	written := map[string][]byte{list: overlay}
	for file, text := range texts {
		written[replace[file]] = []byte(text)
	}
	for name, data := range written {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", "-rs", testenv.Bin(t), bin).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
	// Users without rights run some of the programs.
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range programs {
		if err := os.Remove(filepath.Join(bin, program)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "build", "-overlay", list, "-o", filepath.Join(bin, program), "./cmd/"+program)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("the weakened program does not build: %v\n%s", err, out)
		}
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
			bin := weaken(t, w)
			e := testenv.Start(t, testenv.Config{Flags: []string{"--bin", bin}})
			rep, code := assault(t, e, "--only", w.only, "--bin", bin, "--within", "10m")
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

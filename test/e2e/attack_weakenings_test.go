package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	suite "github.com/cofferdam/cofferdam/internal/attack"
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

// Every family of checks has a defence that is taken away, and each stands where it
// is looked for: this is seen in the change that moved it, though the programs
// without it are built and attacked in TestAttackSeesWeakenings alone.
func TestWeakenings(t *testing.T) {
	families := map[string]bool{}
	for _, w := range weakenings() {
		families[suite.Family(w.falls)] = true
		if all := suite.Select(w.only, false); !strings.HasPrefix(w.falls, w.only) || len(all) == 0 {
			t.Errorf("%s: %s is not among %d checks that are run", w.name, w.falls, len(all))
		}
		for _, p := range w.places() {
			text, err := os.ReadFile(filepath.Join("../..", p.file))
			if n := strings.Count(string(text), p.old); err != nil || n != 1 {
				t.Errorf("%s: its place stands %d times in %s, want once (%v)", w.name, n, p.file, err)
			}
		}
	}
	for _, k := range suite.Checks() {
		if !families[suite.Family(k.ID)] {
			t.Errorf("%s: no defence of its family is taken away in any test", k.ID)
		}
	}
}

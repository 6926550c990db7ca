package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

const good = `# who may reach what
version: 1
limits:
  cpus: 1.5
  memory: 512MiB
  pids: 256
  disk: 2GiB
  output: 64MiB
  time: 10m
setup:
  network:
    allow:
      - host: proxy.example.com
      - host: Registry.Example.com.
        ports: [443, 8443]
verify:
  network:
    allow: []
`

func TestCompile(t *testing.T) {
	operator := "version: 1\nprivate:\n  - {host: registry.example.com, ports: [8443]}\n"
	plan, err := Compile(task.Spec{Policy: good, Repo: task.Repo{URL: "https://git.example.com:8443/x.git"}}, task.Layers{Operator: operator})
	if err != nil {
		t.Fatal(err)
	}
	want := Plan{
		Limits: task.Limits{MilliCPU: 1500, Memory: 512 << 20, PIDs: 256, Disk: 2 << 30, Output: 64 << 20, Time: 10 * time.Minute}.WithDefaults(),
		Rules: map[task.StageName][]task.Rule{
			task.Setup: {
				{ID: "setup.network.allow[0]", Host: "proxy.example.com", Ports: []uint16{443}, Layer: "task"},
				{ID: "setup.network.allow[1]", Host: "registry.example.com", Ports: []uint16{443}, Layer: "task"},
				{ID: "setup.network.allow[1]", Host: "registry.example.com", Ports: []uint16{8443}, Private: true, Layer: "task"},
			},
			task.Checkout: {{ID: "repo.url", Host: "git.example.com", Ports: []uint16{8443}, Layer: "task"}},
		},
		Digest: plan.Digest,
	}
	want.Limits.Patch, want.Limits.Kept, want.Limits.KeptFiles = task.Limits{}.OfOutputs()
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Error(diff)
	}
	if g := plan.Grant("t-1", task.Agent, "sb-1"); len(g.Rules) != 0 {
		t.Errorf("the agent's stage was not named and may reach %v", g.Rules)
	}
}

func TestDigestCoversTheOperator(t *testing.T) {
	a, errA := Compile(task.Spec{Policy: good}, task.Layers{})
	b, errB := Compile(task.Spec{Policy: good}, task.Layers{Operator: "version: 1\nprivate: [{host: proxy.example.com, ports: [443]}]"})
	if errA != nil || errB != nil || a.Digest == b.Digest || a.Digest == "" {
		t.Errorf("digests %q and %q (errors %v, %v); want two that differ", a.Digest, b.Digest, errA, errB)
	}
}

func TestEmptyPolicyReachesNothing(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "version: 1\n", "version: 1\nagent:\n", "version: 1\nagent: {network: {allow: }}\n"} {
		plan, err := Compile(task.Spec{Policy: text}, task.Layers{})
		if err != nil || len(plan.Rules) != 0 {
			t.Errorf("Compile(%q) = %v, %v; want no rules", text, plan.Rules, err)
		}
	}
}

func TestBadPolicyNamesLineAndField(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"version: 1\nnetz: {}\n", "line 2: netz: unknown field; known here: agent, checkout, examples, files, limits, output, setup, sudo, verify, version"},
		{"version: 1\nsetup:\n  network:\n    alow: []\n", "line 4: setup.network.alow: unknown field; known here: allow"},
		{"version: 2\n", "line 1: version: must be 1"},
		{"setup: {}\n", "version: is missing"},
		{"- a\n", "must be a mapping"},
		{"version: 1\nagent: {network: {allow: [{ports: [443]}]}}\n", "agent.network.allow[0]: host is missing"},
		{"version: 1\nagent: {network: {allow: [{host: 'https://a.test/'}]}}\n", "is not a host; give the name alone"},
		{"version: 1\nagent: {network: {allow: [{host: 'a.test:443'}]}}\n", "put it under ports"},
		{"version: 1\nagent: {network: {allow: [{host: '*.test'}]}}\n", "anybody can register beneath test"},
		{"version: 1\nagent: {network: {allow: [{host: '*'}]}}\n", "is not a pattern; write"},
		{"version: 1\nagent: {network: {allow: [{host: '2130706433'}]}}\n", "is not a host name"},
		{"version: 1\nagent: {network: {allow: [{host: '0x7f000001'}]}}\n", "is not a host name"},
		{"version: 1\nagent: {network: {allow: [{host: a.test, ports: [0]}]}}\n", "ports[0]: \"0\" is not a port"},
		{"version: 1\nagent: {network: {allow: [{host: a.test, ports: ['443']}]}}\n", "is not a port"},
		{"version: 1\nagent: {network: {allow: [{host: a.test, ports: []}]}}\n", "ports: is empty"},
		{"version: 1\nagent: {network: {allow: [{host: a.test, ports: [65536]}]}}\n", "is not a port"},
		{"version: 1\nagent: {network: {allow: all}}\n", "must be a list"},
		{"version: 1\nlimits: {memory: 4G}\n", "limits.memory: \"4G\" is not a size"},
		{"version: 1\nlimits: {time: forever}\n", "limits.time"},
		{"version: 1\nlimits: {cpus: .nan}\n", "limits.cpus"},
		{"version: 1\nlimits: {pids: -1}\n", "limits.pids"},
		{"version: 1\nversion: 1\n", "version"},
		{"version: 1\nsetup: &a {}\nagent: *a\n", "anchors"},
		{"version: 1\n---\nversion: 1\n", "a second document"},
		{"version: 1\n\tx: 1\n", "not YAML"},
		{"version: 1\nagent: !!python/object {}\n", "is not allowed"},
		{strings.Repeat("#", maxFile+1), "longer than"},
	} {
		_, err := Compile(task.Spec{Policy: c.text}, task.Layers{})
		var f *task.Failure
		if !errors.As(err, &f) || f.Reason != task.InputPolicy || !strings.Contains(f.Text, c.want) {
			t.Errorf("Compile(%.60q) = %v, want input.policy with %q", c.text, err, c.want)
		}
	}
}

func TestRepositoryURL(t *testing.T) {
	for _, url := range []string{"http://a.test/x", "ssh://a.test/x", "file:///etc", "https://u:p@a.test/", "https://", "https://a.test:0/", "::"} {
		_, err := Compile(task.Spec{Repo: task.Repo{URL: url}}, task.Layers{})
		var f *task.Failure
		if !errors.As(err, &f) || f.Reason != task.InputInvalid {
			t.Errorf("Compile(repo.url %q) = %v, want input.invalid", url, err)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(good)
	f.Add("version: 1\nagent: {network: {allow: [{host: a.test}]}}")
	f.Fuzz(func(t *testing.T, text string) {
		plan, err := Compile(task.Spec{Policy: text}, task.Layers{})
		if err != nil {
			return
		}
		for stage, rules := range plan.Rules {
			for _, r := range rules {
				if r.Private || r.Host == "" || len(r.Ports) == 0 {
					t.Fatalf("a task's policy made the rule %+v in %s", r, stage)
				}
				if d := decide.Decide(plan.Grant("", stage, ""), decide.Use{Name: r.Host, Port: r.Ports[0]}); d.Verdict != task.Allowed {
					if d := decide.Decide(plan.Grant("", stage, ""), decide.Use{Address: r.Host, Port: r.Ports[0]}); d.Verdict != task.Allowed {
						t.Fatalf("rule %+v allows nothing", r)
					}
				}
			}
		}
	})
}

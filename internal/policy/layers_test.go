package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

func compiled(t testing.TB, spec task.Spec, layers task.Layers) Plan {
	t.Helper()
	plan, err := Compile(spec, layers)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func wantFailure(t testing.TB, err error, reason task.Reason, texts ...string) {
	t.Helper()
	var f *task.Failure
	if !errors.As(err, &f) || f.Reason != reason {
		t.Errorf("%v, want %s", err, reason)
		return
	}
	for _, text := range texts {
		if !strings.Contains(f.Text, text) {
			t.Errorf("%q lacks %q", f.Text, text)
		}
	}
}

func allow(stage, rules string) string {
	return "version: 1\n" + stage + ":\n  network:\n    allow:\n" + rules
}

// A rule that could never match is an error with its line, its field and what to
// do instead.
func TestRulesThatCannotMatch(t *testing.T) {
	for rule, want := range map[string]string{
		"{host: a.test, protocol: tls, methods: [GET]}":                        "agent.network.allow[0].methods: can't apply with protocol tls",
		"{host: a.test, protocol: tcp, paths: [/x]}":                           "agent.network.allow[0].paths: can't apply with protocol tcp",
		"{host: a.test, protocol: tls, credential: k}":                         "agent.network.allow[0].credential: can't apply with protocol tls",
		"{host: a.test, protocol: http, ports: []}":                            "ports: is empty, so the rule could never match",
		"{host: a.test, ports: }":                                              "ports: is empty, so the rule could never match",
		"{host: a.test, methods: []}":                                          "methods: is empty",
		"{host: a.test, paths: []}":                                            "paths: is empty",
		"{host: a.test, methods: [get]}":                                       "\"get\" is not a method",
		"{host: a.test, methods: [CONNECT]}":                                   "\"CONNECT\" is not a method",
		"{host: a.test, methods: [GET, GET]}":                                  "GET is given twice",
		"{host: a.test, paths: [x]}":                                           "paths begin with \"/\"",
		"{host: a.test, paths: ['/a/../b']}":                                   "can't match",
		"{host: a.test, paths: ['/a//b']}":                                     "can't match",
		"{host: a.test, paths: ['/a b']}":                                      "can't match",
		"{host: a.test, paths: ['/a%2fb']}":                                    "can't match",
		"{host: a.test, paths: ['/a?x=1']}":                                    "without query",
		"{host: a.test, paths: ['/a*']}":                                       "stands for a whole segment",
		"{host: a.test, paths: ['/**/a']}":                                     "only at the end",
		"{host: a.test, protocol: udp}":                                        "\"udp\" is not one of tls, http, tcp, postgres",
		"{host: a.test, credential: 'a b'}":                                    "is not the name of a credential",
		"{host: '*'}":                                                          "is not a pattern",
		"{host: '**'}":                                                         "is not a pattern",
		"{host: '*.com'}":                                                      "anybody can register beneath com",
		"{host: '**.co.uk'}":                                                   "anybody can register beneath co.uk",
		"{host: '*.github.io'}":                                                "anybody can register beneath github.io",
		"{host: 'a.*.example.com'}":                                            "is not a pattern",
		"{host: '*.2.7'}":                                                      "is not a host name",
		"{host: '***.example.com'}":                                            "is not a pattern",
		"{host: '*.*.example.com'}":                                            "is not a pattern",
		"{host: a.test, method: GET}":                                          "unknown field; known here: body, credential, headers, host, methods, paths, ports, protocol, query, until",
		"{host: a.test, credential: k}\n      - {host: a.test, credential: l}": "line 6: agent.network.allow[1]: lends \"l\" to requests to which agent.network.allow[0] (line 5) lends \"k\"",
		"{host: '*.a.example.com', credential: k}\n      - {host: b.a.example.com, credential: l, methods: [GET]}":                          "lends \"l\"",
		"{host: a.test, methods: [GET]}\n      - {host: a.test, protocol: tls}":                                                             "wants protocol tls",
		"{host: a.test, protocol: postgres}":                                                                                                "agent.network.allow[0].credential: is missing",
		"{host: a.test, protocol: postgres, credential: k, methods: [GET]}":                                                                 "methods: can't apply with protocol postgres",
		"{host: a.test, protocol: postgres, credential: k, paths: [/db]}":                                                                   "paths: can't apply with protocol postgres",
		"{host: a.test, protocol: postgres, credential: k}\n      - {host: a.test, protocol: tcp, ports: [5432]}":                           "wants protocol postgres where agent.network.allow[1] (line 6) wants tcp",
		"{host: a.test, protocol: postgres, credential: k}\n      - {host: a.test, ports: [5432], paths: [/x]}":                             "wants protocol postgres where agent.network.allow[1] (line 6) wants http",
		"{host: a.test, protocol: postgres, credential: k}\n      - {host: a.test, ports: [5432], credential: k}":                           "wants protocol postgres",
		"{host: a.test, protocol: postgres, credential: k}\n      - {host: a.test, protocol: postgres, ports: [5432, 5433], credential: l}": "a stage logs in to a server with one credential",
	} {
		_, err := Compile(task.Spec{Policy: allow("agent", "      - "+rule+"\n")}, task.Layers{})
		wantFailure(t, err, task.InputPolicy, "policy line ", want)
	}
	for _, rule := range []string{
		"{host: '**.example.com', ports: [443, 8443], protocol: http, methods: [GET, PROPFIND], paths: [/, '/a/*/b/**', '/100%25']}",
		"{host: a.test, credential: k, paths: [/a]}\n      - {host: a.test, credential: l, paths: [/b]}",
		"{host: a.test, credential: k, methods: [GET]}\n      - {host: a.test, credential: l, methods: [POST]}",
		"{host: a.test, credential: k}\n      - {host: a.test, credential: l, ports: [8443]}",
		"{host: a.test, credential: k}\n      - {host: a.test}",
		"{host: 192.0.2.7, protocol: tcp}",
		"{host: a.test, protocol: postgres, credential: k}\n      - {host: a.test, protocol: tls}",
		"{host: a.test, protocol: postgres, credential: k}\n      - {host: '*.test.example', ports: [5432]}\n      - {host: a.test, ports: [5432]}",
		"{host: a.test, protocol: postgres, credential: k}\n      - {host: b.test, protocol: postgres, credential: l}",
	} {
		compiled(t, task.Spec{Policy: allow("agent", "      - "+rule+"\n")}, task.Layers{})
	}
}

func TestGrammar(t *testing.T) {
	plan := compiled(t, task.Spec{Policy: `version: 1
limits: {inodes: 1000, files: 256, names: 10, connections: 20, time: 1h}
sudo: true
files: {writable: [.vscode], readonly: [docs/], hidden: [secrets]}
setup: {time: 10m}
`}, task.Layers{})
	if l := plan.Limits; l.Inodes != 1000 || l.Files != 256 || l.Names != 10 || l.Connections != 20 {
		t.Errorf("limits %+v", l)
	}
	if !plan.Sudo || plan.Timeout[task.Setup] != 10*time.Minute || len(plan.Timeout) != 1 {
		t.Errorf("plan %+v", plan)
	}
	if f := plan.Files; !slices.Equal(f.Writable, []string{".vscode"}) || !slices.Equal(f.ReadOnly, []string{"docs"}) || !slices.Equal(f.Hidden, []string{"secrets"}) {
		t.Errorf("files %+v", f)
	}
	for text, want := range map[string]string{
		"files: {hidden: [a], writable: [a]}": "is said on line 2 already",
		"files: {hidden: [../a]}":             "without \"..\"",
		"files: {hidden: [/a]}":               "must be relative",
		"files: {hidden: [a/./b]}":            "write \"a/b\"",
		"files: {hidden: ['a*']}":             "has a pattern",
		"files: {writable: [.git]}":           "\".git\" itself can't be ruled",
		"files: {writable: [.GIT/]}":          "can't be ruled",
		"files: {readonly: ['']}":             "must be a path",
		"files: {readonly: [1]}":              "must be a path",
		"sudo: yes":                           "must be true or false",
		"setup: {time: 1}":                    "is not a duration",
		"limits: {names: 0}":                  "is not a number of host names",
		"limits: {files: 1.5}":                "is not a number of open files",
		"ceiling: {}":                         "unknown field",
		"private: []":                         "unknown field",
		"examples: [{host: a.test}]":          "stage: is missing",
		"examples: [{stage: agent, host: '*.a.test', expect: allowed}]":                      "must be one host",
		"examples: [{stage: export, host: a.test, expect: allowed}]":                         "\"export\" is not one of",
		"examples: [{stage: agent, host: a.test, expect: perhaps}]":                          "\"perhaps\" is not one of",
		"examples: [{stage: agent, host: a.test, expect: allowed, reason: x}]":               "reason can't hold",
		"examples: [{path: ../x, write: denied}]":                                            "without \"..\"",
		"examples: [{stage: agent, host: a.test, expect: allowed, path: a, write: allowed}]": "unknown field",
	} {
		_, err := Compile(task.Spec{Policy: "version: 1\n" + text + "\n"}, task.Layers{})
		wantFailure(t, err, task.InputPolicy, "policy line 2: ", want)
	}
}

func TestCeilings(t *testing.T) {
	const operator = `version: 1
ceiling:
  limits: {memory: 2GiB, time: 1h}
  network:
    allow:
      - host: "**.example.com"
        ports: [443, 8443]
      - {host: api.test, methods: [GET, HEAD], paths: ["/v1/**"]}
      - {host: tls.test, protocol: tls}
  agent: {network: {allow: [{host: "*.agent.example.com"}, {host: api.test, methods: [GET], paths: ["/v1/**"]}]}}
  credentials: [k]
  files: {widen: [.vscode]}
  sudo: forbid
`
	for _, c := range []struct{ policy, want string }{
		{allow("setup", "      - {host: a.example.com}\n      - {host: '*.b.example.com', ports: [8443]}\n"), ""},
		{allow("setup", "      - {host: example.com}\n"), "policy line 5: setup.network.allow[0]: example.com port 443 is more than the operator policy allows (ceiling.network"},
		{allow("setup", "      - {host: a.example.com}\n      - {host: other.test}\n"), "policy line 6: setup.network.allow[1]: other.test port 443"},
		{allow("setup", "      - {host: a.example.com, ports: [443, 22]}\n"), "a.example.com port 22 is more than the operator policy allows (ceiling.network, line 6)"},
		{allow("setup", "      - {host: api.test, methods: [GET], paths: [/v1/x, '/v1/*/y', '/v1/z/**']}\n"), ""},
		{allow("setup", "      - {host: api.test, methods: [POST], paths: [/v1/x]}\n"), "api.test port 443 by http is more"},
		{allow("setup", "      - {host: api.test, methods: [GET], paths: [/v2]}\n"), "is more than"},
		{allow("setup", "      - {host: api.test, methods: [GET]}\n"), "is more than"},
		{allow("setup", "      - {host: api.test}\n"), "api.test port 443 by any protocol"},
		{allow("setup", "      - {host: tls.test}\n"), "by any protocol"},
		{allow("setup", "      - {host: tls.test, protocol: http}\n"), "by http"},
		{allow("setup", "      - {host: tls.test, protocol: tls}\n"), ""},
		{allow("agent", "      - {host: a.example.com}\n"), "ceiling.agent.network"},
		{allow("agent", "      - {host: a.agent.example.com}\n"), ""},
		{allow("agent", "      - {host: '**.agent.example.com'}\n"), "ceiling.agent.network"},
		{allow("setup", "      - {host: a.example.com, credential: k}\n"), ""},
		{allow("setup", "      - {host: a.example.com, credential: other}\n"), "the credential \"other\" is none that the operator policy lets tasks use"},
		{"version: 1\nlimits: {memory: 4GiB}\n", "policy line 2: limits.memory: 4GiB is more than 2GiB"},
		{"version: 1\nlimits: {memory: 1GiB}\n", ""},
		{"version: 1\nsetup: {time: 2h}\n", "setup.time: 2h0m0s is more than 1h0m0s"},
		{"version: 1\nsudo: true\n", "policy line 2: sudo: the operator policy doesn't allow it"},
		{"version: 1\nsudo: false\n", ""},
		{"version: 1\nfiles: {writable: [.vscode/settings.json]}\n", ""},
		{"version: 1\nfiles: {writable: [.git/hooks]}\n", "policy line 2: files.writable: \".git/hooks\" takes the protection of \".git/hooks\" away"},
		{"version: 1\nfiles: {writable: [.git/info]}\n", "takes the protection of \".git/info/attributes\" away"},
		{"version: 1\nfiles: {writable: [.Git/Hooks]}\n", "takes the protection of"},
		{"version: 1\nfiles: {writable: [src]}\n", ""},
	} {
		_, err := Compile(task.Spec{Policy: c.policy}, task.Layers{Operator: operator})
		if c.want == "" {
			if err != nil {
				t.Errorf("%q: %v", c.policy, err)
			}
			continue
		}
		wantFailure(t, err, task.PolicyCeiling, c.want)
	}
	_, err := Compile(task.Spec{Repo: task.Repo{URL: "https://git.test/x"}}, task.Layers{Operator: operator})
	wantFailure(t, err, task.PolicyCeiling, "repo.url: git.test port 443")
	_, err = Compile(task.Spec{Agent: task.AgentSpec{Name: "claude"}}, task.Layers{Operator: operator})
	wantFailure(t, err, task.PolicyCeiling, "agent.model: api.anthropic.com port 443")
	if plan := compiled(t, task.Spec{}, task.Layers{Operator: operator}); plan.Limits.Memory != 2<<30 || plan.Limits.Time != time.Hour {
		t.Errorf("limits that nobody names: %+v", plan.Limits)
	}
}

func TestSpliceForbidden(t *testing.T) {
	layers := task.Layers{Operator: "version: 1\nceiling: {splice: forbid}\n"}
	plan := compiled(t, task.Spec{Policy: allow("agent", "      - {host: a.test}\n")}, layers)
	if d := decide.Decide(plan.Grant("", task.Agent, ""), decide.Use{Name: "a.test", Port: 443}); !d.Inspect || !slices.Equal(d.Protocols, []string{"http"}) {
		t.Errorf("an open rule is not inspected: %+v", d)
	}
	for _, p := range []string{"tls", "tcp"} {
		_, err := Compile(task.Spec{Policy: allow("agent", "      - {host: a.test, protocol: "+p+"}\n")}, layers)
		wantFailure(t, err, task.PolicyCeiling, "ceiling.splice", "write protocol: http")
	}
}

func TestModelRule(t *testing.T) {
	for _, c := range []struct {
		agent task.AgentSpec
		host  string
		port  uint16
		cred  string
	}{
		{task.AgentSpec{Name: "command"}, "", 0, ""},
		{task.AgentSpec{Name: "loop"}, "api.anthropic.com", 443, "anthropic"},
		{task.AgentSpec{Name: "codex", Credential: "mine"}, "api.openai.com", 443, "mine"},
		{task.AgentSpec{Name: "claude", ModelURL: "https://Models.Example.com:8443/v1"}, "models.example.com", 8443, "anthropic"},
	} {
		plan := compiled(t, task.Spec{Agent: c.agent}, task.Layers{})
		rules := plan.Rules[task.Agent]
		if c.host == "" {
			if len(rules) != 0 {
				t.Errorf("%+v: %+v", c.agent, rules)
			}
			continue
		}
		if len(rules) != 1 || rules[0].ID != "agent.model" || rules[0].Host != c.host || rules[0].Ports[0] != c.port || rules[0].Credential != c.cred || rules[0].Layer != "task" || rules[0].Protocol != "http" {
			t.Errorf("%+v: %+v", c.agent, rules)
		}
		for _, s := range []task.StageName{task.Checkout, task.Setup, task.Verify} {
			if len(plan.Rules[s]) != 0 {
				t.Errorf("%+v: %s may reach %+v", c.agent, s, plan.Rules[s])
			}
		}
	}
	for _, url := range []string{"http://a.test", "https://u:p@a.test", "ftp://a.test", "https://", "::"} {
		_, err := Compile(task.Spec{Agent: task.AgentSpec{Name: "loop", ModelURL: url}}, task.Layers{})
		wantFailure(t, err, task.InputInvalid, "agent.modelURL")
	}
	_, err := Compile(task.Spec{Agent: task.AgentSpec{Name: "loop", Credential: "a b"}}, task.Layers{})
	wantFailure(t, err, task.InputInvalid, "agent.credential")
	_, err = Compile(task.Spec{Agent: task.AgentSpec{Name: "loop"}, Policy: allow("agent", "      - {host: api.anthropic.com, credential: other}\n")}, task.Layers{})
	wantFailure(t, err, task.InputPolicy, "agent.network.allow[0]", "\"other\"")
}

const projectText = `version: 1
limits: {memory: 1GiB}
setup: {network: {allow: [{host: "*.example.com"}]}, time: 10m}
files: {writable: [.vscode/a], readonly: [docs], hidden: [secrets]}
sudo: false
`

func TestProjectLayer(t *testing.T) {
	layers := task.Layers{Project: projectText}
	spec := func(policy string) task.Spec { return task.Spec{Project: "web", Policy: policy} }
	plan := compiled(t, spec(""), layers)
	if r := plan.Rules[task.Setup]; len(r) != 1 || r[0].ID != "project.setup.network.allow[0]" || r[0].Layer != "project" {
		t.Errorf("the project's rules: %+v", r)
	}
	if plan.Limits.Memory != 1<<30 || plan.Timeout[task.Setup] != 10*time.Minute || plan.Sudo {
		t.Errorf("plan %+v", plan)
	}
	plan = compiled(t, spec(allow("setup", "      - {host: a.example.com}\n")), layers)
	if r := plan.Rules[task.Setup]; len(r) != 1 || r[0].Host != "a.example.com" || r[0].Layer != "task" {
		t.Errorf("a task that asks for less: %+v", r)
	}
	if plan = compiled(t, spec("version: 1\nsetup: {network: {allow: []}}\n"), layers); len(plan.Rules[task.Setup]) != 0 {
		t.Errorf("a task that asks for nothing: %+v", plan.Rules)
	}
	// A stage that the project doesn't name is the task's own to say.
	if plan = compiled(t, spec(allow("agent", "      - {host: other.test}\n")), layers); len(plan.Rules[task.Agent]) != 1 || len(plan.Rules[task.Setup]) != 1 {
		t.Errorf("rules %+v", plan.Rules)
	}
	if plan = compiled(t, spec("version: 1\nfiles: {readonly: [.vscode], hidden: [docs/a]}\n"), layers); len(plan.Files.Writable) != 0 || !slices.Equal(plan.Files.Hidden, []string{"docs/a", "secrets"}) {
		t.Errorf("files %+v", plan.Files)
	}
	for text, want := range map[string]string{
		allow("setup", "      - {host: other.test}\n"): "policy line 5: setup.network.allow[0]: other.test port 443 is more than the policy of project web allows (setup.network.allow",
		"version: 1\nlimits: {memory: 2GiB}\n":         "limits.memory: 2GiB is more than 1GiB; the policy of project web",
		"version: 1\nsetup: {time: 11m}\n":             "setup.time",
		"version: 1\nsudo: true\n":                     "sudo: the policy of project web",
		"version: 1\nfiles: {writable: [docs/x]}\n":    "\"docs/x\" lies in what a higher layer keeps",
		"version: 1\nfiles: {writable: [Docs]}\n":      "keeps read-only or hidden",
		"version: 1\nfiles: {readonly: [secrets/x]}\n": "what a higher layer hides",
	} {
		_, err := Compile(spec(text), layers)
		wantFailure(t, err, task.PolicyCeiling, want)
	}
	// With a ceiling of its own, the ceiling binds and not what it names.
	wide := task.Layers{Project: "version: 1\nceiling: {network: {allow: [{host: '**.example.com'}, {host: other.test}]}, limits: {memory: 8GiB}}\n" + projectText[len("version: 1\n"):]}
	compiled(t, spec(allow("setup", "      - {host: other.test}\n")), wide)
	compiled(t, spec("version: 1\nlimits: {memory: 2GiB}\n"), wide)
	_, err := Compile(spec(""), task.Layers{Project: projectText, Operator: "version: 1\nceiling: {network: {allow: []}}\n"})
	wantFailure(t, err, task.PolicyCeiling, "policy of project web line 3: project.setup.network.allow[0]")
	_, err = Compile(spec(""), task.Layers{Project: "version: 1\nnone: 1\n"})
	wantFailure(t, err, task.InputPolicy, "policy of project web line 2: none: unknown field")
}

const repositoryText = `version: 1
setup: {command: npm ci, network: {allow: [{host: registry.npmjs.org}, {host: evil.test}]}}
verify: {command: npm test, report: out/junit.xml}
agent: {name: command, argv: [./fix], network: {allow: [{host: api.test, credential: k}]}}
keep: ["dist/**"]
files: {writable: [.git/hooks], readonly: [src/gen], hidden: [fixtures]}
`

func TestRepositoryIsARequestNotAGrant(t *testing.T) {
	layers := task.Layers{Repository: repositoryText}
	plan := compiled(t, task.Spec{}, layers)
	if len(plan.Rules) != 0 || plan.Repository.Allowed || plan.Repository.Setup != "" || len(plan.Files.Writable) != 0 {
		t.Errorf("nobody lets the repository ask and it got %+v", plan)
	}
	told := strings.Join(plan.Narrowed, "\n")
	for _, want := range []string{"registry.npmjs.org", "evil.test", "api.test", "commands", ".git/hooks", "line 2", "line 6"} {
		if !strings.Contains(told, want) {
			t.Errorf("what was not given lacks %q:\n%s", want, told)
		}
	}
	if !slices.Equal(plan.Files.ReadOnly, []string{"src/gen"}) || !slices.Equal(plan.Files.Hidden, []string{"fixtures"}) {
		t.Errorf("closing is always possible: %+v", plan.Files)
	}
	layers.Project = "version: 1\nrepository: {commands: true, network: [{host: '*.npmjs.org'}, {host: api.test}]}\n"
	plan = compiled(t, task.Spec{Project: "web"}, layers)
	if r := plan.Rules[task.Setup]; len(r) != 1 || r[0].Host != "registry.npmjs.org" || r[0].Layer != "repository" || r[0].ID != "repository.setup.network.allow[0]" {
		t.Errorf("rules %+v", r)
	}
	if len(plan.Rules[task.Agent]) != 0 {
		t.Errorf("a credential that was not offered: %+v", plan.Rules[task.Agent])
	}
	a := plan.Repository
	if !a.Allowed || a.Setup != "npm ci" || a.Verify != "npm test" || a.Report != "out/junit.xml" || a.Agent.Name != "command" || !slices.Equal(a.Files, []string{"dist/**"}) {
		t.Errorf("commands %+v", a)
	}
	layers.Project = "version: 1\nrepository: {network: [{host: api.test, credential: k}]}\n"
	if plan = compiled(t, task.Spec{Project: "web"}, layers); len(plan.Rules[task.Agent]) != 1 || plan.Rules[task.Agent][0].Credential != "k" {
		t.Errorf("a credential that was offered: %+v", plan.Rules)
	}
	// The task says itself what a stage reaches.
	plan = compiled(t, task.Spec{Project: "web", Policy: "version: 1\nagent: {network: {allow: []}}\n"}, layers)
	if len(plan.Rules[task.Agent]) != 0 {
		t.Errorf("the repository widened a task: %+v", plan.Rules)
	}
	// A ceiling stands above what may be asked for, and so does the other rules' say.
	layers.Operator = "version: 1\nceiling: {credentials: []}\n"
	if plan = compiled(t, task.Spec{Project: "web"}, layers); len(plan.Rules[task.Agent]) != 0 || !strings.Contains(strings.Join(plan.Narrowed, "\n"), "ceiling.credentials") {
		t.Errorf("above the ceiling: %+v", plan)
	}
	layers.Operator = "version: 1\nrepository: {network: [{host: api.test, credential: k}]}\n"
	layers.Project = "version: 1\nagent: {network: {allow: [{host: other.test}]}}\n"
	if plan = compiled(t, task.Spec{Project: "web"}, layers); len(plan.Rules[task.Agent]) != 1 || plan.Rules[task.Agent][0].Host != "other.test" {
		t.Errorf("beyond the project: %+v", plan.Rules)
	}
	layers.Project = "version: 1\nagent: {network: {allow: [{host: api.test, credential: other}]}}\nrepository: {network: [{host: api.test, credential: k}]}\n"
	if plan = compiled(t, task.Spec{Project: "web"}, layers); len(plan.Rules[task.Agent]) != 1 || plan.Rules[task.Agent][0].Credential != "other" {
		t.Errorf("against the project: %+v", plan.Rules)
	}
}

func TestRepositoryFailsNoTask(t *testing.T) {
	for _, text := range []string{"\x00", "not: [yaml", "version: 2", "version: 1\nlimits: {memory: 1TiB}\n", "version: 1\nsudo: true\n", strings.Repeat("#", MaxRepositoryFile+1), "version: 1\nsetup: &a {command: x}\nverify: *a\n", "version: 1\nagent: {name: claude, modelURL: 'https://evil.test', credential: k}\n"} {
		plan := compiled(t, task.Spec{}, task.Layers{Repository: text, Operator: "version: 1\nrepository: {commands: true}\n"})
		if len(plan.Narrowed) != 1 || !strings.Contains(plan.Narrowed[0], "all of it was left out") || plan.Repository.Setup != "" || plan.Repository.Agent.Name != "" {
			t.Errorf("%.30q: %+v", text, plan)
		}
	}
}

func TestOperatorFile(t *testing.T) {
	for text, want := range map[string]string{
		"private: [{host: '*.corp.example'}]":                          "takes host and ports alone",
		"private: [{host: db.corp, credential: k}]":                    "takes host and ports alone",
		"ceiling: {network: {allow: [{host: a.test, credential: k}]}}": "a ceiling lends nothing",
		"ceiling: {splice: never}":                                     "is not one of forbid, allow",
		"ceiling: {files: {widen: ['..']}}":                            "without \"..\"",
		"ceiling: {export: {}}":                                        "unknown field",
		"agent: {}":                                                    "unknown field",
		"defaults: {network: {}}":                                      "unknown field; known here: access, limits",
		"repository: {commands: sometimes}":                            "must be true or false",
	} {
		wantFailure(t, CheckOperator("version: 1\n"+text+"\n"), task.InputPolicy, "operator policy line 2", want)
	}
	plan := compiled(t, task.Spec{}, task.Layers{Operator: "version: 1\ndefaults: {limits: {memory: 512MiB, time: 5m}}\n"})
	if plan.Limits.Memory != 512<<20 || plan.Limits.Time != 5*time.Minute || plan.Limits.PIDs != task.DefaultLimits().PIDs {
		t.Errorf("defaults: %+v", plan.Limits)
	}
	private := task.Layers{Operator: "version: 1\nprivate: [{host: db.corp.example, ports: [5432]}, {host: x.corp.example}]\n"}
	plan = compiled(t, task.Spec{Policy: allow("agent", "      - {host: '*.corp.example', ports: [5432, 443]}\n")}, private)
	grant := plan.Grant("", task.Agent, "")
	for host, want := range map[string]bool{"db.corp.example": true, "y.corp.example": false} {
		if d := decide.Decide(grant, decide.Use{Name: host, Port: 5432}); d.Verdict != task.Allowed || d.Private != want {
			t.Errorf("%s: %+v, want private %t", host, d, want)
		}
	}
	if d := decide.Decide(grant, decide.Use{Name: "db.corp.example", Port: 443}); d.Private {
		t.Errorf("another port of a private host: %+v", d)
	}
	if d := decide.Decide(compiled(t, task.Spec{}, private).Grant("", task.Agent, ""), decide.Use{Name: "db.corp.example", Port: 5432}); d.Verdict != task.Denied {
		t.Errorf("what the operator opens is not asked for: %+v", d)
	}
}

// A rule for PostgreSQL is for its own port, and a ceiling may be about it.
func TestPostgresRules(t *testing.T) {
	spec := task.Spec{Policy: allow("agent", "      - {host: db.test, protocol: postgres, credential: k}\n")}
	for ceiling, ok := range map[string]bool{
		"{network: {allow: [{host: db.test, protocol: postgres}]}}": true,
		"{network: {allow: [{host: db.test, ports: [5432]}]}}":      true,
		"{splice: forbid}": true,
		"{network: {allow: [{host: db.test, protocol: postgres, ports: [5433]}]}}":   false,
		"{network: {allow: [{host: db.test, ports: [5432], protocol: tcp}]}}":        false,
		"{network: {allow: [{host: db.test, protocol: postgres}]}, credentials: []}": false,
	} {
		plan, err := Compile(spec, task.Layers{Operator: "version: 1\nceiling: " + ceiling + "\n"})
		if !ok {
			wantFailure(t, err, task.PolicyCeiling)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", ceiling, err)
			continue
		}
		rule := plan.Rules[task.Agent][0]
		if !slices.Equal(rule.Ports, []uint16{5432}) || rule.Requests() {
			t.Errorf("%+v", rule)
		}
		d := decide.Decide(plan.Grant("t", task.Agent, "s"), decide.Use{Name: "db.test", Port: 5432})
		if d.Verdict != task.Allowed || d.Credential != "k" || d.Inspect {
			t.Errorf("%+v", d)
		}
	}
}

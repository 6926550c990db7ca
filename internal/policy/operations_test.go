package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// What a rule says of query, headers and body, and what can't match.
func TestOperations(t *testing.T) {
	for rule, want := range map[string]string{
		"{host: a.test, query: []}":                                                 "query: is empty",
		"{host: a.test, query: [{name: a}]}":                                        "query[0]: needs name and exactly one of exact, prefix, re2, absent: true",
		"{host: a.test, query: [{exact: a}]}":                                       "query[0]: \"\" is not a name",
		"{host: a.test, query: [{name: a, exact: b, prefix: b}]}":                   "exactly one of",
		"{host: a.test, query: [{name: a, absent: false}]}":                         "query[0].absent: must be true",
		"{host: a.test, query: [{name: a, re2: '('}]}":                              "is not an RE2 expression",
		"{host: a.test, query: [{name: a, exact: b}, {name: a, exact: c}]}":         "query: can't match",
		"{host: a.test, query: [{name: a, exact: b}, {name: a, absent: true}]}":     "query: can't match",
		"{host: a.test, headers: [{name: Host, exact: b}]}":                         "named by host",
		"{host: a.test, headers: [{name: Authorization, exact: 'Bearer x'}]}":       "a policy holds none",
		"{host: a.test, headers: [{name: X-A, prefix: a}, {name: x-a, prefix: b}]}": "headers: can't match",
		"{host: a.test, protocol: tls, query: [{name: a, exact: b}]}":               "query: can't apply with protocol tls",
		"{host: a.test, protocol: tcp, headers: [{name: X-A, exact: b}]}":           "headers: can't apply with protocol tcp",
		"{host: a.test, protocol: tls, body: {models: [a]}}":                        "body: can't apply with protocol tls",
		"{host: a.test, body: {}}":                                                  "body: needs exactly one of",
		"{host: a.test, body: {models: []}}":                                        "models: is empty",
		"{host: a.test, body: {models: ['a b']}}":                                   "is not the name of a model",
		"{host: a.test, body: {models: [a], graphql: {repository: a/b}}}":           "exactly one of",
		"{host: a.test, body: {graphql: {repository: a}}}":                          "is not owner/name",
		"{host: a.test, body: {graphql: {}}}":                                       "repository: is missing",
		"{host: a.test, body: {graphql: {repository: a/b, mutations: true}}}":       "must be a list",
		"{host: a.test, body: {graphql: {repository: a/b, mutations: [A b]}}}":      "is not the name of a mutation",
		"{host: a.test, methods: [GET], body: {models: [a]}}":                       "methods: can't match: what body is about is sent by POST",
		"{host: a.test, credential: k, query: [{name: a, prefix: x}]}\n      - {host: a.test, credential: l, query: [{name: a, exact: xy}]}": "line 6: agent.network.allow[1]: lends \"l\" to requests to which agent.network.allow[0] (line 5) lends \"k\"",
	} {
		_, err := Compile(task.Spec{Policy: allow("agent", "      - "+rule+"\n")}, task.Layers{})
		wantFailure(t, err, task.InputPolicy, "policy line ", want)
	}
	for _, rule := range []string{
		"{host: a.test, credential: k, query: [{name: a, exact: x}]}\n      - {host: a.test, credential: l, query: [{name: a, exact: y}]}",
		"{host: a.test, credential: k, headers: [{name: X-A, exact: x}]}\n      - {host: a.test, credential: l, headers: [{name: X-A, absent: true}]}",
		"{host: a.test, query: [{name: a, re2: 'a|b'}, {name: b, prefix: x}, {name: c, absent: true}], headers: [{name: Accept, exact: ''}]}",
		"{host: a.test, methods: [GET, POST], body: {models: ['claude-*', gpt-5]}}",
		"{host: a.test, methods: [POST], body: {graphql: {repository: a/b, mutations: false}}}",
	} {
		compiled(t, task.Spec{Policy: allow("agent", "      - "+rule+"\n")}, task.Layers{})
	}
}

// A ceiling about query, headers and bodies bounds what lies in it for certain,
// and nothing else.
func TestCeilingsOfOperations(t *testing.T) {
	for _, c := range []struct {
		ceiling, rule string
		ok            bool
	}{
		{"{host: a.test}", "{host: a.test, query: [{name: a, exact: x}]}", true},
		{"{host: a.test, query: [{name: a, exact: x}]}", "{host: a.test}", false},
		{"{host: a.test, query: [{name: a, exact: x}]}", "{host: a.test, query: [{name: a, exact: x}, {name: b, exact: y}]}", true},
		{"{host: a.test, query: [{name: a, exact: x}]}", "{host: a.test, query: [{name: a, exact: y}]}", false},
		{"{host: a.test, query: [{name: a, prefix: x}]}", "{host: a.test, query: [{name: a, exact: xy}]}", true},
		{"{host: a.test, query: [{name: a, re2: 'x+'}]}", "{host: a.test, query: [{name: a, exact: xx}]}", true},
		{"{host: a.test, query: [{name: a, re2: 'x+'}]}", "{host: a.test, query: [{name: a, re2: 'xx'}]}", false}, // nobody can tell in general
		{"{host: a.test, query: [{name: a, absent: true}]}", "{host: a.test, query: [{name: a, absent: true}]}", true},
		{"{host: a.test, headers: [{name: X-A, exact: x}]}", "{host: a.test, query: [{name: X-A, exact: x}]}", false},
		{"{host: a.test, body: {models: ['a*']}}", "{host: a.test, body: {models: [ab, 'ac*']}}", true},
		{"{host: a.test, body: {models: ['a*']}}", "{host: a.test, body: {models: [ab, b]}}", false},
		{"{host: a.test, body: {models: ['a*']}}", "{host: a.test}", false},
		{"{host: a.test, body: {models: ['a*']}}", "{host: a.test, methods: [GET]}", false}, // it would be true, and can't be seen from the lists
		{"{host: a.test, body: {graphql: {repository: a/b, mutations: [x, y]}}}", "{host: a.test, body: {graphql: {repository: A/b, mutations: [x]}}}", true},
		{"{host: a.test, body: {graphql: {repository: a/b}}}", "{host: a.test, body: {graphql: {repository: a/b, mutations: [x]}}}", false},
		{"{host: a.test, body: {graphql: {repository: a/b}}}", "{host: a.test, body: {graphql: {repository: a/c}}}", false},
		{"{host: a.test, body: {graphql: {repository: a/b}}}", "{host: a.test, body: {models: [a]}}", false},
	} {
		_, err := Compile(task.Spec{Policy: allow("agent", "      - "+c.rule+"\n")}, task.Layers{Operator: "version: 1\nceiling: {network: {allow: [" + c.ceiling + "]}}\n"})
		if (err == nil) != c.ok {
			t.Errorf("%s beneath %s: %v", c.rule, c.ceiling, err)
		}
	}
}

// The models that a task may ask follow from the layers, and every rule that
// reaches a vendor of models is about them.
func TestModelsAllowed(t *testing.T) {
	agent := task.AgentSpec{Name: "claude"}
	for name, c := range map[string]struct {
		policy, project, operator string
		agent                     task.AgentSpec
		want                      []string // nil: any
		reason                    task.Reason
		text                      string
	}{
		"nobody says any":         {agent: agent},
		"the task":                {policy: "agent: {models: [claude-haiku-4-5]}", agent: agent, want: []string{"claude-haiku-4-5"}},
		"the operator":            {operator: "ceiling: {models: ['claude-*']}", agent: agent, want: []string{"claude-*"}},
		"the task within":         {policy: "agent: {models: [claude-haiku-4-5]}", operator: "ceiling: {models: ['claude-*']}", agent: agent, want: []string{"claude-haiku-4-5"}},
		"the task outside":        {policy: "agent: {models: [gpt-5]}", operator: "ceiling: {models: ['claude-*']}", agent: agent, reason: task.PolicyCeiling, text: "agent.models: gpt-5 is more than the operator policy allows (ceiling.models, line 2)"},
		"the project binds":       {policy: "agent: {models: ['*']}", project: "agent: {models: ['claude-*']}", agent: agent, reason: task.PolicyCeiling, text: "policy of project web allows (agent.models"},
		"the project's default":   {policy: "agent: {models: [claude-b]}", project: "agent: {models: [claude-a]}\nceiling: {models: ['claude-*']}", agent: agent, want: []string{"claude-b"}},
		"the project outside":     {project: "ceiling: {models: [gpt-5]}", operator: "ceiling: {models: ['claude-*']}", agent: agent, reason: task.PolicyCeiling, text: "policy of project web line 2: ceiling.models"},
		"the request's model":     {policy: "agent: {models: ['claude-haiku-*']}", agent: task.AgentSpec{Name: "claude", Model: "claude-opus-4"}, reason: task.PolicyModel, text: "claude-opus-4 is none"},
		"another request's model": {policy: "agent: {models: ['claude-haiku-*']}", agent: task.AgentSpec{Name: "claude", Model: "claude-haiku-4-5"}, want: []string{"claude-haiku-*"}},
		"spliced":                 {policy: "agent: {models: [m], network: {allow: [{host: api.openai.com, protocol: tls}]}}", agent: task.AgentSpec{Name: "command", Argv: []string{"x"}}, reason: task.PolicyCeiling, text: "is not looked into, and the models of api.openai.com are limited"},
		"a wider body":            {policy: "agent: {models: [m], network: {allow: [{host: api.openai.com, body: {models: [m, n]}}]}}", agent: agent, reason: task.PolicyCeiling, text: "is more than the models"},
		"a server of one's own":   {policy: "agent: {models: [m]}", agent: task.AgentSpec{Name: "claude", ModelURL: "https://models.example.com"}, want: []string{"m"}},
	} {
		spec := task.Spec{Agent: c.agent}
		layers := task.Layers{}
		if c.policy != "" {
			spec.Policy = "version: 1\n" + c.policy + "\n"
		}
		if c.project != "" {
			spec.Project, layers.Project = "web", "version: 1\n"+c.project+"\n"
		}
		if c.operator != "" {
			layers.Operator = "version: 1\n" + c.operator + "\n"
		}
		plan, err := Compile(spec, layers)
		if c.reason != "" {
			wantFailure(t, err, c.reason, c.text)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		rule := plan.Rules[task.Agent][0]
		if c.want == nil {
			if rule.Body != nil {
				t.Errorf("%s: %+v", name, rule)
			}
			continue
		}
		if rule.Body == nil || !slices.Equal(rule.Body.Models, c.want) {
			t.Errorf("%s: %+v, want the models %q", name, rule, c.want)
		}
	}
}

// Every rule in every stage that reaches a vendor is limited, open ones too.
func TestModelsAllowedEverywhere(t *testing.T) {
	policy := "version: 1\nsetup: {network: {allow: [{host: generativelanguage.googleapis.com}, {host: example.com}]}}\nagent: {models: ['claude-*', 'gemini-2.5-flash'], network: {allow: [{host: api.openai.com}]}}\n"
	plan := compiled(t, task.Spec{Policy: policy, Agent: task.AgentSpec{Name: "claude"}}, task.Layers{})
	json := map[string][]string{"Content-Type": {"application/json"}}
	for _, c := range []struct {
		stage             task.StageName
		host, path, model string
		want              task.Reason
	}{
		{task.Agent, "api.anthropic.com", "/v1/messages", "claude-haiku-4-5", ""},
		{task.Agent, "api.anthropic.com", "/v1/messages", "gpt-5", task.PolicyModel},
		{task.Agent, "api.openai.com", "/v1/responses", "gpt-5", task.PolicyModel},
		{task.Agent, "api.openai.com", "/v1/responses", "claude-x", ""},
		{task.Setup, "generativelanguage.googleapis.com", "/v1beta/models/gemini-2.5-pro:generateContent", "", task.PolicyModel},
		{task.Setup, "generativelanguage.googleapis.com", "/v1beta/models/gemini-2.5-flash:generateContent", "", ""},
	} {
		body := "{}"
		if c.model != "" {
			body = `{"model":"` + c.model + `"}`
		}
		grant, use := plan.Grant("", c.stage, ""), decide.Use{Name: c.host, Port: 443}
		q := decide.Request{Method: "POST", Path: c.path, Header: json}
		if d := decide.DecideRequest(grant, use, q); d.Verdict != task.Denied || !d.Body {
			t.Errorf("%s %s before its body was read: %+v", c.host, c.path, d)
		}
		q.Body = &decide.Body{Bytes: []byte(body)}
		if d := decide.DecideRequest(grant, use, q); d.Reason != c.want || (d.Verdict == task.Allowed) != (c.want == "") {
			t.Errorf("%s %s %s: %+v, want %q", c.host, c.path, c.model, d, c.want)
		}
		q.Body = &decide.Body{Unread: true}
		if d := decide.DecideRequest(grant, use, q); d.Reason != task.PolicyModel {
			t.Errorf("%s %s, too long: %+v", c.host, c.path, d)
		}
	}
	if d := decide.Decide(plan.Grant("", task.Setup, ""), decide.Use{Name: "example.com", Port: 443}); d.Inspect {
		t.Errorf("a host that has nothing to do with models is looked into: %+v", d)
	}
	// A repository's wish fails no task.
	plan = compiled(t, task.Spec{Policy: "version: 1\nagent: {models: [m]}\n"}, task.Layers{
		Operator:   "version: 1\nrepository: {commands: true, network: [{host: api.openai.com}]}\n",
		Repository: "version: 1\nagent: {name: loop, model: other, network: {allow: [{host: api.openai.com, protocol: tls}]}}\n",
	})
	if plan.Repository.Agent.Model != "" || !strings.Contains(strings.Join(plan.Narrowed, "\n"), "none of the models") {
		t.Errorf("the repository's model: %+v, %q", plan.Repository, plan.Narrowed)
	}
}

func TestOperationExamples(t *testing.T) {
	policy := `version: 1
agent:
  network:
    allow:
      - host: api.test
        paths: [/search]
        query: [{name: q, prefix: "is:open"}]
        headers: [{name: Accept, exact: application/json}]
      - host: api.test
        paths: [/graphql]
        body: {graphql: {repository: octo/hello}}
      - {host: api.test, paths: [/v1/**], body: {models: ["good-*"]}}
examples:
  - {stage: agent, host: api.test, path: /search, query: "q=is:open%20x", headers: {accept: application/json}, expect: allowed}
  - {stage: agent, host: api.test, path: /search, query: "q=is:open+x", headers: {accept: application/json}, expect: denied}
  - {stage: agent, host: api.test, path: /search, query: "q=is:open", expect: denied, reason: policy.denied}
  - {stage: agent, host: api.test, method: POST, path: /graphql, body: '{"query":"{ repository(owner: \"octo\", name: \"hello\") { id } }"}', expect: allowed}
  - {stage: agent, host: api.test, method: POST, path: /graphql, body: '{"query":"{ viewer { login } }"}', expect: denied}
  - {stage: agent, host: api.test, method: POST, path: /v1/messages, body: '{"model":"good-1"}', expect: allowed}
  - {stage: agent, host: api.test, method: POST, path: /v1/messages, body: '{"model":"bad-1"}', expect: denied, reason: policy.model}
  - {stage: agent, host: api.test, method: POST, path: /v1/messages, headers: {Content-Type: text/plain}, body: '{"model":"good-1"}', expect: denied, reason: policy.model}
`
	checked, err := Check(task.Spec{Policy: policy}, task.Layers{})
	if err != nil || len(checked) != 8 {
		t.Fatal(len(checked), err)
	}
	for _, c := range checked {
		if !c.Passed {
			t.Errorf("line %d: %s: %s", c.Line, c.Text, c.Why)
		}
	}
	_, lines, err := Explain(task.Spec{Policy: policy}, task.Layers{}, task.Agent)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, l := range lines {
		text += l.Text + "\n"
	}
	for _, want := range []string{`query q="is:open"… headers Accept="application/json"`, "body GraphQL of octo/hello", "body models good-*"} {
		if !strings.Contains(text, want) {
			t.Errorf("the explanation lacks %q: %s", want, text)
		}
	}
}

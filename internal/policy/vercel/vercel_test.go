package vercel_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cofferdam/cofferdam/internal/policy"
	"github.com/cofferdam/cofferdam/internal/task"
)

// What their policies come to, in both stages alike.
func TestTakenOver(t *testing.T) {
	p := []uint16{443}
	for name, c := range map[string]struct {
		text string
		want []task.Rule
	}{
		"nothing":               {`deny-all`, nil},
		"nothing, as JSON":      {`"deny-all"`, nil},
		"nothing, in a field":   {`{"networkPolicy": "deny-all"}`, nil},
		"an empty object":       {`{"form": "vercel"}`, nil},
		"domains":               {`{"allow": ["github.com", "*.vercel.com"]}`, []task.Rule{{Host: "github.com", Ports: p}, {Host: "**.vercel.com", Ports: p}}},
		"YAML":                  {"form: vercel\nallow:\n  - github.com\n", []task.Rule{{Host: "github.com", Ports: p}}},
		"with tabs":             {"{\n\t\"allow\": [\n\t\t\"github.com\"\n\t]\n}\n", []task.Rule{{Host: "github.com", Ports: p}}},
		"domains without rules": {`{"allow": {"github.com": [], "*.npmjs.org": []}}`, []task.Rule{{Host: "github.com", Ports: p}, {Host: "**.npmjs.org", Ports: p}}},
		"a credential":          {`{"allow": {"api.github.com": [{"transform": [{"headers": {"authorization": "Bearer credential:github"}}]}]}}`, []task.Rule{{Host: "api.github.com", Ports: p, Credential: "github"}}},
		"what matches alone": {
			`{"allow": {"ai-gateway.vercel.sh": [{"match": {"method": ["POST"], "path": {"startsWith": "/v1/"}, "headers": [{"key": {"exact": "x-team"}, "value": {"exact": "a"}}], "queryString": [{"key": {"exact": "beta"}}]}, "transform": [{"headers": {"authorization": "credential:gateway"}}]}]}}`,
			[]task.Rule{{
				Host: "ai-gateway.vercel.sh", Ports: p, Methods: []string{"POST"}, Paths: []string{"/v1/**"}, Credential: "gateway",
				Headers: []task.Match{{Name: "x-team", Kind: "exact", Value: "a"}}, Query: []task.Match{{Name: "beta", Kind: "re2", Value: ".*"}},
			}},
		},
		"a prefix within a segment": {`{"allow": {"a.example.com": [{"match": {"path": {"startsWith": "/v1"}}}]}}`, []task.Rule{{Host: "a.example.com", Ports: p, Paths: []string{"/v1", "/v1/**"}}}},
		"any path":                  {`{"allow": {"a.example.com": [{"match": {"path": {"startsWith": "/"}}}]}}`, []task.Rule{{Host: "a.example.com", Ports: p, Paths: []string{"/**"}}}},
		"two rules":                 {`{"allow": {"a.example.com": [{"match": {"path": {"exact": "/a"}}}, {"match": {"method": ["GET"]}}]}}`, []task.Rule{{Host: "a.example.com", Ports: p, Paths: []string{"/a"}}, {Host: "a.example.com", Ports: p, Methods: []string{"GET"}}}},
		"one address":               {`{"subnets": {"allow": ["192.0.2.7/32", "2001:db8::1"]}}`, []task.Rule{{Host: "192.0.2.7", Ports: p}, {Host: "2001:db8::1", Ports: p}}},
		"private ranges denied":     {`{"allow": ["github.com"], "subnets": {"deny": ["10.0.0.0/8", "169.254.169.254", "192.168.1.0/24"]}}`, []task.Rule{{Host: "github.com", Ports: p}}},
		"as their API has it":       {`{"mode": "custom", "allowedDomains": ["github.com"], "allowedCIDRs": ["192.0.2.7/32"], "deniedCIDRs": ["10.0.0.0/8"]}`, []task.Rule{{Host: "github.com", Ports: p}, {Host: "192.0.2.7", Ports: p}}},
	} {
		plan, err := policy.Compile(task.Spec{Policy: c.text}, task.Layers{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, stage := range []task.StageName{task.Setup, task.Agent} {
			got := plan.Rules[stage]
			for i := range got {
				got[i].ID, got[i].Layer = "", ""
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s, %s: %s", name, stage, diff)
			}
		}
		if len(plan.Rules[task.Verify])+len(plan.Rules[task.Checkout]) > 0 {
			t.Errorf("%s: other stages reach %v", name, plan.Rules)
		}
	}
}

// What is refused, with the line and what to write instead.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`allow-all`:                         "allow-all opens everything, which no policy does here; name the hosts",
		`{"networkPolicy": "allow-all"}`:    "networkPolicy: allow-all opens everything",
		`{"mode": "allow-all"}`:             "mode: allow-all opens everything",
		`{"allow": ["*"]}`:                  "allow[0]: \"*\" opens everything",
		`{"allow": {"*": []}}`:              "allow.*: \"*\" opens everything",
		`{"allow": ["www.*.com"]}`:          "has a star that is not the first label; name each host",
		`{"allow": ["*.com"]}`:              "anybody can register beneath com",
		`{"allow": ["https://github.com"]}`: "is not a host",
		`{"allow": [1]}`:                    "is not a host name",
		"{\"allow\": {\n\"a.example.com\": [{\"transform\": [{\"headers\": {\n\"authorization\": \"Bearer sk-secret-0\"}}]}]}}":  "line 3: allow.a.example.com[0].transform[0].headers.authorization: sets a value of its own, and a policy holds no secrets: keep it with `cofferdam credential add",
		`{"allow": {"a.example.com": [{"transform": [{"headers": {"x-a": "credential:a", "x-b": "credential:b"}}]}]}}`:           "one rule lends one credential; it lends \"a\" already",
		`{"allow": {"a.example.com": [{"forwardURL": "https://proxy.example.com"}]}}`:                                            "forwardURL: requests go where they are addressed to",
		`{"allow": {"a.example.com": [{"match": {"path": {"regex": "/v[0-9]+"}}}]}}`:                                             "paths are not matched by expressions",
		`{"allow": {"a.example.com": [{"match": {"path": {}}}]}}`:                                                                "path: needs exact, startsWith or regex",
		`{"allow": {"a.example.com": [{"match": {"queryString": [{"key": {"regex": "a.*"}}]}}]}}`:                                "a name is matched exactly",
		`{"allow": {"a.example.com": [{"match": {"method": ["get"]}}]}}`:                                                         "\"get\" is not a method",
		`{"allow": {"a.example.com": [{"match": {"body": {}}}]}}`:                                                                "match.body: is not known of Vercel's policies",
		`{"allow": {"a.example.com": [{"match": {"headers": [{"key": {"exact": "authorization"}, "value": {"exact": "x"}}]}}]}}`: "a policy holds none",
		`{"allow": {"a.example.com": {}}}`:                                                                                       "must be a list of rules",
		`{"subnets": {"allow": ["10.0.0.0/8"]}}`:                                                                                 "subnets.allow[0]: 10.0.0.0/8 opens a range of addresses, which no policy does here; name each host. Private ones are opened by the machine's owner",
		`{"subnets": {"allow": ["0.0.0.0/0"]}}`:                                                                                  "opens a range of addresses",
		`{"allow": ["a.example.com"], "subnets": {"deny": ["8.8.8.0/24"]}}`:                                                      "is public",
		`{"subnets": {"deny": ["0.0.0.0/0"]}}`:                                                                                   "is public",
		`{"subnets": {"deny": ["10.0.0.0/7"]}}`:                                                                                  "is public",
		`{"allow": ["a.example.com"], "bypass": true}`:                                                                           "bypass: is not known",
		`{"form": "other", "allow": []}`:                                                                                         "is not a form that is known",
		`{"allow": ["a.example.com"], "version": 1}`:                                                                             "allow: unknown field", // ours has none
	} {
		_, err := policy.Compile(task.Spec{Policy: text}, task.Layers{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "sk-secret-0") {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
	// A private address is named and stays closed: only the operator opens it.
	plan, err := policy.Compile(task.Spec{Policy: `{"subnets": {"allow": ["10.0.0.7/32"]}}`}, task.Layers{})
	if err != nil || plan.Rules[task.Agent][0].Private {
		t.Errorf("%+v, %v", plan.Rules, err)
	}
	plan, err = policy.Compile(task.Spec{Policy: `{"subnets": {"allow": ["10.0.0.7/32"]}}`}, task.Layers{Operator: "version: 1\nprivate: [{host: 10.0.0.7}]\n"})
	if err != nil || !plan.Rules[task.Agent][0].Private {
		t.Errorf("%+v, %v", plan.Rules, err)
	}
}

func TestExplained(t *testing.T) {
	_, lines, err := policy.Explain(task.Spec{Policy: "{\"allow\": [\n\"github.com\"]}"}, task.Layers{}, task.Agent)
	if err != nil {
		t.Fatal(err)
	}
	form, rule := false, false
	for _, l := range lines {
		form = form || l.Field == "form" && l.Text == "vercel"
		rule = rule || strings.HasPrefix(l.Text, "allow github.com:443") && l.Line == 2
	}
	if !form || !rule {
		t.Errorf("%+v", lines)
	}
}

// Whatever a document is, it is refused with words, or comes to rules that are
// bound to a host and to port 443.
func FuzzVercel(f *testing.F) {
	for _, text := range []string{
		`deny-all`, `{"allow": ["github.com", "*.x.example.com"]}`, `{"allow": {"a.example.com": [{"match": {"path": {"startsWith": "/v1"}}, "transform": [{"headers": {"a": "credential:k"}}]}]}}`,
		`{"subnets": {"allow": ["10.0.0.0/8"], "deny": ["10.0.0.0/8"]}}`, `{"mode": "custom", "allowedDomains": ["a.test"]}`, `{"allow": {"*": [{"forwardURL": "x"}]}}`, `form: vercel`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var object map[string]any
		if json.Unmarshal([]byte(text), &object) == nil && object["version"] != nil {
			return // not theirs
		}
		plan, err := policy.Compile(task.Spec{Policy: text}, task.Layers{})
		if err != nil {
			return
		}
		for stage, rules := range plan.Rules {
			for _, r := range rules {
				if object != nil && (r.Host == "" || strings.HasSuffix(r.Host, "*") || len(r.Ports) != 1 || r.Private) {
					t.Fatalf("%s: %+v", stage, r)
				}
			}
		}
	})
}

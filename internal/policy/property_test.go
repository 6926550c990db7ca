package policy

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The words of generated policies: few, so that rules meet.
func someHost() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"a.example.com", "b.example.com", "c.b.example.com", "'*.example.com'", "'**.example.com'", "'*.b.example.com'", "example.com", "192.0.2.7"})
}

func someRule(t *rapid.T) string {
	parts := []string{"host: " + someHost().Draw(t, "host")}
	if rapid.Bool().Draw(t, "ports") {
		parts = append(parts, rapid.SampledFrom([]string{"ports: [443]", "ports: [80]", "ports: [443, 80]"}).Draw(t, "portList"))
	}
	if rapid.IntRange(0, 3).Draw(t, "matchers") == 0 {
		parts = append(parts, rapid.SampledFrom([]string{
			"query: [{name: a, exact: x}]", "query: [{name: a, prefix: x}]", "query: [{name: a, re2: 'x|y'}]", "query: [{name: a, absent: true}, {name: b, exact: y}]",
			"headers: [{name: X-A, exact: x}]", "headers: [{name: X-A, absent: true}]", "query: [{name: a, exact: x}], headers: [{name: X-A, prefix: x}]",
			"body: {models: [x]}", "body: {models: ['x*', y]}", "body: {graphql: {repository: o/r}}", "body: {graphql: {repository: o/r, mutations: [addComment]}}",
		}).Draw(t, "matcher"))
	}
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		parts = append(parts, "methods: "+rapid.SampledFrom([]string{"[GET]", "[GET, POST]"}).Draw(t, "methods"))
	case 1:
		parts = append(parts, "paths: "+rapid.SampledFrom([]string{"[/x]", "['/x/**']", "['/*/y', /x/y]", "['/**']"}).Draw(t, "paths"))
	case 2:
		parts = append(parts, "protocol: "+rapid.SampledFrom([]string{"http", "tls", "tcp"}).Draw(t, "protocol"))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func someRules(t *rapid.T, label string) string {
	var rules []string
	for range rapid.IntRange(0, 3).Draw(t, label) {
		rules = append(rules, someRule(t))
	}
	return "[" + strings.Join(rules, ", ") + "]"
}

func uses() []decide.Use {
	var all []decide.Use
	for _, port := range []uint16{80, 443} {
		for _, name := range []string{"a.example.com", "b.example.com", "c.b.example.com", "d.c.b.example.com", "example.com", "x.test"} {
			all = append(all, decide.Use{Name: name, Port: port})
		}
		all = append(all, decide.Use{Address: "192.0.2.7", Port: port})
	}
	return all
}

func requests() []decide.Request {
	var all []decide.Request
	for _, m := range []string{"GET", "POST", "PUT"} {
		for _, p := range []string{"/", "/x", "/x/y", "/z/y", "/x/../y", "/x/"} {
			all = append(all, decide.Request{Method: m, Path: p, Body: &decide.Body{}})
		}
	}
	plain := map[string][]string{"Content-Type": {"application/json"}}
	for _, q := range []string{"a=x", "a=xy", "b=y", "a=y&b=y", "a=x&a=y"} {
		for _, h := range []map[string][]string{plain, {"X-A": {"x"}}, {"X-A": {"xy"}}} {
			all = append(all, decide.Request{Method: "GET", Path: "/x", Query: q, Header: h, Body: &decide.Body{}})
		}
	}
	for _, b := range []string{
		`{"model":"x"}`, `{"model":"xy"}`, `{"model":"z"}`, `{"query":"{ repository(owner: \"o\", name: \"r\") { id } }"}`, `{"query":"{ viewer { id } }"}`,
		`{"query":"mutation { addComment(input: {}) { clientMutationId } }"}`,
	} {
		all = append(all, decide.Request{Method: "POST", Path: "/x", Header: plain, Body: &decide.Body{Bytes: []byte(b)}})
	}
	return append(all, decide.Request{Method: "POST", Path: "/x", Header: plain}, decide.Request{Method: "POST", Path: "/x", Header: plain, Body: &decide.Body{Unread: true}})
}

// narrower fails when something may be done under a that may not be under b.
func narrower(t *rapid.T, what string, a, b Plan) {
	for _, stage := range stages() {
		ga, gb := a.Grant("", stage, ""), b.Grant("", stage, "")
		for _, use := range uses() {
			da, db := decide.Decide(ga, use), decide.Decide(gb, use)
			if da.Verdict != task.Allowed {
				continue
			}
			if db.Verdict != task.Allowed {
				t.Fatalf("%s: %s %+v was %+v and is %+v", what, stage, use, db, da)
			}
			for _, p := range []string{task.ProtocolTLS, task.ProtocolTCP, task.ProtocolHTTP} {
				if speaks(da, p) && !speaks(db, p) {
					t.Fatalf("%s: %s %+v speaks %s", what, stage, use, p)
				}
			}
			for _, q := range requests() {
				// A rule about paths refuses what has two meanings under the others too:
				// without it, those go by their own words again.
				if !match.CleanPath(q.Path) {
					continue
				}
				if !da.Inspect || !db.Inspect || decide.DecideRequest(ga, use, q).Verdict != task.Allowed {
					continue
				}
				// One that waits for the body is no answer yet: the same request stands here
				// with bodies, and with one that could not be read.
				if before := decide.DecideRequest(gb, use, q); before.Verdict != task.Allowed && !(before.Body && q.Body == nil) {
					t.Fatalf("%s: %s %+v %+v is allowed now", what, stage, use, q)
				}
			}
		}
	}
	for _, l := range limitNames() {
		if *l.of(&a.Limits) > *l.of(&b.Limits) {
			t.Fatalf("%s: limit %s rose from %d to %d", what, l.name, *l.of(&b.Limits), *l.of(&a.Limits))
		}
	}
}

func speaks(d task.Decision, protocol string) bool {
	return len(d.Protocols) == 0 || slices.Contains(d.Protocols, protocol)
}

// A layer that is added above or below either refuses the task or narrows it.
func TestALayerNeverWidens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stage := rapid.SampledFrom([]string{"setup", "agent"}).Draw(t, "stage")
		policy := "version: 1\n" + stage + ": {network: {allow: " + someRules(t, "task") + "}}\n"
		ceiling := "version: 1\nceiling: {network: {allow: " + someRules(t, "ceiling") + "}, limits: {memory: 1GiB, names: 5}"
		if rapid.Bool().Draw(t, "splice") {
			ceiling += ", splice: forbid"
		}
		ceiling += "}\n"
		project := "version: 1\n" + stage + ": {network: {allow: " + someRules(t, "project") + "}}\nlimits: {pids: 99}\n"
		repository := "version: 1\n" + stage + ": {network: {allow: " + someRules(t, "repository") + "}}\n"
		offers := someRules(t, "asks")
		asks := "repository: {network: " + offers + "}\n"

		bare, err := Compile(task.Spec{Policy: policy}, task.Layers{})
		if err != nil {
			return // the rules clash
		}
		for what, layers := range map[string]task.Layers{
			"an operator's ceiling":      {Operator: ceiling},
			"a project":                  {Project: project},
			"a project beneath":          {Operator: ceiling, Project: project},
			"a repository":               {Repository: repository},
			"a repository that may ask":  {Repository: repository, Operator: "version: 1\n" + asks},
			"a repository and a project": {Repository: repository, Project: project + asks},
		} {
			if plan, err := Compile(task.Spec{Policy: policy}, layers); err == nil {
				narrower(t, what, plan, bare)
			}
		}
		// A task's own policy beneath a project narrows the project.
		if above, err := Compile(task.Spec{}, task.Layers{Project: project}); err == nil {
			if plan, err := Compile(task.Spec{Policy: policy}, task.Layers{Project: project}); err == nil {
				narrower(t, "a task's policy", plan, above)
			}
		}
		// What a repository is given lies in what it may ask for.
		offered, err := Compile(task.Spec{Policy: "version: 1\n" + stage + ": {network: {allow: " + offers + "}}\n"}, task.Layers{})
		if err != nil {
			return
		}
		if plan, err := Compile(task.Spec{}, task.Layers{Repository: repository, Operator: "version: 1\n" + asks}); err == nil {
			narrower(t, "what a repository is given", plan, offered)
		}
	})
}

// The index says what the rules say.
func TestIndexAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan, err := Compile(task.Spec{Policy: "version: 1\nagent: {network: {allow: " + someRules(t, "rules") + "}}\n"}, task.Layers{})
		if err != nil {
			return
		}
		grant := plan.Grant("", task.Agent, "")
		index := decide.NewIndex(grant)
		for _, use := range uses() {
			if diff := cmp.Diff(decide.Decide(grant, use), index.Decide(use)); diff != "" {
				t.Fatalf("%+v: %s", use, diff)
			}
			for _, q := range requests() {
				if diff := cmp.Diff(decide.DecideRequest(grant, use, q), index.DecideRequest(use, q)); diff != "" {
					t.Fatalf("%+v %+v: %s", use, q, diff)
				}
			}
		}
	})
}

// Whatever a request is made of, a rule that allows it compared what has one
// meaning.
func FuzzHTTPRules(f *testing.F) {
	for _, q := range []string{"service=git-upload-pack", "service=git-upload-pack&service=x", "service=git-receive-pack", "SERVICE=git-upload-pack", "service=git%2Dupload-pack;x"} {
		f.Add("GET", "/o/r/info/refs", q, "Accept", "x", `{"model":"good"}`)
	}
	f.Add("POST", "/v1/messages", "", "Content-Type", "application/json", `{"model":"good","model":"bad"}`)
	plan, err := Compile(task.Spec{Policy: `version: 1
agent:
  network:
    allow:
      - {host: a.test, methods: [GET], paths: [/o/r/info/refs], query: [{name: service, exact: git-upload-pack}], headers: [{name: X-Admin, absent: true}]}
      - {host: a.test, methods: [POST], paths: [/v1/messages], body: {models: [good]}, credential: k}
      - {host: a.test, paths: [/graphql], body: {graphql: {repository: o/r}}}
`}, task.Layers{})
	if err != nil {
		f.Fatal(err)
	}
	index := decide.NewIndex(plan.Grant("", task.Agent, ""))
	f.Fuzz(func(t *testing.T, method, path, query, name, value, body string) {
		q := decide.Request{Method: method, Path: path, Query: query, Header: map[string][]string{name: {value}, "Content-Type": {"application/json"}}}
		use := decide.Use{Name: "a.test", Port: 443}
		if d := index.DecideRequest(use, q); d.Body && (d.Verdict == task.Allowed || d.Credential != "") {
			t.Fatalf("it is allowed before its body was read: %+v", d)
		}
		q.Body = &decide.Body{Bytes: []byte(body)}
		d := index.DecideRequest(use, q)
		if d.Body {
			t.Fatalf("the body is asked for again: %+v", d)
		}
		if d.Verdict != task.Allowed {
			return
		}
		switch d.Rule {
		case "agent.network.allow[0]":
			if v, err := url.ParseQuery(query); err != nil || len(v["service"]) != 1 || v.Get("service") != "git-upload-pack" || strings.EqualFold(name, "x-admin") {
				t.Fatalf("%q with %q is allowed", query, name)
			}
		case "agent.network.allow[1]":
			var lenient struct{ Model string }
			if err := json.Unmarshal([]byte(body), &lenient); err != nil || lenient.Model != "good" || d.Credential != "k" {
				t.Fatalf("%q is allowed: %+v", body, d)
			}
		case "agent.network.allow[2]":
			if strings.Contains(body, "viewer {") {
				t.Fatalf("%q is allowed", body)
			}
		}
	})
}

// Whatever bytes a path has, a rule about paths that allows it compared a path
// that has one meaning.
func FuzzDecideRequest(f *testing.F) {
	for _, p := range []string{"/pub/x", "/pub/../x", "/pub/%2e%2e/x", "//", "/pub/%252f", "*", "/pub/..;/x"} {
		f.Add("GET", p)
	}
	grant := task.Grant{Rules: []task.Rule{{ID: "r", Host: "a.test", Ports: []uint16{443}, Methods: []string{"GET"}, Paths: []string{"/pub/**", "/*/one"}, Credential: "k"}}}
	f.Fuzz(func(t *testing.T, method, path string) {
		d := decide.DecideRequest(grant, decide.Use{Name: "a.test", Port: 443}, decide.Request{Method: method, Path: path})
		if d.Verdict != task.Allowed {
			if d.Credential != "" || d.Reason == "" {
				t.Fatalf("a denial of %q %q is %+v", method, path, d)
			}
			return
		}
		if method != "GET" || !strings.HasPrefix(path, "/pub/") && strings.Count(path, "/") != 2 {
			t.Fatalf("%q %q is allowed", method, path)
		}
		lower := strings.ToLower(path)
		for _, bad := range []string{"//", "/../", "/./", "%2f", "%5c", "%2e", "%00", "\\", "?", "#", " "} {
			if strings.Contains(lower, bad) || strings.HasSuffix(path, "/..") {
				t.Fatalf("%q is allowed and has %q", path, bad)
			}
		}
	})
}

// A file of any layer parses or is refused with its place; what parses means the
// same the second time.
func FuzzLayers(f *testing.F) {
	f.Add(good, projectText, repositoryText, "version: 1\nceiling: {splice: forbid}\n")
	f.Add("", "version: 1\nceiling: {network: {allow: []}}\n", "version: 1\nsetup: {command: x}\n", "version: 1\nrepository: {commands: true}\n")
	f.Fuzz(func(t *testing.T, policy, project, repository, operator string) {
		spec, layers := task.Spec{Policy: policy, Project: "web"}, task.Layers{Operator: operator, Project: project, Repository: repository}
		plan, err := Compile(spec, layers)
		if err != nil {
			if f, ok := err.(*task.Failure); !ok || f.Text == "" {
				t.Fatalf("an error without words: %v", err)
			}
			return
		}
		again, err := Compile(spec, layers)
		if err != nil || again.Digest != plan.Digest {
			t.Fatalf("the second time it is %v, %v", again, err)
		}
		if _, lines, err := Explain(spec, layers, ""); err != nil || len(lines) == 0 {
			t.Fatalf("it can't be explained: %v", err)
		}
		for stage, rules := range plan.Rules {
			for _, r := range rules {
				if len(r.Ports) == 0 || r.Layer == "" || r.Protocol == task.ProtocolTLS && r.Requests() {
					t.Fatalf("%s has the rule %+v", stage, r)
				}
			}
		}
	})
}

// BenchmarkDecide is the bar: 10,000 rules, at most 10 µs a decision.
func BenchmarkDecide(b *testing.B) {
	var grant task.Grant
	for i := range 10_000 {
		r := task.Rule{ID: fmt.Sprint(i), Host: fmt.Sprintf("h%d.example.com", i), Ports: []uint16{443}, Methods: []string{"GET"}, Paths: []string{"/v1/**"}}
		switch i % 10 {
		case 0:
			r.Host = "*." + r.Host
		case 1:
			r.Host = "**." + r.Host
			r.Query = []task.Match{{Name: "a", Kind: task.MatchRE2, Value: "[a-z]+[0-9]*"}, {Name: "b", Kind: task.MatchAbsent}}
			r.Headers = []task.Match{{Name: "Accept", Kind: task.MatchPrefix, Value: "application/"}}
		}
		grant.Rules = append(grant.Rules, r)
	}
	index := decide.NewIndex(grant)
	use, q := decide.Use{Name: "a.b.h9991.example.com", Port: 443}, decide.Request{Method: "GET", Path: "/v1/a/b/c", Query: "a=abc12&c=3", Header: map[string][]string{"Accept": {"application/json"}, "User-Agent": {"x"}, "Content-Type": {"y"}}}
	b.Run("connection", func(b *testing.B) {
		for b.Loop() {
			if index.Decide(use).Verdict != task.Allowed {
				b.Fatal("denied")
			}
		}
	})
	b.Run("request", func(b *testing.B) {
		for b.Loop() {
			if index.DecideRequest(use, q).Verdict != task.Allowed {
				b.Fatal("denied")
			}
		}
	})
	b.Run("without index", func(b *testing.B) {
		for b.Loop() {
			if decide.Decide(grant, use).Verdict != task.Allowed {
				b.Fatal("denied")
			}
		}
	})
}

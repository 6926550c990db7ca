package presets_test

import (
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/policy"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/policy/presets"
	"github.com/cofferdam/cofferdam/internal/task"
)

// policyOf is a policy with the preset alone.
func policyOf(name string, with map[string]string) string {
	line := "preset: " + name
	for k, v := range with {
		line += ", " + k + ": " + strconv.Quote(v)
	}
	return "version: 1\nagent: {network: {allow: [{" + line + "}]}}\n"
}

// asked is a request as a gateway sees it, from "METHOD URL" as it is sent.
func asked(t *testing.T, r presets.Request) (decide.Use, decide.Request) {
	t.Helper()
	method, url, ok := strings.Cut(r.Line, " ")
	scheme, rest, ok2 := strings.Cut(url, "://")
	if !ok || !ok2 {
		t.Fatalf("%q is no request", r.Line)
	}
	host, path := rest, "/"
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	path, query, _ := strings.Cut(path, "?")
	use := decide.Use{Name: host, Port: map[string]uint16{"http": 80, "https": 443}[scheme]}
	if name, port, ok := strings.Cut(host, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		use.Name, use.Port = name, uint16(n)
	}
	if _, err := netip.ParseAddr(use.Name); err == nil {
		use.Name, use.Address = "", use.Name
	}
	q := decide.Request{Method: method, Path: path, Query: query, Header: map[string][]string{"User-Agent": {"test"}}, Body: &decide.Body{Bytes: []byte(r.Body)}}
	if r.Body != "" {
		q.Header["Content-Type"] = []string{"application/json"}
	}
	for name, v := range r.Headers {
		q.Header[textproto.CanonicalMIMEHeaderKey(name)] = []string{v}
	}
	return use, q
}

// Every preset's own examples hold, decided as a gateway decides.
func TestExamples(t *testing.T) {
	names := presets.Names()
	for _, want := range []string{"npm", "pypi", "crates", "go", "maven", "debian", "rubygems", "git-fetch", "git-push", "github-rest", "github-graphql", "container-pull"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no preset %s", want)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			p, err := presets.Named(name)
			if err != nil {
				t.Fatal(err)
			}
			if p.Name != name || len(p.About) < 20 || len(p.Examples) == 0 || len(p.Rules) == 0 {
				t.Errorf("the file lacks something: %q %q", p.Name, p.About)
			}
			for _, e := range p.Examples {
				plan, err := policy.Compile(task.Spec{Policy: policyOf(name, e.With)}, task.Layers{})
				if err != nil {
					t.Fatalf("with %v: %v", e.With, err)
				}
				grant := plan.Grant("", task.Agent, "")
				index := decide.NewIndex(grant)
				for _, r := range grant.Rules {
					if !r.Requests() || len(r.Methods) == 0 {
						t.Errorf("a rule is not about requests, or about all methods: %+v", r)
					}
				}
				if len(e.Allowed) == 0 || len(e.Refused) < 2 {
					t.Errorf("with %v: too few examples", e.With)
				}
				for _, r := range e.Allowed {
					use, q := asked(t, r)
					c, d := index.Decide(use), index.DecideRequest(use, q)
					if !c.Inspect || !slices.Equal(c.Protocols, []string{"http"}) || d.Verdict != task.Allowed || d.Credential != credential(d, grant) {
						t.Errorf("with %v: %s %s: %+v, %+v; want allowed", e.With, r.Line, r.Body, c, d)
					}
				}
				for _, r := range e.Refused {
					use, q := asked(t, r)
					if d := index.DecideRequest(use, q); d.Verdict != task.Denied || d.Body {
						t.Errorf("with %v: %s %s: %+v; want refused", e.With, r.Line, r.Body, d)
					}
				}
			}
		})
	}
}

// credential is what the rule of a decision lends.
func credential(d task.Decision, grant task.Grant) string {
	for _, r := range grant.Rules {
		if r.ID == d.Rule {
			return r.Credential
		}
	}
	return ""
}

// What is wrong with parameters is told with the line and the parameter.
func TestParameters(t *testing.T) {
	for text, want := range map[string]string{
		"{preset: nmp}":                                               "agent.network.allow[0].preset: \"nmp\" is not a preset; there are container-pull, crates,",
		"{preset: npm, repository: a/b}":                              "agent.network.allow[0].repository: unknown parameter; preset npm takes credential, host",
		"{preset: pypi, host: a.test}":                                "takes none",
		"{preset: git-fetch}":                                         "agent.network.allow[0].repository: is missing; preset git-fetch needs it",
		"{preset: git-fetch, repository: ../x}":                       "is not a path of a repository",
		"{preset: git-fetch, repository: a/b.git}":                    "leave .git off",
		"{preset: git-fetch, repository: 'a/*'}":                      "is not a path of a repository",
		"{preset: git-fetch, repository: 'a/b?x'}":                    "is not a path of a repository",
		"{preset: git-fetch, repository: [a]}":                        "must be a text",
		"{preset: git-fetch, repository: a/b, repository: a/c}":       "given twice",
		"{preset: git-fetch, repository: a/b, host: '*.example.com'}": "is not a host name",
		"{preset: npm, host: '2130706433'}":                           "is not a host name",
		"{preset: github-rest, repository: a}":                        "write owner/name",
		"{preset: github-rest, repository: a/b, access: all}":         "is not one of read, write",
		"{preset: container-pull, repository: A/b}":                   "is not a path of an image",
		"{preset: npm, credential: 'a b'}":                            "is not a name of a credential",
		"{preset: npm, methods: [PUT]}":                               "must be a text",
	} {
		_, err := policy.Compile(task.Spec{Policy: "version: 1\nagent: {network: {allow: [" + text + "]}}\n"}, task.Layers{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A policy tells what presets come to, and where each rule comes from; what the
// same preset bounds is within it.
func TestLayers(t *testing.T) {
	spec := task.Spec{Policy: "version: 1\nagent:\n  network:\n    allow:\n      - {host: example.com}\n      - {preset: git-fetch, repository: octo/hello, credential: git}\n"}
	_, lines, err := policy.Explain(spec, task.Layers{}, task.Agent)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, l := range lines {
		if strings.HasPrefix(l.Note, "of the preset git-fetch: ") && l.Line == 6 && strings.Contains(l.Text, "/octo/hello.git/") && strings.Contains(l.Text, "credential git") {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d lines tell of the preset: %+v", found, lines)
	}
	for ceiling, ok := range map[string]bool{
		"{preset: git-fetch, repository: octo/hello}": true,
		"{preset: git-push, repository: octo/hello}":  true,
		"{preset: git-fetch, repository: octo/other}": false,
		"{preset: npm}": false,
	} {
		_, err := policy.Compile(task.Spec{Policy: policyOf("git-fetch", map[string]string{"repository": "octo/hello"})}, task.Layers{Operator: "version: 1\nceiling: {network: {allow: [" + ceiling + "]}}\n"})
		if (err == nil) != ok {
			t.Errorf("beneath %s: %v", ceiling, err)
		}
	}
}

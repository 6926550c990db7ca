package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// example is one line of a file that says what the policy must answer.
type example struct {
	line   int
	stage  task.StageName
	use    decide.Use
	method string
	path   string // of a request, or with write of the workspace
	query  string // of a request, without the "?"
	header map[string][]string
	body   *string // nil: none
	proto  string
	write  bool
	expect task.Verdict
	reason task.Reason
}

// Checked is what became of one example.
type Checked struct {
	Line   int
	Text   string // the example in one line
	Expect task.Verdict
	Got    task.Verdict
	Reason task.Reason // of a denial
	Rule   string      // that decided, or for a file what may be done with it; empty: none did
	Passed bool
	Why    string // what is wrong, when not passed
}

// Check compiles the request and runs the examples of its policy file.
func Check(spec task.Spec, layers task.Layers) ([]Checked, error) {
	plan, err := Compile(spec, layers)
	if err != nil {
		return nil, err
	}
	f, err := parseTask(spec.Policy)
	if err != nil {
		return nil, err
	}
	return checkAll(f.examples, plan), nil
}

// CheckProject says whether the text can be a project's layer beneath the
// operator's, and runs the examples in it.
func CheckProject(name, text, operator string) ([]Checked, error) {
	f, err := parseProject(name, text)
	if err != nil {
		return nil, err
	}
	plan, err := Compile(task.Spec{Project: name}, task.Layers{Operator: operator, Project: text})
	if err != nil {
		return nil, err
	}
	return checkAll(f.examples, plan), nil
}

func checkAll(examples []example, plan Plan) []Checked {
	all := make([]Checked, 0, len(examples))
	for _, e := range examples {
		all = append(all, e.check(plan))
	}
	return all
}

func (e example) check(plan Plan) Checked {
	c := Checked{Line: e.line, Text: e.String(), Expect: e.expect}
	if e.write {
		if access := plan.Files.Access(e.path); access == task.AccessWritable {
			c.Got = task.Allowed
		} else {
			c.Reason, c.Rule = task.PolicyFiles, string(access)
		}
	} else {
		d := e.decide(plan.Grant("", e.stage, ""))
		c.Got, c.Reason, c.Rule = d.Verdict, d.Reason, d.Rule
	}
	switch {
	case c.Got != c.Expect:
		c.Why = fmt.Sprintf("is %s, not %s", c.Got, c.Expect)
	case e.reason != "" && e.reason != c.Reason:
		c.Why = fmt.Sprintf("is denied for %s, not for %s", c.Reason, e.reason)
	default:
		c.Passed = true
	}
	return c
}

// decide answers as the gateway would: the connection, and where requests are
// looked at, the request.
func (e example) decide(grant task.Grant) task.Decision {
	d := decide.Decide(grant, e.use)
	if d.Verdict != task.Allowed {
		return d
	}
	if e.proto != "" && len(d.Protocols) > 0 && !slices.Contains(d.Protocols, e.proto) {
		return task.Decision{Verdict: task.Denied, Reason: task.PolicyProtocol}
	}
	if d.Inspect && (e.method != "" || e.path != "" || e.query != "" || e.header != nil || e.body != nil) {
		q := decide.Request{Method: e.method, Path: e.path, Query: e.query, Header: e.header, Body: &decide.Body{}}
		if e.body != nil {
			q.Body.Bytes = []byte(*e.body)
			if q.Header = maps.Clone(e.header); q.Header["Content-Type"] == nil {
				if q.Header == nil {
					q.Header = map[string][]string{}
				}
				q.Header["Content-Type"] = []string{"application/json"}
			}
		}
		if q.Method == "" {
			q.Method = "GET"
		}
		if q.Path == "" {
			q.Path = "/"
		}
		return decide.DecideRequest(grant, e.use, q)
	}
	return d
}

// String is the example in one line.
func (e example) String() string {
	if e.write {
		return "write " + e.path
	}
	words := []string{string(e.stage)}
	for _, w := range []string{e.proto, e.method} {
		if w != "" {
			words = append(words, w)
		}
	}
	host := e.use.Name + e.use.Address
	path := e.path
	if e.query != "" {
		path += "?" + e.query
	}
	words = append(words, fmt.Sprintf("%s:%d%s", host, e.use.Port, path))
	for _, name := range slices.Sorted(maps.Keys(e.header)) {
		words = append(words, name+": "+strings.Join(e.header[name], ", "))
	}
	if e.body != nil {
		words = append(words, brief(*e.body))
	}
	return strings.Join(words, " ")
}

// examples reads a file's list of examples.
func (r *reader) examples(n *yaml.Node, path string) []example {
	var all []example
	r.list(n, path, func(n *yaml.Node, path string) {
		before := r.wrong
		e := r.example(n, path)
		if r.wrong == before {
			all = append(all, e)
		}
	})
	return all
}

func (r *reader) example(n *yaml.Node, path string) example {
	e := example{line: n.Line, use: decide.Use{Port: 443}}
	verdict := func(n *yaml.Node, p string) {
		if r.oneOf(n, p, "allowed", "denied") == "allowed" {
			e.expect = task.Allowed
		}
	}
	if n.Kind == yaml.MappingNode && hasKey(n, "write") {
		e.write = true
		r.fields(n, path, fieldReaders{
			"path":  func(n *yaml.Node, p string) { e.path = r.path(n, p) },
			"write": verdict,
		})
		r.needs(n, path, "path", "write")
		return e
	}
	r.fields(n, path, fieldReaders{
		"stage": func(n *yaml.Node, p string) {
			e.stage = task.StageName(r.oneOf(n, p, "checkout", "setup", "agent", "verify"))
		},
		"host":     func(n *yaml.Node, p string) { r.exampleHost(n, p, &e.use) },
		"port":     func(n *yaml.Node, p string) { e.use.Port = uint16(r.count(n, p, "ports", 1, 65535)) },
		"protocol": func(n *yaml.Node, p string) { e.proto = r.protocol(n, p) },
		"method":   func(n *yaml.Node, p string) { e.method = r.text(n, p, 32) },
		"path":     func(n *yaml.Node, p string) { e.path = r.text(n, p, 1024) },
		"query":    func(n *yaml.Node, p string) { e.query = r.text(n, p, 8192) },
		"headers":  func(n *yaml.Node, p string) { e.header = r.exampleHeaders(n, p) },
		"body":     func(n *yaml.Node, p string) { text := r.text(n, p, 64<<10); e.body = &text },
		"expect":   verdict,
		"reason":   func(n *yaml.Node, p string) { e.reason = task.Reason(r.text(n, p, 64)) },
	})
	r.needs(n, path, "stage", "host", "expect")
	if e.reason != "" && e.expect == task.Allowed {
		r.errorf(n, path, "reason can't hold with expect: allowed; leave it out")
	}
	return e
}

// exampleHost reads what is asked for: one host, no pattern.
func (r *reader) exampleHost(n *yaml.Node, path string, use *decide.Use) {
	if n.Kind != yaml.ScalarNode || strings.Contains(n.Value, "*") {
		r.errorf(n, path, "must be one host, as a program would ask for it")
		return
	}
	if addr, err := netip.ParseAddr(n.Value); err == nil && addr.Zone() == "" {
		use.Address = addr.Unmap().String()
		return
	}
	use.Name = r.host(n, path)
}

// exampleHeaders reads headers by their names.
func (r *reader) exampleHeaders(n *yaml.Node, path string) map[string][]string {
	header := map[string][]string{}
	if n.Kind != yaml.MappingNode {
		r.errorf(n, path, "must be a mapping of names and values")
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := textproto.CanonicalMIMEHeaderKey(n.Content[i].Value)
		header[name] = append(header[name], r.text(n.Content[i+1], join(path, n.Content[i].Value), 1024))
	}
	return header
}

// needs reports fields that are missing.
func (r *reader) needs(n *yaml.Node, path string, fields ...string) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for _, f := range fields {
		if !hasKey(n, f) {
			r.errorf(n, join(path, f), "is missing; an example needs %s", strings.Join(fields, ", "))
		}
	}
}

package policy

import (
	"net/netip"
	"net/textproto"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/policy/example"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Checked is what became of one example.
type Checked = example.Checked

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

func checkAll(examples []example.Example, plan Plan) []Checked {
	all := make([]Checked, 0, len(examples))
	for _, e := range examples {
		if e.Tool != nil {
			all = append(all, e.CheckTool(plan.tool(*e.Tool)))
			continue
		}
		all = append(all, e.Check(plan.Grant("", e.Stage, ""), plan.Files))
	}
	return all
}

// examples reads a file's list of examples.
func (r *reader) examples(n *yaml.Node, path string) []example.Example {
	var all []example.Example
	r.list(n, path, func(n *yaml.Node, path string) {
		before := r.wrong
		e := r.example(n, path)
		if r.wrong == before {
			all = append(all, e)
		}
	})
	return all
}

func (r *reader) example(n *yaml.Node, path string) example.Example {
	e := example.Example{Line: n.Line, Use: decide.Use{Port: 443}}
	verdict := func(n *yaml.Node, p string) {
		if r.oneOf(n, p, "allowed", "denied") == "allowed" {
			e.Expect = task.Allowed
		}
	}
	if n.Kind == yaml.MappingNode && hasKey(n, "write") {
		e.Write = true
		r.fields(n, path, fieldReaders{
			"path":  func(n *yaml.Node, p string) { e.Path = r.path(n, p) },
			"write": verdict,
		})
		r.needs(n, path, "path", "write")
		return e
	}
	if n.Kind == yaml.MappingNode && hasKey(n, "tool") {
		r.toolExample(n, path, &e)
		return e
	}
	r.fields(n, path, fieldReaders{
		"stage": func(n *yaml.Node, p string) {
			e.Stage = task.StageName(r.oneOf(n, p, "checkout", "setup", "agent", "verify"))
		},
		"host":     func(n *yaml.Node, p string) { r.exampleHost(n, p, &e.Use) },
		"port":     func(n *yaml.Node, p string) { e.Use.Port = uint16(r.count(n, p, "ports", 1, 65535)) },
		"protocol": func(n *yaml.Node, p string) { e.Proto = r.protocol(n, p) },
		"method":   func(n *yaml.Node, p string) { e.Method = r.text(n, p, 32) },
		"path":     func(n *yaml.Node, p string) { e.Path = r.text(n, p, 1024) },
		"query":    func(n *yaml.Node, p string) { e.Query = r.text(n, p, 8192) },
		"headers":  func(n *yaml.Node, p string) { e.Header = r.exampleHeaders(n, p) },
		"body":     func(n *yaml.Node, p string) { text := r.text(n, p, 64<<10); e.Body = &text },
		"expect":   verdict,
		"reason":   func(n *yaml.Node, p string) { e.Reason = task.Reason(r.text(n, p, 64)) },
	})
	r.needs(n, path, "stage", "host", "expect")
	if e.Reason != "" && e.Expect == task.Allowed {
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

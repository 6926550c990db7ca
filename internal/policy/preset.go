package policy

import (
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/policy/presets"
)

// preset reads an item of a list of rules that names a preset: what it expands
// to is read as if it stood there.
func (r *reader) preset(n *yaml.Node, path string) []lined {
	name, given, lines := "", map[string]string{}, map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch _, twice := given[key.Value]; {
		case twice || key.Value == "preset" && name != "":
			r.errorf(key, join(path, key.Value), "given twice; remove one")
			return nil
		case value.Kind != yaml.ScalarNode || value.Value == "":
			r.errorf(value, join(path, key.Value), "must be a text")
			return nil
		case key.Value == "preset":
			name = value.Value
		default:
			given[key.Value], lines[key.Value] = value.Value, key
		}
	}
	p, err := presets.Named(name)
	if err != nil {
		r.errorf(n, join(path, "preset"), "%v", err)
		return nil
	}
	nodes, faults := p.Expand(given)
	for _, f := range faults {
		at := lines[f.Parameter]
		if at == nil {
			at = n
		}
		r.errorf(at, join(path, f.Parameter), "%s", f.Text)
	}
	var rules []lined
	for i, node := range nodes {
		stand(node, n.Line)
		if rule, ok := r.rule(node, fmt.Sprintf("%s.%s[%d]", path, name, i)); ok {
			rules = append(rules, lined{Rule: rule, line: n.Line, preset: name})
		}
	}
	return rules
}

// stand says that a node and all beneath it stand on a line.
func stand(n *yaml.Node, line int) {
	n.Line = line
	for _, c := range n.Content {
		stand(c, line)
	}
}

// from says which preset a rule comes from; "" for one that is written out.
func (l lined) from() string {
	if l.preset == "" {
		return ""
	}
	p, err := presets.Named(l.preset)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("of the preset %s: %s", p.Name, p.About)
}

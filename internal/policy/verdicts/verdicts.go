// Package verdicts reads what layers of policy say of the kinds of findings in a
// patch: output.flags in a policy file.
//
// Words. A layer names kinds and what they mean; what it doesn't name stays as it
// was. What a layer names binds those below: they may say something stricter, never
// something looser.
package verdicts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Said is what one file says.
type Said struct {
	Rules task.FlagRules
	Lines map[task.Flag]int
}

// Fault is something wrong in a file.
type Fault func(n *yaml.Node, field, format string, args ...any)

// Parse reads the node of "output".
func Parse(n *yaml.Node, path string, fault Fault) *Said {
	s := &Said{Rules: task.FlagRules{}, Lines: map[task.Flag]int{}}
	mapping(n, path, "flags", fault, func(key, value *yaml.Node, at string) {
		if key.Value != "flags" {
			fault(key, at, "unknown field; known here: flags")
			return
		}
		mapping(value, at, "kinds of findings and allow, approve or refuse", fault, func(key, value *yaml.Node, at string) {
			kind, known := task.FlagKindOf(task.Flag(key.Value))
			switch {
			case !known:
				fault(key, at, "unknown kind; known here: %s", kinds())
			case value.Kind != yaml.ScalarNode || !slices.Contains(task.FlagVerdicts(), value.Value):
				fault(value, at, "%q is not one of %s", value.Value, strings.Join(task.FlagVerdicts(), ", "))
			default:
				s.Rules[kind.Flag], s.Lines[kind.Flag] = task.FlagVerdict(value.Value), key.Line
			}
		})
	})
	return s
}

// mapping reads the pairs of a mapping, each key once.
func mapping(n *yaml.Node, path, of string, fault Fault, each func(key, value *yaml.Node, at string)) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		fault(n, path, "must be a mapping of %s", of)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := path + "." + key.Value
		if seen[key.Value] {
			fault(key, at, "given twice; remove one")
			continue
		}
		seen[key.Value] = true
		each(key, n.Content[i+1], at)
	}
}

func kinds() string {
	var list []string
	for _, k := range task.FlagKinds() {
		list = append(list, string(k.Flag))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// Layered is what one layer says; nil: nothing.
type Layered struct {
	*Said
	Layer string // of package task
	Name  string // for people
}

// Over is where a layer says something looser than one above it.
type Over struct {
	Layered
	Line        int
	Field, Text string
}

// Sum is what the layers come to, the highest first; nil where none says anything.
func Sum(layers []Layered) (task.FlagRules, []Over) {
	var sum task.FlagRules
	var over []Over
	by := map[task.Flag]string{}
	for _, l := range layers {
		if l.Said == nil {
			continue
		}
		for _, k := range task.FlagKinds() {
			v, said := l.Rules[k.Flag]
			if !said {
				continue
			}
			if above, bound := sum[k.Flag]; bound && v.Looser(above) {
				over = append(over, Over{l, l.Lines[k.Flag], field(k.Flag), fmt.Sprintf("%s is more than %s; the %s allows no more", v, above, by[k.Flag])})
				continue
			}
			if sum == nil {
				sum = task.FlagRules{}
			}
			sum[k.Flag], by[k.Flag] = v, l.Name
		}
	}
	return sum, over
}

func field(f task.Flag) string { return "output.flags." + string(f) }

// Row is what there is to tell of one kind.
type Row struct {
	Field, Text string
	Layer       string // empty: nobody said it
	Line        int
	Note        string
}

// Explain tells what each kind means, and who said it last.
func Explain(layers []Layered, sum task.FlagRules) []Row {
	var rows []Row
	for _, k := range task.FlagKinds() {
		row := Row{Field: field(k.Flag), Text: string(sum.Verdict(k.Flag)), Note: k.What}
		for _, l := range slices.Backward(layers) {
			if l.Said == nil || l.Lines[k.Flag] == 0 {
				continue
			}
			row.Layer, row.Line = cmp.Or(row.Layer, l.Layer), cmp.Or(row.Line, l.Lines[k.Flag])
		}
		if sum.Verdict(k.Flag).Looser(k.Verdict) {
			row.Note += "; without a policy it is " + string(k.Verdict)
		}
		rows = append(rows, row)
	}
	return rows
}

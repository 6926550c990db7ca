package tools

import (
	"cmp"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Layered is what one place of a layer's file says.
type Layered struct {
	*Said
	Layer string // of package task
	Field string // such as "agent.tools"
}

// Sum is what all of them say, the highest layer first; nil where none says
// anything. None can widen what another one says: the strictest counts, and the
// shortest wait.
func Sum(said []Layered, admins bool) *task.Tools {
	if len(said) == 0 {
		return nil
	}
	sum := &task.Tools{Admins: admins}
	for _, l := range said {
		rules := l.ToolRules
		rules.Layer = l.Layer
		sum.Layers = append(sum.Layers, rules)
		if l.Wait > 0 && (sum.Wait == 0 || l.Wait < sum.Wait) {
			sum.Wait = l.Wait
		}
	}
	sum.Wait = cmp.Or(sum.Wait, Wait)
	return sum
}

// Explain tells what each of them says, and how long is waited.
func Explain(said []Layered, sum *task.Tools) []Row {
	if sum == nil {
		return nil
	}
	wait := Row{Field: "agent.tools.wait", Text: sum.Wait.String(), Note: "a use that nobody answered for until then is denied"}
	if sum.Admins {
		wait.Note += "; only administrators may answer"
	}
	var rows []Row
	for _, l := range said {
		if l.Wait == sum.Wait {
			wait.Layer, wait.Line = l.Layer, l.Line
		}
		for _, row := range l.rows() {
			row.Field, row.Layer = l.Field+"."+row.Field, l.Layer
			rows = append(rows, row)
		}
	}
	return append(rows, wait)
}

// Use is the use of a tool by its name, its kind (empty: as its name) and the
// command line that it runs, if any.
func Use(tool, kind, line string) task.ToolAsk {
	use := task.ToolAsk{Tool: tool, Kind: task.ToolKind(kind)}
	for _, k := range task.ToolKinds() {
		if kind == "" && tool == string(k) {
			use.Kind = k
		}
	}
	if line != "" {
		use.Argv = []string{"sh", "-c", line}
	}
	return use
}

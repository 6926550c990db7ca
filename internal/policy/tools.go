package policy

import (
	"cmp"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/policy/example"
	"github.com/cofferdam/cofferdam/internal/policy/tools"
	"github.com/cofferdam/cofferdam/internal/task"
)

// toolLayers are the places that say something of tools, the highest layer first.
func (s *stack) toolLayers() []tools.Layered {
	var said []tools.Layered
	for _, l := range []tools.Layered{
		{Said: s.operator.ceiling.tools, Layer: task.LayerOperator, Field: "ceiling.tools"}, {Said: s.project.ceiling.tools, Layer: task.LayerProject, Field: "ceiling.tools"},
		{Said: s.project.tools, Layer: task.LayerProject, Field: "agent.tools"}, {Said: s.task.tools, Layer: task.LayerTask, Field: "agent.tools"},
	} {
		if l.Said != nil {
			said = append(said, l)
		}
	}
	return said
}

// tools are what the layers come to.
func (s *stack) tools() *task.Tools {
	return tools.Sum(s.toolLayers(), s.operator.ceiling.adminsOnly || s.project.ceiling.adminsOnly)
}

// tool is what the plan says of one use.
func (p Plan) tool(use task.ToolAsk) task.ToolDecision {
	if p.Tools == nil {
		return task.ToolDecision{Verdict: task.ToolAllowed}
	}
	return (&tools.Policy{Tools: *p.Tools}).Decide(use)
}

// explainTools tells what each layer says of tools.
func (s *stack) explainTools(plan Plan) []Line {
	var lines []Line
	for _, row := range tools.Explain(s.toolLayers(), plan.Tools) {
		lines = append(lines, Line{Stage: task.Agent, Field: row.Field, Text: row.Text, Layer: cmp.Or(row.Layer, layerDefault), Line: row.Line, Note: row.Note})
	}
	return lines
}

// toolExample reads an example of the use of a tool.
func (r *reader) toolExample(n *yaml.Node, path string, e *example.Example) {
	var tool, kind, command string
	r.fields(n, path, fieldReaders{
		"tool": func(n *yaml.Node, p string) { tool = r.text(n, p, 128) },
		"kind": func(n *yaml.Node, p string) {
			kind = r.oneOf(n, p, "shell", "read", "write", "edit", "search", "fetch")
		},
		"command": func(n *yaml.Node, p string) { command = r.text(n, p, 64<<10) },
		"expect": func(n *yaml.Node, p string) {
			e.Want = map[string]task.ToolVerdict{"allowed": task.ToolAllowed, "asked": task.ToolAsked}[r.oneOf(n, p, "allowed", "asked", "denied")]
		},
	})
	r.needs(n, path, "tool", "expect")
	use := tools.Use(tool, kind, command)
	if e.Tool = &use; (use.Kind == task.ToolShell) != (use.Argv != nil) {
		r.errorf(n, path, "a tool that runs commands needs command in its example, and no other one has it")
	}
}

package policy

import (
	"cmp"

	"github.com/cofferdam/cofferdam/internal/policy/verdicts"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (s *stack) flagLayers() []verdicts.Layered {
	of := func(f *file) verdicts.Layered { return verdicts.Layered{Said: f.flags, Layer: f.layer, Name: f.name} }
	return []verdicts.Layered{of(&s.operator), of(&s.project), of(&s.task)}
}

// flags are what findings in the patch mean, as the layers come to.
func (s *stack) flags() task.FlagRules {
	sum, over := verdicts.Sum(s.flagLayers())
	for _, o := range over {
		s.refuse(s.fileOf(o.Layer), o.Line, o.Field, "%s", o.Text)
	}
	return sum
}

func (s *stack) explainFlags(plan Plan) (lines []Line) {
	for _, row := range verdicts.Explain(s.flagLayers(), plan.Flags) {
		lines = append(lines, Line{Field: row.Field, Text: row.Text, Layer: cmp.Or(row.Layer, layerDefault), Line: row.Line, Note: row.Note})
	}
	return lines
}

package main

import (
	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/policy"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Explain tells what a policy comes to, line by line.
func (p *policies) Explain(spec task.Spec, layers task.Layers, stage task.StageName) (api.PolicyExplanation, error) {
	plan, lines, err := policy.Explain(spec, layers, stage)
	if err != nil {
		return api.PolicyExplanation{}, err
	}
	e := api.PolicyExplanation{PolicyDigest: string(plan.Digest), Layers: []api.PolicyLayer{}, Lines: []api.PolicyLine{}}
	for _, l := range []struct{ name, text string }{
		{task.LayerOperator, layers.Operator},
		{task.LayerProject, layers.Project},
		{task.LayerRepository, layers.Repository},
		{task.LayerTask, spec.Policy},
	} {
		if l.text != "" {
			e.Layers = append(e.Layers, api.PolicyLayer{Layer: l.name, Digest: string(policy.DigestOf(l.text))})
		}
	}
	for _, l := range lines {
		e.Lines = append(e.Lines, api.PolicyLine{Stage: string(l.Stage), Field: l.Field, Text: l.Text, Layer: l.Layer, Line: l.Line, Note: l.Note})
	}
	return e, nil
}

// Check runs the examples of a task's policy file.
func (p *policies) Check(spec task.Spec, layers task.Layers) ([]api.PolicyExample, error) {
	all, err := policy.Check(spec, layers)
	return examples(all), err
}

// CheckProject judges a text as a project's layer.
func (p *policies) CheckProject(name, text string) ([]api.PolicyExample, error) {
	all, err := policy.CheckProject(name, text, p.operator)
	return examples(all), err
}

func examples(all []policy.Checked) []api.PolicyExample {
	out := make([]api.PolicyExample, 0, len(all))
	for _, c := range all {
		out = append(out, api.PolicyExample{
			Line: c.Line, Text: c.Text, Expect: c.Expect, Got: c.Got, Reason: string(c.Reason), Rule: c.Rule,
			Passed: c.Passed, Why: c.Why,
		})
	}
	return out
}

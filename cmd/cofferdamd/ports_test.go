package main

import (
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// What a policy says of findings reaches the stages.
func TestPlanHasWhatThePolicySays(t *testing.T) {
	p := policies{}
	plan, err := p.Compile(task.Spec{Policy: "version: 1\noutput: {flags: {workflow: refuse}}\n"}, task.Layers{})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Flags[task.FlagWorkflow] != task.FlagRefuse {
		t.Errorf("%+v", plan.Flags)
	}
}

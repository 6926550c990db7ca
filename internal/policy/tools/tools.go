package tools

import (
	"fmt"
	"slices"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Policy is what a task's layers say of tools. It implements stage.ToolPolicy.
type Policy struct{ task.Tools }

// Decide says what becomes of a use.
func (p *Policy) Decide(use task.ToolAsk) task.ToolDecision {
	if len(p.Layers) == 0 {
		return task.ToolDecision{}
	}
	var strictest task.ToolDecision
	for i, rules := range p.Layers {
		d := decide(rules, use)
		if d.Layer = rules.Layer; i == 0 || d.Verdict.Rank() < strictest.Verdict.Rank() {
			strictest = d
		}
	}
	return strictest
}

// decide is one layer's verdict.
func decide(rules task.ToolRules, use task.ToolAsk) task.ToolDecision {
	runs := use.Kind == task.ToolShell || len(use.Argv) > 0 || runTool(use.Tool)
	if len(use.Argv) > 0 {
		inner, plain := Command(use.Argv)
		for i, c := range rules.Commands {
			if matches(c, use.Argv) || plain && matches(c, inner) {
				return task.ToolDecision{Verdict: task.ToolAllowed, Rule: fmt.Sprintf("tools.commands[%d]", i)}
			}
		}
	}
	d := task.ToolDecision{Verdict: rules.Default, Rule: "tools.default"}
	isKind := slices.Contains(task.ToolKinds(), task.ToolKind(use.Tool))
	if v, ok := rules.Names[use.Tool]; ok && !isKind {
		d = task.ToolDecision{Verdict: v, Rule: "tools." + v.String() + " " + use.Tool}
	} else if v, ok := rules.Names[string(use.Kind)]; ok && use.Kind != task.ToolOther {
		d = task.ToolDecision{Verdict: v, Rule: "tools." + v.String() + " " + string(use.Kind)}
	}
	if runs {
		// One that runs programs and calls itself something else.
		if v, ok := rules.Names[string(task.ToolShell)]; ok && v.Rank() < d.Verdict.Rank() {
			d = task.ToolDecision{Verdict: v, Rule: "tools." + v.String() + " shell"}
		}
		if d.Verdict == task.ToolAllowed {
			d.Verdict = task.ToolAsked
		}
	}
	return d
}

// Harmless says whether nothing in the input of such a tool can run another
// program, so that an answer may stand for it by its name.
func Harmless(use task.ToolAsk) bool {
	return (use.Kind == task.ToolRead || use.Kind == task.ToolSearch) && len(use.Argv) == 0 && !runTool(use.Tool)
}

// Harmless implements stage.ToolPolicy.
func (p *Policy) Harmless(use task.ToolAsk) bool { return Harmless(use) }

// Terms implements stage.ToolPolicy.
func (p *Policy) Terms() task.Tools { return p.Tools }

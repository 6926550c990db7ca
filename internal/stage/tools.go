package stage

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/task"
)

// ToolPolicy says what a task's policy says of uses of tools. It is pure.
// Implemented by policy.
type ToolPolicy interface {
	Decide(use task.ToolAsk) task.ToolDecision
	// Harmless says whether nothing in the input of such a tool can run another
	// program.
	Harmless(use task.ToolAsk) bool
	// Terms says how long a person has, and who may answer.
	Terms() task.Tools
}

// ToolGate is where an agent's uses of tools are stopped until it is known whether
// they may be. Implemented by stage/steps.
type ToolGate interface {
	// Judge says what policy says of a use, and asks nobody.
	Judge(use task.ToolAsk) task.ToolDecision
	// May decides a use, or asks a person and waits. key names the use in its
	// attempt: asked again with the same key and the same use, the answer is the
	// same, and nobody is asked twice. Errors say that nothing is decided.
	May(ctx context.Context, key string, use task.ToolAsk) (task.ToolAnswer, error)
}

// HarnessAsk is a use of a tool that a harness waits to be let do.
type HarnessAsk struct {
	Number int    // from 1, in the order in which the command asked
	Call   string // ties it to the harness's events
	Use    task.ToolAsk
}

// HarnessAsker is a HarnessSpeaker of a command that asks before it uses tools.
// What it says comes of its output and of the answers, which it says in the order
// of the questions.
type HarnessAsker interface {
	HarnessSpeaker
	// Asks are the questions that were read and not returned before.
	Asks() []HarnessAsk
	// Answer tells what became of one.
	Answer(number int, a task.ToolAnswer)
}

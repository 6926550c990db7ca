package stage

import (
	"fmt"

	"github.com/cofferdam/cofferdam/internal/task"
)

// AfterVerify says what follows an outcome of the given round of verify. The
// agent's work is done and kept: a fault of the infrastructure runs verify
// again, alone and in a fresh sandbox, and never the agent.
func AfterVerify(o Outcome, round int) Next {
	if o.State != task.StageFailed || !o.Reason.Retryable() {
		return After(o, round)
	}
	if round < MaxRounds {
		return AgainRound
	}
	return EndTask
}

// Exhausted is the outcome of a stage all of whose rounds ended with a fault of
// the infrastructure, the last with o.
func Exhausted(name task.StageName, o Outcome, rounds int) Outcome {
	return Outcome{
		State: task.StageFailed, Reason: task.InfraExhausted, ExitCode: o.ExitCode,
		Text: fmt.Sprintf("%s was run %d times and each ended with a fault of the infrastructure, the last with %s: %s", name, rounds, o.Reason, o.Text),
	}
}

// RoundSandboxID is the id of the sandbox of one round of a stage that has a
// fresh one in each.
func RoundSandboxID(taskID string, attempt int, role string, round int) string {
	if round <= 1 {
		return SandboxID(taskID, attempt, role)
	}
	return SandboxID(taskID, attempt, fmt.Sprintf("%s|%d", role, round))
}

// RoundLog names the log of one round of a stage that begins anew in each. What
// is read under the stage's own name is all of them, one after the other.
func RoundLog(name task.StageName, round int) task.StageName {
	if round <= 1 {
		return name
	}
	return task.StageName(fmt.Sprintf("%s.%d", name, round))
}

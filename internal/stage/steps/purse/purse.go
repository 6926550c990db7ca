// Package purse is what the stages have to do with budgets: they know when a
// task waits for one, how a stage ends whose models were refused for one, and
// that what was used is on record before a task ends.
package purse

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Purse asks of budgets; where there are none nothing waits and nothing is told.
type Purse struct{ Budgets stage.Budgets }

// Waits says whether a task waits for a budget to be raised, so that nothing is
// to be heard of what runs in its sandbox.
func (p Purse) Waits(ctx context.Context, taskID string) bool {
	return p.Budgets != nil && p.Budgets.Waiting(ctx, taskID)
}

// Outcome is that of a stage. An agent that failed after its models were refused
// failed for that, whatever it says itself.
func (p Purse) Outcome(ctx context.Context, stage task.StageName, taskID string, reason task.Reason, text string) (task.Reason, string) {
	if p.Budgets == nil || stage != task.Agent || reason.Class() != "agent" && reason.Class() != "egress" || !p.Budgets.Vain(ctx, taskID) {
		return reason, text
	}
	if text != "" {
		text = " (" + text + ")"
	}
	return task.LimitSpend, "the budget for models was used up and not raised in time" + text
}

// Settle puts on record what a task that is about to end used.
func (p Purse) Settle(ctx context.Context, taskID string) error {
	if p.Budgets == nil {
		return nil
	}
	return p.Budgets.Settle(ctx, taskID)
}

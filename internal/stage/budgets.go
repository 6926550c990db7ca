package stage

import "context"

// Budgets is what tasks may use of models, as the stages ask of it. Implemented
// by budget.
type Budgets interface {
	// Waiting says whether a task waits for a budget to be raised now: then its
	// processes are held.
	Waiting(ctx context.Context, taskID string) bool
	// Vain says whether a task waited, and no budget was raised in time.
	Vain(ctx context.Context, taskID string) bool
	// Settle puts on record what a task that is about to end used, once.
	Settle(ctx context.Context, taskID string) error
}

package stage

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Leases lends credentials to stages. Implemented by credential. Errors are
// *task.Failure; every call may be repeated.
type Leases interface {
	// Check says whether the requester's stages can be lent every credential that
	// the rules name. The failure names the rule's field.
	Check(ctx context.Context, requester string, rules map[task.StageName][]task.Rule) error
	// Lend makes the leases of the credentials that a stage's rules name, in the
	// order of their names. Repeated, it gives the same ones with the same
	// placeholders; one that was revoked meanwhile comes back ended.
	Lend(ctx context.Context, use task.LeaseUse, rules []task.Rule) ([]task.Lent, error)
	// End ends the task's leases in one sandbox, or with an empty sandbox all of
	// them. why is one of task's Ended constants.
	End(ctx context.Context, taskID, sandbox, why string) error
	// Settle tries for a few seconds to have what was minted for the task's ended
	// leases ended by who made it. It is tried on behind when that fails, so a
	// provider that does not answer is no error.
	Settle(ctx context.Context, taskID string) error
}

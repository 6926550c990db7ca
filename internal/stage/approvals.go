package stage

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Approvals is what persons are asked and have decided. Implemented by
// approval. Errors are *task.Failure; every call may be repeated.
type Approvals interface {
	// Rules are the rules that decisions add to a stage that begins in a sandbox.
	Rules(ctx context.Context, taskID, project string, stage task.StageName, sandbox string) ([]task.Rule, error)
	// Abandon withdraws what was asked in a sandbox and is not answered: who asked
	// is gone.
	Abandon(ctx context.Context, taskID, sandbox string) error
}

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
	// Tool asks about the use of a tool and waits for the answer until ctx ends. The
	// same key and the same question have the same answer, also after a restart.
	Tool(ctx context.Context, q task.Question) (task.ToolAnswer, error)
	// Abandon withdraws what was asked in a sandbox and is not answered: who asked
	// is gone.
	Abandon(ctx context.Context, taskID, sandbox string) error
}

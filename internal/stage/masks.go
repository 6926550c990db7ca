package stage

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/task/mask"
)

// Masks knows the values that tasks were lent. Implemented by credential.
type Masks interface {
	// Learn makes what the task was lent known, as far as it can still be known.
	Learn(ctx context.Context, taskID string) error
	// Masker finds every value that is known of the task; nil: there is none.
	Masker(taskID string) *mask.Masker
}

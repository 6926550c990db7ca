package stage

import (
	"context"
	"io"

	"github.com/cofferdam/cofferdam/internal/task"
)

// PatchJudge finds in what a patch may bite who takes it. Implemented by
// output/flags.
type PatchJudge interface {
	// Judge reads a patch to its end as bytes that a stranger wrote. A patch that
	// can't be read is a finding; an error is of the reader or of ctx.
	Judge(ctx context.Context, patch io.Reader, rules task.FlagRules) (task.FlagReport, error)
}

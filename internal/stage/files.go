package stage

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/task"
)

// FilePermission takes rights on the files of a sandbox's workspace away, apart
// from the network. Implemented by fleet. Errors are *task.Failure.
type FilePermission interface {
	// Protect ends every process of the sandbox and applies the rules to what is
	// started from now on, once: the same rules again end nothing. A workspace that
	// can't be protected as it was left is task.PolicyFiles.
	Protect(ctx context.Context, id string, rules task.FileRules) (task.FileProtection, error)
	// Denials returns what the sandbox's kernel refused under the rules, from
	// sequence number after on.
	Denials(ctx context.Context, id string, after int64) ([]task.FileDenial, error)
}

// FileFacts is our record of what was refused. Implemented by store.
type FileFacts interface {
	// AddFileDenials records what was refused and tells of each; known sequence
	// numbers are ignored.
	AddFileDenials(ctx context.Context, taskID string, list []task.FileDenial) error
}

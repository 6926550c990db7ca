package steps

import (
	"context"
	"errors"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage/steps/tree"
	"github.com/cofferdam/cofferdam/internal/task"
)

// checkWorkspace fails with task.WorkspaceGone when the agent left no
// repository in its workspace, or one that can't be read. What it made of the
// files is its right; a patch that deletes everything since the workspace is
// gone is nobody's wish.
func (r *run) checkWorkspace(ctx context.Context, agent string) error {
	outer, ok := r.Sandboxes.(present)
	if !ok {
		return task.Fail(task.InfraInternal, "", errors.New("the fleet is not as New made it"))
	}
	what, err := tree.Repository(ctx, outer.Sandboxes, agent)
	if hasReason(err, task.InputNotFound) {
		// Gone is the folder or the sandbox: a sandbox that runs something is there.
		alive := sandbox.Command{ID: "export-alive", Argv: []string{"true"}, Dir: "/", Timeout: time.Minute}
		if _, err := r.Sandboxes.Run(ctx, agent, alive, 0, discard{}, func() {}); err != nil {
			return err
		}
		what, err = "was removed", nil
	}
	var failure *task.Failure
	if errors.As(err, &failure) && failure.Reason == task.InputInvalid {
		what, err = "can't be read: "+failure.Text, nil
	}
	if err != nil || what == "" {
		return err
	}
	return task.Fail(task.WorkspaceGone, "the workspace's repository, /workspace/.git, "+what+" by the end of the agent's work", nil)
}

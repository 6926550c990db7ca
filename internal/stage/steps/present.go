package steps

import (
	"context"
	"errors"
	"io"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// present is the fleet as a running stage sees it: the sandbox was made, and
// what is read from it lies where our own scripts put it. That nobody knows
// it means that it was lost, with its machine or while the installation was
// down, and not that the task asked for the wrong thing.
type present struct{ stage.Sandboxes }

func lost(err error) error {
	if hasReason(err, task.InputNotFound) {
		return task.Fail(task.InfraSandboxLost, "the sandbox is gone", err)
	}
	return err
}

func (p present) Grant(ctx context.Context, grant task.Grant) error {
	return lost(p.Sandboxes.Grant(ctx, grant))
}

func (p present) Run(ctx context.Context, id string, cmd sandbox.Command, offset int64, out io.Writer, beat func()) (stage.Result, error) {
	res, err := p.Sandboxes.Run(ctx, id, cmd, offset, out, beat)
	return res, lost(err)
}

func (p present) Put(ctx context.Context, id, dir string, tar io.Reader) error {
	return lost(p.Sandboxes.Put(ctx, id, dir, tar))
}

func (p present) Get(ctx context.Context, id, path string, exclude []string) (io.ReadCloser, error) {
	r, err := p.Sandboxes.Get(ctx, id, path, exclude)
	return r, lost(err)
}

// unreadable says that the agent left its workspace in a state that can't be
// read: its own doing, unless the infrastructure failed.
func unreadable(err error) error {
	var failure *task.Failure
	if errors.As(err, &failure) && failure.Reason == task.InputInvalid {
		return task.Fail(task.WorkspaceGone, "the workspace can't be read: "+failure.Text, err)
	}
	return err
}

package steps

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"path"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
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
	what, err := repository(ctx, outer.Sandboxes, agent)
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

// repository looks at the agent's .git without its bulk and says what is wrong
// with it; empty: nothing.
func repository(ctx context.Context, sandboxes stage.Sandboxes, agent string) (wrong string, err error) {
	from, err := sandboxes.Get(ctx, agent, "/workspace/.git", []string{
		"objects", "refs", "logs", "hooks", "lfs", "modules", "worktrees", "index", "packed-refs",
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }() // it was only read
	archive := tar.NewReader(from)
	for entries := range tree.MaxEntries {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return "has no HEAD", nil
		case err != nil:
			return "", err
		case entries == 0 && header.Typeflag != tar.TypeDir:
			return "was replaced by something that is no folder", nil
		case entries > 0 && path.Clean(header.Name) == ".git/HEAD":
			if header.Typeflag != tar.TypeReg {
				return "has a HEAD that is no file", nil
			}
			return "", nil
		}
	}
	return "has more files than may be exported", nil
}

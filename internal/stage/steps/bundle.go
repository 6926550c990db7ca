package steps

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/cofferdam/cofferdam/internal/stage/steps/script"
	"github.com/cofferdam/cofferdam/internal/task"
)

// bundleBranch is the branch that the bundle of a task has.
func bundleBranch(taskID string) string { return "refs/heads/cofferdam/" + taskID }

// keepBundle keeps the patch as a commit that can be fetched: a git bundle whose
// one commit has the base as its parent. An empty patch has none.
func (r *run) keepBundle(ctx context.Context) error {
	fresh, err := r.Facts.Task(ctx, r.in.Task)
	if err != nil {
		return err
	}
	for _, o := range fresh.Outputs {
		if o.Name == "patch" && o.Size == 0 {
			return nil
		}
	}
	res, err := r.exec(ctx, command{
		id: "export-bundle", argv: []string{
			"sh", "-c", script.Bundle, "bundle", r.task.Commit, bundleBranch(r.in.Task),
			strconv.FormatInt(max(r.task.CreatedAt.Unix(), 0), 10), "Changes made by the agent of task " + r.in.Task, r.in.Task,
		}, env: gitEnv(), timeout: r.plan.CommandTime(task.Export),
	}, 0, nil)
	r.row.ExitCode = nil
	if err != nil {
		return err
	}
	if err := r.judge(res, task.ExportFailed, "git bundle"); err != nil {
		return err
	}
	return r.getFile(ctx, "/tmp/cofferdam-work/out/bundle", func(from io.Reader) error {
		limit, _, _ := r.plan.Limits.OfOutputs()
		_, err := r.keep(ctx, "bundle", "bundle", r.clean("the bundle", from), limit)
		if hasReason(err, task.LimitSize) {
			return task.Fail(task.LimitSize, fmt.Sprintf("the bundle is larger than %d bytes; the policy's limits.patch says how large it may be", limit), err)
		}
		return err
	})
}

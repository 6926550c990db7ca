package steps

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/cofferdam/cofferdam/internal/task"
)

// bundleScript makes one commit of the patch's index upon $1, on the branch $2,
// and a bundle of it. The same index gives the same commit.
const bundleScript = `set -eu
work=/tmp/cofferdam-work
export GIT_DIR="$work/repo/.git"
name='Cofferdam agent' mail=agent@cofferdam.invalid
export GIT_AUTHOR_NAME="$name" GIT_AUTHOR_EMAIL="$mail" GIT_COMMITTER_NAME="$name" GIT_COMMITTER_EMAIL="$mail"
export GIT_AUTHOR_DATE="@$3 +0000" GIT_COMMITTER_DATE="@$3 +0000"
commit=$(git commit-tree "$(git write-tree)" -p "$1" -m "$4" -m "Cofferdam-Task: $5")
git update-ref "$2" "$commit"
git -c pack.threads=1 bundle create --quiet "$work/out/bundle" "$2" "^$1"
`

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
			"sh", "-c", bundleScript, "bundle", r.task.Commit, bundleBranch(r.in.Task),
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
		_, err := r.keep(ctx, "bundle", "bundle", from, limit)
		if hasReason(err, task.LimitSize) {
			return task.Fail(task.LimitSize, fmt.Sprintf("the bundle is larger than %d bytes; the policy's limits.patch says how large it may be", limit), err)
		}
		return err
	})
}

package steps

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/script"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxBase bounds the bundle of the base commit.
const maxBase = 16 << 30

// gitEnv keeps git from every configuration but the repository's own.
func gitEnv() []string {
	return []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
	}
}

// checkout puts the repository into the agent's workspace, as far as git needs
// it, and keeps the base for export and verify.
func (w *Work) checkout(ctx context.Context, r *run) error {
	source := r.task.Spec.Repo.URL
	if bundle := r.task.Spec.Repo.Bundle; bundle != "" {
		source = "/tmp/cofferdam-work/in/repo.bundle"
		if err := r.putBlob(ctx, bundle, "repo.bundle"); err != nil {
			return err
		}
	}
	// A branch may move between two attempts; the task's commit does not.
	ref := r.task.Commit
	if ref == "" {
		ref = r.task.Spec.Repo.Ref
	}
	if err := r.give(ctx, task.Checkout, stage.RoleAgent); err != nil {
		return err
	}
	res, err := r.only(ctx, command{
		id: "checkout", argv: []string{"sh", "-c", script.Checkout, "checkout", source, ref},
		env: append(gitEnv(), r.leaseEnv()...), timeout: r.plan.CommandTime(task.Checkout),
	})
	if err != nil {
		return err
	}
	if res.ExitCode == script.RefMissing {
		if ref == "" {
			ref = "HEAD"
		}
		return task.Fail(task.CheckoutFailed, fmt.Sprintf("ref %q is not in the repository", ref), nil)
	}
	if err := r.judge(res, task.CheckoutFailed, "git clone and checkout"); err != nil {
		return err
	}
	commit, err := r.headCommit(ctx)
	if err != nil {
		return err
	}
	shapes, err := r.shapes(ctx)
	if err != nil {
		return err
	}
	err = r.getFile(ctx, "/tmp/cofferdam-work/base.bundle", func(from io.Reader) error {
		_, err := r.keep(ctx, "base", "base", from, maxBase, shapes.flags()...)
		return err
	})
	if err != nil {
		return err
	}
	if err := r.keepModules(ctx, shapes); err != nil {
		return err
	}
	update, err := r.repositoryAsks(ctx, commit)
	if err != nil {
		return err
	}
	return w.Facts.SetTask(ctx, r.in.Task, update)
}

var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// headCommit asks for the checked-out commit.
func (r *run) headCommit(ctx context.Context) (string, error) {
	var out bytes.Buffer
	res, err := r.exec(ctx, command{id: "checkout-commit", argv: []string{"git", "rev-parse", "HEAD"}, env: gitEnv()}, 0, &out)
	if err != nil {
		return "", err
	}
	if err := r.judge(res, task.CheckoutFailed, "git rev-parse"); err != nil {
		return "", err
	}
	commit := strings.TrimSpace(out.String())
	if !commitPattern.MatchString(commit) {
		return "", task.Fail(task.CheckoutFailed, "the checked-out commit has no name", nil)
	}
	return commit, nil
}

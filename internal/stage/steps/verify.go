package steps

import (
	"context"
	"slices"

	"github.com/cofferdam/cofferdam/internal/output/evidence"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/script"
	"github.com/cofferdam/cofferdam/internal/task"
)

// verify judges the patch in a fresh sandbox: the base, the setup at the base,
// the patch, the verify command. Nothing comes from the agent's sandbox. A command
// that failed is run again in another, and the base by itself in a third.
func (w *Work) verify(ctx context.Context, r *run) error {
	if r.task.Spec.Verify == "" {
		r.row.Sandbox = ""
		return errSkipped
	}
	if _, ok := r.output("base"); !ok || r.task.Commit == "" {
		return task.Fail(task.InfraInternal, "the base of the task is missing", nil)
	}
	patch, ok := r.output("patch")
	if !ok {
		return task.Fail(task.InfraInternal, "the patch of the task is missing", nil)
	}
	in := evidence.Input{
		Base: r.task.Commit, Patch: patch.Digest, Setup: r.task.Spec.Setup, Command: r.task.Spec.Verify, Report: r.task.Spec.Report,
		Whole: map[string]task.Digest{}, Compares: r.plan.Verifying.Compares(r.task.Spec.Report), FlakyPasses: r.plan.Verifying.FlakyPasses(),
	}
	judge, err := r.trial(ctx, evidence.Patch, in.Whole)
	if err != nil {
		return err
	}
	in.Judge = *judge
	if judge.Reason == task.VerifyFailed && r.plan.Verifying.Reruns() {
		if in.Again, err = r.trial(ctx, evidence.Again, in.Whole); err != nil {
			return err
		}
	}
	if in.Compares {
		if in.Before, err = r.trial(ctx, evidence.Base, in.Whole); err != nil {
			return err
		}
	}
	r.row.Sandbox, r.row.ExitCode = r.trialSandbox(evidence.Patch), judge.ExitCode
	return r.giveEvidence(ctx, in, slices.Contains(patch.Flags, flagManifest))
}

// script runs one of our scripts with the task's commit as its argument.
func (r *run) script(ctx context.Context, id, text string, reason task.Reason, what string) error {
	res, err := r.logged(ctx, command{id: id, argv: []string{"sh", "-c", text, id, r.task.Commit}, env: gitEnv()})
	r.row.ExitCode = nil
	if err != nil {
		return err
	}
	if res.ExitCode == script.PatchRefused && id == "verify-apply" {
		return task.Fail(task.PatchFailed, "the patch does not apply to a clean checkout", nil)
	}
	return r.judge(res, reason, what)
}

// setupAgain runs the setup command with setup's grant and takes the grant and
// its processes away again.
func (r *run) setupAgain(ctx context.Context, id string) error {
	if r.task.Spec.Setup == "" {
		return nil
	}
	if err := r.give(ctx, task.Setup, stage.RoleVerify); err != nil {
		return err
	}
	res, err := r.logged(ctx, command{
		id: id, argv: []string{"sh", "-c", r.task.Spec.Setup}, env: append(r.taskEnv(), r.leaseEnv()...), timeout: r.plan.CommandTime(task.Setup),
	})
	if err == nil {
		err = r.judge(res, task.SetupFailed, "the setup command, in the sandbox that verifies,")
	}
	if err != nil {
		return err
	}
	r.row.ExitCode = nil
	return r.settle(ctx)
}

func (r *run) applyPatch(ctx context.Context, patch task.Output) error {
	if err := r.putBlob(ctx, patch.Digest, "patch"); err != nil {
		return err
	}
	if err := r.script(ctx, "verify-apply", script.VerifyApply, task.PatchFailed, "applying the patch"); err != nil {
		return err
	}
	if slices.Contains(patch.Flags, flagManifest) {
		return r.setupAgain(ctx, "verify-setup-again")
	}
	return nil
}

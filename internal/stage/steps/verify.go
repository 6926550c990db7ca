package steps

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/script"
	"github.com/cofferdam/cofferdam/internal/task"
)

// verify judges the patch in a fresh sandbox: the base, the setup at the base,
// the patch, the verify command. Nothing comes from the agent's sandbox.
func (w *Work) verify(ctx context.Context, r *run) error {
	if r.task.Spec.Verify == "" {
		r.row.Sandbox = ""
		return errSkipped
	}
	base, okBase := r.output("base")
	patch, okPatch := r.output("patch")
	if !okBase || !okPatch || r.task.Commit == "" {
		return task.Fail(task.InfraInternal, "the base or the patch of the task is missing", nil)
	}
	if err := r.create(ctx, stage.RoleVerify); err != nil {
		return err
	}
	if err := r.putBlob(ctx, base.Digest, "base.bundle"); err != nil {
		return err
	}
	if modules, ok := r.output("base.modules"); ok {
		if err := r.putBlob(ctx, modules.Digest, "modules.tar"); err != nil {
			return err
		}
	}
	if err := r.script(ctx, "verify-checkout", script.VerifyCheckout, task.VerifyFailed, "the checkout of the base"); err != nil {
		return err
	}
	if err := r.setupAgain(ctx, "verify-setup"); err != nil {
		return err
	}
	if patch.Size > 0 {
		if err := r.applyPatch(ctx, patch); err != nil {
			return err
		}
	}
	return r.judgePatch(ctx, slices.Contains(patch.Flags, flagManifest))
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

// report is output "report".
type report struct {
	Command          string      `json:"command"`
	ExitCode         int         `json:"exitCode"`
	Reason           task.Reason `json:"reason,omitempty"`
	DurationMS       int64       `json:"durationMs"`
	Commit           string      `json:"commit"`
	Log              task.Digest `json:"log"`
	ManifestsTouched bool        `json:"manifestsTouched"`

	JUnit *junitReport `json:"junit,omitempty"` // of the file that the task names
}

// judgePatch runs the verify command and keeps its report, whatever it says.
func (r *run) judgePatch(ctx context.Context, manifests bool) error {
	if err := r.give(ctx, task.Verify, stage.RoleVerify); err != nil {
		return err
	}
	res, err := r.logged(ctx, command{
		id: "verify", argv: []string{"sh", "-c", r.task.Spec.Verify}, env: append(r.taskEnv(), r.leaseEnv()...), timeout: r.plan.CommandTime(task.Verify),
	})
	if err != nil {
		return err
	}
	verdict := r.judge(res, task.VerifyFailed, "the verify command")
	log, err := r.storeLog(ctx)
	if err != nil {
		return err
	}
	tests, err := r.testReport(ctx, res.ExitCode)
	if err != nil {
		return err
	}
	text, err := json.Marshal(report{
		Command: r.task.Spec.Verify, ExitCode: res.ExitCode, Reason: res.Reason,
		DurationMS: res.EndedAt.Sub(res.StartedAt).Milliseconds(),
		Commit:     r.task.Commit, Log: log, ManifestsTouched: manifests, JUnit: tests,
	})
	if err != nil {
		return err
	}
	if _, err := r.keep(ctx, "report", "report", bytes.NewReader(text), 1<<20); err != nil {
		return err
	}
	return verdict
}

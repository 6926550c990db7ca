package steps

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/cofferdam/cofferdam/internal/output/evidence"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/script"
	"github.com/cofferdam/cofferdam/internal/stage/steps/verified"
	"github.com/cofferdam/cofferdam/internal/task"
)

// trialSandbox is the sandbox of one run of the verify command.
func (r *run) trialSandbox(name string) string {
	return stage.RoundSandboxID(r.in.Task, r.in.Attempt, verified.Role(stage.RoleVerify, name), r.in.Round)
}

// trial runs the verify command once, in a fresh sandbox of its own that ends with
// it, and keeps what came of it before anything else: what an earlier run of the
// stage kept is taken. The error is a failure of the stage; of the runs beside the
// judge it is one only where another round of the stage may do better.
func (r *run) trial(ctx context.Context, name string, whole map[string]task.Digest) (*evidence.Run, error) {
	r.trialName, r.row.Sandbox, r.row.ExitCode = name, r.trialSandbox(name), nil
	out, kept := r.output(verified.Output(name))
	if kept {
		t, err := r.readTrial(ctx, out.Digest)
		if err != nil || t != nil {
			whole[name] = out.Digest
			return t, errors.Join(err, r.discard(ctx, r.in.Task, r.row.Sandbox))
		}
	}
	t := evidence.Run{Run: name, Attempt: r.in.Attempt, Round: r.in.Round, Commit: r.task.Commit, Path: r.task.Spec.Report}
	err := r.try(ctx, &t)
	var failure *task.Failure
	if errors.As(err, &failure) && name != evidence.Patch && ctx.Err() == nil && (!failure.Reason.Retryable() || r.in.Round >= stage.MaxRounds) {
		t.Reason, t.Text, err = failure.Reason, failure.Text, nil
	}
	if err == nil {
		err = r.settle(ctx)
	}
	if err != nil {
		return nil, err
	}
	if t.Log, err = r.storeLog(ctx); err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	if whole[name], err = r.keep(ctx, verified.Output(name), "tests", bytes.NewReader([]byte(r.sealed(string(text)))), verified.MaxRun); err != nil {
		return nil, err
	}
	r.ran, r.commands, r.gave, r.traffic = append(r.ran, r.commands...), nil, false, nil
	if err := r.discard(ctx, r.in.Task, r.row.Sandbox); err != nil {
		return nil, err
	}
	return r.readTrial(ctx, whole[name])
}

func (r *run) readTrial(ctx context.Context, digest task.Digest) (*evidence.Run, error) {
	from, err := r.Blobs.Open(ctx, digest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }() // it was only read
	return verified.Read(from, r.trialName, r.task.Commit, r.in.Attempt, r.in.Round)
}

// try brings a fresh sandbox to the base, and to the patch unless the run is of
// the base, and runs the verify command there.
func (r *run) try(ctx context.Context, t *evidence.Run) error {
	if err := r.create(ctx, stage.RoleVerify); err != nil {
		return err
	}
	for name, file := range map[string]string{"base": "base.bundle", "base.modules": "modules.tar"} {
		if o, ok := r.output(name); ok {
			if err := r.putBlob(ctx, o.Digest, file); err != nil {
				return err
			}
		}
	}
	if err := r.script(ctx, "verify-checkout", script.VerifyCheckout, task.VerifyFailed, "the checkout of the base"); err != nil {
		return err
	}
	if err := r.setupAgain(ctx, "verify-setup"); err != nil {
		return err
	}
	if patch, _ := r.output("patch"); patch.Size > 0 && t.Run != evidence.Base {
		if err := r.applyPatch(ctx, patch); err != nil {
			return err
		}
	}
	return r.judgeTrial(ctx, t)
}

// judgeTrial runs the verify command and takes what it says, whatever that is.
func (r *run) judgeTrial(ctx context.Context, t *evidence.Run) error {
	if err := r.give(ctx, task.Verify, stage.RoleVerify); err != nil {
		return err
	}
	if err := r.openLog(ctx); err != nil {
		return err
	}
	c := command{
		id: "verify", argv: []string{"sh", "-c", r.task.Spec.Verify}, env: append(r.taskEnv(), r.leaseEnv()...), timeout: r.plan.CommandTime(task.Verify),
	}
	if err := r.recordCommand(ctx, c); err != nil {
		return err
	}
	var told evidence.Run // by the command's output, where that is the report
	out := verified.NewSink(r.log, t.Path == verified.Stdout, func(from io.Reader) { verified.Report(&told, from) })
	res, err := r.shown(ctx, c, 0, out)
	if out.End(); err != nil {
		return err
	}
	t.ExitCode, t.DurationMS = r.row.ExitCode, res.EndedAt.Sub(res.StartedAt).Milliseconds()
	if verdict := r.judge(res, task.VerifyFailed, "the verify command"); verdict != nil {
		var failure *task.Failure
		if !errors.As(verdict, &failure) || failure.Reason.Retryable() || failure.Reason.Class() == "cancelled" {
			return verdict
		}
		t.Reason, t.Text = failure.Reason, failure.Text
	}
	if t.Path == verified.Stdout {
		t.Tests, t.Problem = told.Tests, told.Problem
		return nil
	}
	return r.testReport(ctx, t)
}

// giveEvidence keeps the report and the evidence, puts that on record, and returns
// the verdict.
func (r *run) giveEvidence(ctx context.Context, in evidence.Input, manifests bool) error {
	from, err := r.Blobs.Open(ctx, in.Patch)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	if in.Findings, err = evidence.Find(from); err != nil {
		return err
	}
	doc := evidence.New(in)
	text, err := doc.Canonical()
	if err != nil {
		return err
	}
	digest, err := r.keep(ctx, "evidence", "evidence", bytes.NewReader(text), verified.MaxEvidence, doc.Flags...)
	if err != nil {
		return err
	}
	err = r.Recorder.Record(ctx, r.in.Task, "verify.judged/"+string(digest), "verify.judged", seenByControl, verified.Judged(r.in, digest, doc))
	if err != nil {
		return err
	}
	said := verified.NewDocument(in.Judge, in.Command, manifests)
	said.Outcome, said.Evidence = doc.Outcome, digest
	if text, err = json.Marshal(said); err != nil {
		return err
	}
	if _, err := r.keep(ctx, "report", "report", bytes.NewReader(text), verified.MaxEvidence); err != nil {
		return err
	}
	if in.Judge.Problem != "" {
		r.note("the report " + listed([]string{in.Report}) + ": " + in.Judge.Problem + "; the exit code stands for it")
	}
	if slices.Contains(doc.Flags, evidence.FlagDisagrees) {
		r.note("the verify command ended with 0, and its report has failures")
	}
	return verified.Verdict(doc, in.Judge)
}

package steps

import (
	"context"
	"fmt"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/fact"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxPrompt bounds the prompt: the agent gets it as one environment variable,
// and Linux bounds those at 128 KiB.
const maxPrompt = 100 << 10

// admit decides what the task may do and writes it down.
func (w *Work) admit(ctx context.Context, r *run) error {
	if err := checkSpec(r.task.Spec); err != nil {
		return err
	}
	// The repository may name the agent that the request leaves out.
	if r.asked.Agent.Name != "" || !r.plan.Repository.Allowed {
		if err := stage.CheckAgent(r.asked.Agent, w.Harnesses); err != nil {
			return err
		}
	}
	if err := w.Leases.Check(ctx, r.task.RequestedBy, r.plan.Rules); err != nil {
		return err
	}
	spec, err := fact.Digest(r.asked)
	if err != nil {
		return err
	}
	err = w.Recorder.Record(ctx, r.in.Task, "task.admitted/"+string(r.plan.Digest), "task.admitted", seenByControl, fact.TaskAdmitted{
		Task: r.in.Task, RequestedBy: r.task.RequestedBy, Repo: r.task.Spec.Repo,
		SpecDigest: spec, PolicyDigest: r.plan.Digest, Limits: r.plan.Limits.WithDefaults(), Rules: r.plan.Rules,
		Project: r.asked.Project, OperatorDigest: fact.LayerDigest(r.task.Layers.Operator), ProjectDigest: fact.LayerDigest(r.task.Layers.Project),
		Unknown: r.plan.Unknown, Identity: r.plan.Identity, Model: r.plan.Model, Timeout: r.plan.Timeout, Files: r.plan.Files, Widened: r.plan.Files.Widened(), Sudo: r.plan.Sudo,
	})
	if err != nil {
		return err
	}
	// Fresh sandboxes even when the engine forgot an attempt that we know of.
	r.outcome.Attempt = r.task.Attempt + 1
	r.outcome.Time = r.plan.LongestCommand()
	return w.Facts.SetTask(ctx, r.in.Task, stage.TaskUpdate{State: task.Running, PolicyDigest: r.plan.Digest})
}

func checkSpec(s task.Spec) error {
	switch {
	case (s.Repo.URL == "") == (s.Repo.Bundle == ""):
		return task.Fail(task.InputInvalid, "repo: exactly one of url and bundle is needed", nil)
	case len(s.Prompt) > maxPrompt:
		return task.Fail(task.InputInvalid, fmt.Sprintf("prompt: longer than %d bytes", maxPrompt), nil)
	}
	return nil
}

// provision makes the agent's sandbox.
func (w *Work) provision(ctx context.Context, r *run) error {
	if err := w.Facts.SetTask(ctx, r.in.Task, stage.TaskUpdate{Attempt: r.in.Attempt}); err != nil {
		return err
	}
	return r.create(ctx, stage.RoleAgent)
}

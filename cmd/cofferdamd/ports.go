package main

import (
	"context"
	"slices"

	"github.com/cofferdam/cofferdam/internal/identity/issuer"
	"github.com/cofferdam/cofferdam/internal/policy"
	policytools "github.com/cofferdam/cofferdam/internal/policy/tools"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/task"
)

// policies gives the stages and the API what policy says.
type policies struct {
	operator string // text of the operator's layer
	store    *store.Store
	issuer   *issuer.Issuer
}

// Layers takes the layers that stand above the tasks of a project now.
func (p *policies) Layers(ctx context.Context, project string) (task.Layers, error) {
	layers := task.Layers{Operator: p.operator}
	if project == "" {
		return layers, nil
	}
	found, err := p.store.Project(ctx, project)
	if err != nil {
		return task.Layers{}, err
	}
	layers.Project = found.Text
	return layers, nil
}

// Compile turns a task's request into the stages' plan.
func (p *policies) Compile(spec task.Spec, layers task.Layers) (stage.Plan, error) {
	plan, err := policy.Compile(spec, layers)
	if err != nil {
		return stage.Plan{}, err
	}
	if len(plan.Identity) > 0 && p.issuer.URL() == "" {
		return stage.Plan{}, issuer.NotConfigured(task.InputPolicy, "identity: ")
	}
	var tools stage.ToolPolicy
	if plan.Tools != nil {
		tools = &policytools.Policy{Tools: *plan.Tools}
	}
	return stage.Plan{
		Tools: tools, Digest: plan.Digest, Limits: plan.Limits, Rules: plan.Rules, Unknown: plan.Unknown, Identity: plan.Identity, Timeout: plan.Timeout, Files: plan.Files, Sudo: plan.Sudo,
		Flags: plan.Flags, Verifying: plan.Verifying, Repository: plan.Repository, Narrowed: plan.Narrowed, Model: plan.Model,
	}, nil
}

// open gives the engine the tasks that have not ended.
type open struct{ store *store.Store }

func (o open) list(ctx context.Context) ([]stage.Open, error) {
	ids, err := o.store.OpenTasks(ctx)
	if err != nil {
		return nil, err
	}
	cancelled, err := o.store.CancelledOpen(ctx)
	if err != nil {
		return nil, err
	}
	tasks := make([]stage.Open, 0, len(ids))
	for _, id := range ids {
		tasks = append(tasks, stage.Open{ID: id, CancelRequested: slices.Contains(cancelled, id)})
	}
	return tasks, nil
}

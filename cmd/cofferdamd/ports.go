package main

import (
	"context"
	"slices"

	"github.com/cofferdam/cofferdam/internal/policy"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/task"
)

// policies gives the stages what policy says.
type policies struct{ operator policy.Operator }

// Compile turns a task's policy into the stages' plan.
func (p policies) Compile(spec task.Spec) (stage.Plan, error) {
	plan, err := p.operator.Compile(spec)
	if err != nil {
		return stage.Plan{}, err
	}
	return stage.Plan{Digest: plan.Digest, Limits: plan.Limits, Rules: plan.Rules}, nil
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

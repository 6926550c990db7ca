package steps

import (
	"context"
	"slices"

	"github.com/cofferdam/cofferdam/internal/task"
)

// answered adds to a grant that is about to be given what persons decided
// before.
func (r *run) answered(ctx context.Context, grant *task.Grant) error {
	if r.Approvals == nil || grant.Unknown.Mode != task.UnknownAsk {
		return nil
	}
	rules, err := r.Approvals.Rules(ctx, r.in.Task, r.task.Spec.Project, grant.Stage, grant.Sandbox)
	grant.Rules = slices.Concat(grant.Rules, rules)
	r.granted = append(r.granted, rules...)
	return err
}

// abandon withdraws what the stage asked and nobody answered.
func (r *run) abandon(ctx context.Context) error {
	if r.Approvals == nil {
		return nil
	}
	return r.Approvals.Abandon(ctx, r.in.Task, r.row.Sandbox)
}

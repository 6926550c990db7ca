package steps

import (
	"context"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// withdrawnMost is how many ids of rules that were taken back a grant repeats.
const withdrawnMost = 256

// Held is what a running stage's sandbox may reach; false where this process
// does not know it: it began later and the stage is not taken up again yet.
func (w *Work) Held(sandbox string) (task.Grant, bool) {
	h := w.grants.take(sandbox)
	defer w.grants.let(sandbox, h)
	if h.grant == nil {
		return task.Grant{}, false
	}
	return *h.grant, true
}

// Extend adds a rule that follows from a person's decision to a sandbox's
// grant, while the stage runs whose question it answered. Nothing is cut by it.
func (w *Work) Extend(ctx context.Context, sandbox string, stage task.StageName, rule task.Rule) error {
	h := w.grants.take(sandbox)
	defer w.grants.let(sandbox, h)
	if h.grant == nil || h.grant.Stage != stage || h.grant.Unknown.Mode != task.UnknownAsk || !strings.HasPrefix(rule.ID, task.RuleAsked) ||
		slices.Contains(h.grant.Withdrawn, rule.ID) || slices.ContainsFunc(h.grant.Rules, func(r task.Rule) bool { return r.ID == rule.ID }) {
		return nil
	}
	next := *h.grant
	next.Rules = append(slices.Clone(next.Rules), rule)
	h.grant = &next
	return gone(w.Sandboxes.Grant(ctx, next))
}

// Retract takes such a rule out of a sandbox's grant again, and has what passes
// under it cut. A sandbox whose grant is not known here loses all of it, as in
// Withdraw.
func (w *Work) Retract(ctx context.Context, taskID, sandbox, rule string) error {
	h := w.grants.take(sandbox)
	defer w.grants.let(sandbox, h)
	if h.grant == nil {
		return gone(w.Sandboxes.Grant(ctx, task.Grant{Task: taskID, Sandbox: sandbox}))
	}
	next := *h.grant
	next.Rules = slices.DeleteFunc(slices.Clone(next.Rules), func(r task.Rule) bool { return r.ID == rule })
	if !slices.Contains(next.Withdrawn, rule) {
		next.Withdrawn = append(slices.Clone(next.Withdrawn), rule)
		next.Withdrawn = next.Withdrawn[max(0, len(next.Withdrawn)-withdrawnMost):]
	}
	h.grant = &next
	return gone(w.Sandboxes.Grant(ctx, next))
}

// gone forgives that a sandbox is no more.
func gone(err error) error {
	if hasReason(err, task.InputNotFound) || hasReason(err, task.InfraSandboxLost) {
		return nil
	}
	return err
}

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

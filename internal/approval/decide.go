package approval

import (
	"context"
	"errors"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Decide answers an entry that waits. An answer beyond one use is a decision,
// which answers what else waits and is about the same. Errors are
// *task.Failure; to who may not know of it an entry is not there.
func (x *Inbox) Decide(ctx context.Context, id string, answer task.ApprovalAnswer) (task.Approval, error) {
	a, err := x.rows.Approval(ctx, id)
	if err != nil {
		return task.Approval{}, err
	}
	now := x.moment()
	if err := judge(a, &answer, now); err != nil {
		return task.Approval{}, err
	}
	made, stands := standing(a, answer, newID("d-"), now)
	next := decided(a, answer, now)
	if stands {
		next.Decision = made.ID
		a, err = x.rows.Settle(ctx, task.AskedWaiting, next, &made)
	} else {
		a, err = x.rows.Settle(ctx, task.AskedWaiting, next, nil)
	}
	if err != nil {
		return task.Approval{}, err
	}
	// What was answered counts, whoever is told of it and when.
	defer x.wake()
	errs := []error{x.tell(ctx, a)}
	if stands {
		if answer.Allow {
			if lasts, err := x.rows.Apply(ctx, made.ID, a.Sandbox, now); err == nil && lasts {
				x.extend(ctx, a.Sandbox, made)
			}
		}
		errs = append(errs, x.spread(ctx, made, answer, now))
	}
	return a, errors.Join(errs...)
}

func decided(a task.Approval, answer task.ApprovalAnswer, now time.Time) task.Approval {
	a.State = task.AskedDenied
	if answer.Allow {
		a.State = task.AskedAllowed
	}
	a.Scope, a.DecidedBy, a.DecidedAt, a.Decision = answer.Scope, answer.By, &now, ""
	return a
}

// spread answers what else waits and is about the same.
func (x *Inbox) spread(ctx context.Context, s task.Standing, answer task.ApprovalAnswer, now time.Time) error {
	f := Filter{Task: s.Task, Waiting: true}
	if s.Scope == task.ScopeProject {
		f = Filter{Waiting: true}
	}
	list, err := x.rows.List(ctx, f)
	errs := []error{err}
	for _, a := range list {
		q := task.Question{Kind: a.Kind, Task: a.Task, Project: a.Project, Stage: a.Stage, What: a.What}
		if !answers(s, q, now) || a.Admins && !answer.Admin {
			continue
		}
		next := decided(a, answer, now)
		next.Decision = s.ID
		settled, err := x.rows.Settle(ctx, task.AskedWaiting, next, nil)
		if err == nil {
			err = x.tell(ctx, settled)
		} else if isReason(err, task.InputConflict) {
			err = nil // it ended by itself
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Get gives an entry that who asks may see.
func (x *Inbox) Get(ctx context.Context, id, user string, admin bool) (task.Approval, error) {
	a, err := x.rows.Approval(ctx, id)
	if err != nil {
		return task.Approval{}, err
	}
	if !admin && a.Requester != user {
		return task.Approval{}, task.Fail(task.InputNotFound, "no approval "+a.ID, nil)
	}
	return a, nil
}

// List gives entries, newest first.
func (x *Inbox) List(ctx context.Context, f Filter) ([]task.Approval, error) {
	return x.rows.List(ctx, f)
}

// Decisions gives decisions, newest first.
func (x *Inbox) Decisions(ctx context.Context, f Filter) ([]task.Standing, error) {
	list, err := x.rows.Standings(ctx, f)
	if !f.Waiting || err != nil {
		return list, err
	}
	now := x.moment()
	kept := list[:0]
	for _, s := range list {
		if s.Lasts(now) {
			kept = append(kept, s)
		}
	}
	return kept, nil
}

// Withdraw takes a decision back, or with an entry's id an answer for one use.
// What passes under it is cut; it says whether every machine was told. Who
// decided it may, the requester of its task, and administrators.
func (x *Inbox) Withdraw(ctx context.Context, id, user string, admin bool) (cut bool, err error) {
	now := x.moment()
	if len(id) > 2 && id[:2] == "ap" {
		return x.withdrawOnce(ctx, id, user, admin, now)
	}
	list, err := x.rows.Standings(ctx, Filter{ID: id})
	if err != nil {
		return false, err
	}
	if len(list) == 0 || !admin && list[0].Requester != user && list[0].By != user {
		return false, task.Fail(task.InputNotFound, "no decision of this id; `cofferdam approvals decisions` lists them", nil)
	}
	if !admin && list[0].Scope == task.ScopeProject {
		return false, task.Fail(task.PolicyDenied, "only administrators decide for a whole project", nil)
	}
	s, where, err := x.rows.Withdraw(ctx, id, user, now)
	if err != nil {
		return false, err
	}
	if err := x.tellStanding(ctx, s); err != nil {
		return false, err
	}
	x.wake()
	if s.Kind == task.AskTool {
		return true, nil // nothing passes under it; what was begun is not undone
	}
	return x.retract(ctx, s.Task, where, task.RuleAsked+s.ID), nil
}

func (x *Inbox) withdrawOnce(ctx context.Context, id, user string, admin bool, now time.Time) (bool, error) {
	a, err := x.Get(ctx, id, user, admin)
	if err != nil {
		return false, err
	}
	switch {
	case a.Kind == task.AskTool && a.UsedBy != "":
		return false, task.Fail(task.InputConflict, "approval "+a.ID+" was used already; what was begun is not undone", nil)
	case a.State == task.AskedWithdrawn:
	case a.State != task.AskedAllowed || a.Decision != "":
		return false, task.Fail(task.InputConflict, "approval "+a.ID+" is no answer for one use that was allowed; withdraw its decision", nil)
	default:
		if err := x.tell(ctx, a); err != nil { // that it was allowed, first
			return false, err
		}
		next := a
		next.State, next.DecidedBy, next.DecidedAt = task.AskedWithdrawn, user, &now
		if a, err = x.rows.Settle(ctx, task.AskedAllowed, next, nil); err != nil {
			return false, err
		}
	}
	if err := x.tell(ctx, a); err != nil {
		return false, err
	}
	x.wake()
	if a.Kind == task.AskTool {
		return true, nil
	}
	return x.retract(ctx, a.Task, []string{a.Sandbox}, task.RuleAsked+a.ID), nil
}

// retract has machines cut what passes under a rule, and says whether all were
// told.
func (x *Inbox) retract(ctx context.Context, taskID string, sandboxes []string, rule string) bool {
	all := true
	for _, sandbox := range sandboxes {
		if sandbox == "" {
			continue
		}
		each, cancel := context.WithTimeout(context.WithoutCancel(ctx), extendWait)
		if err := x.grants.Retract(each, taskID, sandbox, rule); err != nil {
			x.log.WarnContext(ctx, "a decision was taken back, and a machine was not told", "sandbox", sandbox, "rule", rule, "error", err.Error())
			all = false
		}
		cancel()
	}
	return all
}

// Abandon withdraws what waits of a task, in one sandbox or (empty) in all: who
// asked is gone.
func (x *Inbox) Abandon(ctx context.Context, taskID, sandbox string) error {
	list, err := x.rows.List(ctx, Filter{Task: taskID, Sandbox: sandbox, Waiting: true})
	if err != nil || len(list) == 0 {
		return err
	}
	defer x.wake()
	var errs []error
	now := x.moment()
	for _, a := range list {
		next := a
		next.State, next.DecidedAt = task.AskedWithdrawn, &now
		settled, err := x.rows.Settle(ctx, task.AskedWaiting, next, nil)
		if err == nil {
			err = x.tell(ctx, settled)
		} else if isReason(err, task.InputConflict) {
			err = nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// expire ends an entry that nobody answered in time, and gives what it is now.
func (x *Inbox) expire(ctx context.Context, a task.Approval) (task.Approval, error) {
	next := a
	at := a.ExpiresAt
	next.State, next.DecidedAt = task.AskedExpired, &at
	settled, err := x.rows.Settle(ctx, task.AskedWaiting, next, nil)
	if isReason(err, task.InputConflict) {
		return x.rows.Approval(ctx, a.ID)
	}
	return settled, err
}

// Run expires what nobody answers, and puts on record what a crash left untold,
// until ctx ends.
func (x *Inbox) Run(ctx context.Context) {
	x.retell(ctx)
	for ctx.Err() == nil {
		wait := x.sweep(ctx)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-x.sooner:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// How often Run looks although nothing is due, and when the database fails.
const (
	idle  = time.Minute
	retry = 5 * time.Second
)

// sweep expires what is due and says how long nothing will be.
func (x *Inbox) sweep(ctx context.Context) time.Duration {
	list, err := x.rows.List(ctx, Filter{Waiting: true})
	if err != nil {
		if ctx.Err() == nil {
			x.log.ErrorContext(ctx, "questions that wait can't be read", "error", err.Error())
		}
		return retry
	}
	now, wait := x.moment(), idle
	for _, a := range list {
		if left := a.ExpiresAt.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		if a, err = x.expire(ctx, a); err == nil {
			err = x.tell(ctx, a)
		}
		if err != nil {
			x.log.ErrorContext(ctx, "a question can't be ended", "approval", a.ID, "error", err.Error())
			wait = min(wait, retry)
		}
		x.wake()
	}
	return max(wait, time.Millisecond)
}

// retell puts on record what the audit may not have.
func (x *Inbox) retell(ctx context.Context) {
	list, err := x.rows.List(ctx, Filter{Untold: true})
	errs := []error{err}
	for _, a := range list {
		errs = append(errs, x.tell(ctx, a))
	}
	standings, err := x.rows.Standings(ctx, Filter{Untold: true})
	errs = append(errs, err)
	for _, s := range standings {
		errs = append(errs, x.tellStanding(ctx, s))
	}
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		x.log.ErrorContext(ctx, "approvals are not on record yet", "error", err.Error())
	}
}

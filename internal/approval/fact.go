package approval

import (
	"context"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// seenBy is who saw the facts of this package.
const seenBy = "control plane"

// fact is what the audit keeps of a question and its answer. It says what was
// asked by digest, and by host or tool; paths, arguments and input are not in
// it. Fields are added, never changed.
type fact struct {
	Task      string             `json:"task"`
	Approval  string             `json:"approval"`
	Kind      task.ApprovalKind  `json:"kind"`
	Stage     task.StageName     `json:"stage,omitempty"`
	Attempt   int                `json:"attempt,omitempty"`
	Sandbox   string             `json:"sandbox,omitempty"`
	Requester string             `json:"requester"`
	Digest    task.Digest        `json:"digest"`
	Subject   task.ApprovalMatch `json:"subject,omitzero"`
	Count     int                `json:"count,omitempty"`
	AskedAt   time.Time          `json:"askedAt"`
	ExpiresAt time.Time          `json:"expiresAt"`

	State    task.ApprovalState `json:"state"`
	Scope    task.ApprovalScope `json:"scope,omitempty"`
	Decision string             `json:"decision,omitempty"`
	By       string             `json:"by,omitempty"`
	At       *time.Time         `json:"at,omitempty"`
	Until    *time.Time         `json:"until,omitempty"`
	Rules    []task.Rule        `json:"rules,omitempty"` // that the stage reaches by it
}

func factOf(a task.Approval) fact {
	return fact{
		Task: a.Task, Approval: a.ID, Kind: a.Kind, Stage: a.Stage, Attempt: a.Attempt, Sandbox: a.Sandbox, Requester: a.Requester,
		Digest: a.Digest, Subject: task.MatchOf(a.Kind, a.What), AskedAt: a.AskedAt, ExpiresAt: a.ExpiresAt, State: task.AskedWaiting,
	}
}

// tell puts an entry's state on record, and before it that it was asked.
func (x *Inbox) tell(ctx context.Context, a task.Approval) error {
	if a.Told {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	asked := factOf(a)
	if err := x.audit.Record(ctx, a.Task, "approval.asked/"+a.ID, "approval.asked", seenBy, asked); err != nil {
		return err
	}
	if a.State != task.AskedWaiting {
		ended := asked
		ended.State, ended.Scope, ended.Decision, ended.By, ended.At, ended.Count = a.State, a.Scope, a.Decision, a.DecidedBy, a.DecidedAt, a.Count
		kind := ""
		switch a.State {
		case task.AskedAllowed, task.AskedDenied:
			kind = "approval.decided"
			if err := x.detail(ctx, a, &ended); err != nil {
				return err
			}
		case task.AskedExpired:
			kind = "approval.expired"
		default:
			kind = "approval.withdrawn"
		}
		if err := x.audit.Record(ctx, a.Task, kind+"/"+a.ID, kind, seenBy, ended); err != nil {
			return err
		}
	}
	return x.rows.Told(ctx, a.ID, a.State)
}

// detail adds what an answer lets the stage reach, and until when.
func (x *Inbox) detail(ctx context.Context, a task.Approval, f *fact) error {
	id := a.ID
	if a.Decision != "" {
		id = a.Decision
		list, err := x.rows.Standings(ctx, Filter{ID: a.Decision})
		if err != nil {
			return err
		}
		if len(list) > 0 {
			f.Until = list[0].Until
		}
	}
	if rule, ok := task.MatchOf(a.Kind, a.What).Rule(id); ok && a.State == task.AskedAllowed {
		f.Rules = []task.Rule{rule}
	}
	return nil
}

// tellStanding puts on record that a decision was taken back.
func (x *Inbox) tellStanding(ctx context.Context, s task.Standing) error {
	if s.Told || s.Withdrawn == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	err := x.audit.Record(ctx, s.Task, "approval.withdrawn/"+s.ID, "approval.withdrawn", seenBy, fact{
		Task: s.Task, Approval: s.Approval, Kind: s.Kind, Stage: s.Stage, Requester: s.Requester, Subject: s.Match, AskedAt: s.From,
		State: task.AskedWithdrawn, Scope: s.Scope, Decision: s.ID, By: s.Ended, At: s.Withdrawn, Until: s.Until,
	})
	if err != nil {
		return err
	}
	return x.rows.Told(ctx, s.ID, task.AskedWithdrawn)
}

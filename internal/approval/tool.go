package approval

import (
	"context"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Tool asks about the use of a tool and waits for the answer until ctx ends.
// Every use has an entry, also one that a decision answers, and whatever became of
// it is found again under the same key: whoever asks a second time gets the first
// answer, so that nobody is asked twice and nothing is said in two ways. Errors
// are *task.Failure.
func (x *Inbox) Tool(ctx context.Context, q task.Question) (task.ToolAnswer, error) {
	q.Kind = task.AskTool
	got, err := x.Await(ctx, q, q.Key)
	if isReason(err, task.LimitSize) || isReason(err, task.LimitRequests) {
		return task.ToolAnswer{Reason: task.ApprovalDenied, Text: "nobody was asked: " + err.(*task.Failure).Text}, nil //nolint:errorlint,forcetypeassert // isReason saw it
	}
	if err != nil {
		return task.ToolAnswer{}, err
	}
	a := task.ToolAnswer{Allow: got.Allow, Reason: got.Reason, Approval: got.Approval.ID}
	switch {
	case got.Allow:
		a.Text = "a person allowed it (" + string(got.Approval.Scope) + ")"
	case got.Approval.State == task.AskedExpired:
		a.Text = "nobody answered in time"
	case got.Approval.State == task.AskedDenied:
		a.Text = "a person denied it"
	default:
		a.Text = fmt.Sprintf("it was %s", got.Approval.State)
	}
	return a, nil
}

// byDecision answers an entry that waits by a decision that stands.
func (x *Inbox) byDecision(ctx context.Context, a task.Approval, s task.Standing, now time.Time) (task.Approval, error) {
	if a.State != task.AskedWaiting {
		return a, nil
	}
	next := decided(a, task.ApprovalAnswer{Allow: s.Allow, Scope: s.Scope, By: s.By}, now)
	next.Decision = s.ID
	settled, err := x.rows.Settle(ctx, task.AskedWaiting, next, nil)
	if isReason(err, task.InputConflict) {
		return x.rows.Approval(ctx, a.ID) // answered otherwise meanwhile
	}
	return settled, err
}

// readTool says what an entry that ended comes to. One that was taken stays
// taken, whatever was withdrawn later: it was begun.
func (x *Inbox) readTool(ctx context.Context, q task.Question, use string, a task.Approval) (Answer, error) {
	allowed := Answer{Allow: true, Once: a.Decision == "", ID: a.ID, Approval: a}
	if a.Decision != "" {
		allowed.ID = a.Decision
	}
	refused := Answer{Reason: reasonOf(a.State), Approval: a}
	if a.UsedBy != "" && a.UsedBy == use {
		return allowed, nil
	}
	if a.State != task.AskedAllowed {
		return refused, nil
	}
	if a.Decision != "" {
		list, err := x.rows.Standings(ctx, Filter{ID: a.Decision})
		if err != nil {
			return refused, err
		}
		if len(list) == 0 || !list[0].Allow || !answers(list[0], q, x.moment()) {
			now := x.moment()
			next := a
			next.State, next.DecidedAt = task.AskedWithdrawn, &now
			if settled, err := x.rows.Settle(ctx, task.AskedAllowed, next, nil); err != nil && !isReason(err, task.InputConflict) {
				return refused, err
			} else if err == nil {
				refused.Approval = settled
				if err := x.tell(ctx, settled); err != nil {
					return refused, err
				}
			}
			refused.Reason = task.ApprovalDenied
			return refused, nil
		}
	}
	took, err := x.rows.Use(ctx, a.ID, use)
	if err != nil || !took {
		return refused, err
	}
	return allowed, nil
}

// Package approvals keeps the rows of the inbox: questions that were asked of
// persons, and the decisions they made. It decides nothing.
//
// Words. A question is immutable and kept as JSON; beside it stand its state and
// what became of it. Each change of a question is an event of its task, kept in
// the same transaction.
package approvals

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/approval"
	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Rows keeps the inbox. It is safe for concurrent use.
type Rows struct{ base table.Base }

var _ approval.Rows = Rows{}

// New returns the rows in the store's database.
func New(b table.Base) Rows { return Rows{b} }

type row struct {
	bun.BaseModel `bun:"table:approvals"`

	ID        string `bun:"id,pk"`
	Task      string `bun:"task"`
	Number    int64  `bun:"number"`
	Key       string `bun:"key"`
	Requester string `bun:"requester"`
	Sandbox   string `bun:"sandbox"`
	Digest    string `bun:"digest"`
	Question  string `bun:"question"`
	Count     int64  `bun:"count"`
	AskedAt   int64  `bun:"asked_at"`
	ExpiresAt int64  `bun:"expires_at"`
	State     string `bun:"state"`
	Scope     string `bun:"scope"`
	Decision  string `bun:"decision"`
	DecidedBy string `bun:"decided_by"`
	DecidedAt *int64 `bun:"decided_at"`
	UsedBy    string `bun:"used_by"`
	Told      int64  `bun:"told"`
}

// question is what never changes of an entry.
type question struct {
	Kind     task.ApprovalKind     `json:"kind"`
	Project  string                `json:"project,omitempty"`
	Stage    task.StageName        `json:"stage,omitempty"`
	Attempt  int                   `json:"attempt,omitempty"`
	What     string                `json:"what"` // as text, so that its bytes stay as they are
	Commands []task.RunningCommand `json:"commands,omitempty"`
	Admins   bool                  `json:"admins,omitempty"`
}

func (r row) approval() (task.Approval, error) {
	q, err := table.From[question](r.Question)
	if err != nil {
		return task.Approval{}, fmt.Errorf("approval %q: %w", r.ID, err)
	}
	return task.Approval{
		ID: r.ID, Kind: q.Kind, Task: r.Task, Project: q.Project, Stage: q.Stage, Attempt: q.Attempt, Sandbox: r.Sandbox, Requester: r.Requester,
		What: json.RawMessage(q.What), Digest: task.Digest(r.Digest), Commands: q.Commands, Count: int(r.Count), Admins: q.Admins,
		AskedAt: table.Moment(r.AskedAt), ExpiresAt: table.Moment(r.ExpiresAt), State: task.ApprovalState(r.State), Scope: task.ApprovalScope(r.Scope),
		Decision: r.Decision, DecidedBy: r.DecidedBy, DecidedAt: table.Optional(r.DecidedAt), UsedBy: r.UsedBy, Told: r.Told == 1,
	}, nil
}

// Enter finds or makes the entry of a question.
func (s Rows) Enter(ctx context.Context, key string, a task.Approval, last bool, waiting, all int) (task.Approval, error) {
	text, err := table.Text(question{a.Kind, a.Project, a.Stage, a.Attempt, string(a.What), a.Commands, a.Admins})
	if err != nil {
		return task.Approval{}, err
	}
	var out task.Approval
	err = s.base.Change(ctx, a.Task, func(tx bun.Tx) error {
		old, found, err := s.current(ctx, tx, key, a, last)
		if err != nil {
			return err
		}
		if found {
			out, err = s.again(ctx, tx, old)
			return err
		}
		if err := bounded(ctx, tx, a.Task, waiting, all); err != nil {
			return err
		}
		r := row{
			ID: a.ID, Task: a.Task, Key: key, Requester: a.Requester, Sandbox: a.Sandbox, Digest: string(a.Digest), Question: text, Count: 1,
			AskedAt: a.AskedAt.UnixNano(), ExpiresAt: a.ExpiresAt.UnixNano(), State: string(task.AskedWaiting),
		}
		if err := tx.NewRaw("SELECT coalesce(max(number), 0) + 1 FROM approvals WHERE task = ?", a.Task).Scan(ctx, &r.Number); err != nil {
			return err
		}
		if _, err := tx.NewInsert().Model(&r).Exec(ctx); err != nil {
			return err
		}
		out, err = s.emit(ctx, tx, r)
		return err
	})
	return out, s.base.Failure("ask", err)
}

// current finds the entry that the question is. One that asked for something
// else under the same key becomes void.
func (s Rows) current(ctx context.Context, tx bun.Tx, key string, a task.Approval, last bool) (row, bool, error) {
	var old row
	err := tx.NewSelect().Model(&old).Where("task = ? AND key = ?", a.Task, key).OrderExpr("number DESC").Limit(1).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return old, false, nil
	}
	if err != nil {
		return old, false, err
	}
	waits := old.State == string(task.AskedWaiting)
	unused := old.State == string(task.AskedAllowed) && old.Decision == "" && old.UsedBy == ""
	if old.Digest != string(a.Digest) {
		if !waits && !unused {
			return old, false, nil
		}
		at := a.AskedAt.UnixNano()
		old.State, old.DecidedAt, old.Told = string(task.AskedVoid), &at, 0
		if _, err := tx.NewUpdate().Model(&old).WherePK().Exec(ctx); err != nil {
			return old, false, err
		}
		_, err := s.emit(ctx, tx, old)
		return old, false, err
	}
	fresh := a.AskedAt.UnixNano() < old.ExpiresAt
	return old, last || fresh && (waits || unused), nil
}

// again counts an entry that waits.
func (s Rows) again(ctx context.Context, tx bun.Tx, r row) (task.Approval, error) {
	if r.State != string(task.AskedWaiting) {
		return r.approval()
	}
	r.Count++
	if _, err := tx.NewUpdate().Model(&r).Column("count").WherePK().Exec(ctx); err != nil {
		return task.Approval{}, err
	}
	return r.approval() // no event: a flood of the same question is one
}

func bounded(ctx context.Context, tx bun.Tx, taskID string, waiting, all int) error {
	var n struct{ Waiting, All, Live int }
	err := tx.NewRaw("SELECT (SELECT count(*) FROM approvals WHERE task = ? AND state = 'waiting') AS waiting, "+
		"(SELECT count(*) FROM approvals WHERE task = ?) AS \"all\", "+
		"(SELECT count(*) FROM tasks WHERE id = ? AND ended_at IS NULL AND cancel_requested_at IS NULL) AS live", taskID, taskID, taskID).Scan(ctx, &n)
	switch {
	case err != nil:
		return err
	case n.Live == 0:
		return task.Fail(task.Cancelled, "the task has ended or is being cancelled; nobody is asked for it", nil)
	case n.Waiting >= waiting:
		return task.Fail(task.LimitRequests, fmt.Sprintf("%d questions of the task wait for an answer already", n.Waiting), nil)
	case n.All >= all:
		return task.Fail(task.LimitRequests, fmt.Sprintf("the task has asked %d times; write a rule instead", n.All), nil)
	}
	return nil
}

// emit tells of an entry as the transaction leaves it.
func (s Rows) emit(ctx context.Context, tx bun.Tx, r row) (task.Approval, error) {
	a, err := r.approval()
	if err != nil {
		return a, err
	}
	return a, s.base.Emit(ctx, tx, r.Task, "approval", a)
}

// Approval finds an entry.
func (s Rows) Approval(ctx context.Context, id string) (task.Approval, error) {
	var r row
	err := s.base.Read.NewSelect().Model(&r).Where("id = ?", id).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return task.Approval{}, table.NotFound("approval", id)
	}
	if err != nil {
		return task.Approval{}, s.base.Failure("read approval", err)
	}
	a, err := r.approval()
	return a, s.base.Failure("read approval", err)
}

// List gives entries, newest first.
func (s Rows) List(ctx context.Context, f approval.Filter) ([]task.Approval, error) {
	var rows []row
	q := s.base.Read.NewSelect().Model(&rows)
	for column, value := range map[string]string{"id": f.ID, "task": f.Task, "requester": f.Requester, "sandbox": f.Sandbox} {
		if value != "" {
			q = q.Where("? = ?", bun.Ident(column), value)
		}
	}
	if f.Waiting {
		q = q.Where("state = 'waiting'")
	}
	if f.Untold {
		q = q.Where("told = 0")
	}
	if f.Limit > 0 {
		q = q.Limit(int64(f.Limit))
	}
	if err := q.OrderExpr("asked_at DESC, number DESC").Scan(ctx); err != nil {
		return nil, s.base.Failure("list approvals", err)
	}
	out := make([]task.Approval, 0, len(rows))
	for _, r := range rows {
		a, err := r.approval()
		if err != nil {
			return nil, s.base.Failure("list approvals", err)
		}
		out = append(out, a)
	}
	return out, nil
}

// Settle moves an entry to another state, once.
func (s Rows) Settle(ctx context.Context, from task.ApprovalState, a task.Approval, made *task.Standing) (task.Approval, error) {
	var out task.Approval
	err := s.base.Change(ctx, a.Task, func(tx bun.Tx) error {
		var r row
		err := tx.NewSelect().Model(&r).Where("id = ?", a.ID).Scan(ctx)
		if errors.Is(err, sql.ErrNoRows) {
			return table.NotFound("approval", a.ID)
		}
		if err != nil {
			return err
		}
		if r.State != string(from) {
			return task.Fail(task.InputConflict, "approval "+r.ID+" is "+r.State+" already", nil)
		}
		if made != nil {
			if err := keep(ctx, tx, *made); err != nil {
				return err
			}
		}
		r.State, r.Scope, r.Decision, r.DecidedBy, r.DecidedAt, r.Told = string(a.State), string(a.Scope), a.Decision, a.DecidedBy, table.Nanos(a.DecidedAt), 0
		if _, err := tx.NewUpdate().Model(&r).WherePK().Exec(ctx); err != nil {
			return err
		}
		out, err = s.emit(ctx, tx, r)
		return err
	})
	return out, s.base.Failure("settle approval", err)
}

// Use takes an answer for one use.
func (s Rows) Use(ctx context.Context, id, by string) (bool, error) {
	took := false
	err := s.base.Change(ctx, "", func(tx bun.Tx) error {
		var r row
		if err := tx.NewSelect().Model(&r).Where("id = ?", id).Scan(ctx); err != nil {
			return err
		}
		q, err := table.From[question](r.Question)
		if err != nil {
			return err
		}
		if r.State != string(task.AskedAllowed) || r.Decision != "" && q.Kind != task.AskTool {
			return nil
		}
		if took = r.UsedBy == by; took || r.UsedBy != "" {
			return nil
		}
		r.UsedBy, took = by, true
		_, err = tx.NewUpdate().Model(&r).Column("used_by").WherePK().Exec(ctx)
		return err
	})
	return took, s.base.Failure("use approval", err)
}

// Told says that the audit has the state of an entry or a decision.
func (s Rows) Told(ctx context.Context, id string, state task.ApprovalState) error {
	err := s.base.Change(ctx, "", func(tx bun.Tx) error {
		for _, text := range []string{
			"UPDATE approvals SET told = 1 WHERE id = ? AND state = ?",
			"UPDATE decisions SET told = 1 WHERE id = ? AND withdrawn_at IS NOT NULL AND ? = 'withdrawn'",
		} {
			if _, err := tx.NewRaw(text, id, state).Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return s.base.Failure("settle a record", err)
}

package approvals

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/approval"
	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

type decisionRow struct {
	bun.BaseModel `bun:"table:decisions"`

	ID          string `bun:"id,pk"`
	Number      int64  `bun:"number"`
	Scope       string `bun:"scope"`
	DecidedIn   string `bun:"decided_in"`
	Project     string `bun:"project"`
	Standing    string `bun:"standing"`
	UntilAt     *int64 `bun:"until_at"`
	WithdrawnAt *int64 `bun:"withdrawn_at"`
	WithdrawnBy string `bun:"withdrawn_by"`
	Told        int64  `bun:"told"`
}

type useRow struct {
	bun.BaseModel `bun:"table:decision_uses"`

	Decision string `bun:"decision,pk"`
	Sandbox  string `bun:"sandbox,pk"`
}

func (r decisionRow) standing() (task.Standing, error) {
	s, err := table.From[task.Standing](r.Standing)
	if err != nil {
		return task.Standing{}, fmt.Errorf("decision %q: %w", r.ID, err)
	}
	s.ID, s.Scope, s.Task, s.Project = r.ID, task.ApprovalScope(r.Scope), r.DecidedIn, r.Project
	s.Until, s.Withdrawn, s.Ended, s.Told = table.Optional(r.UntilAt), table.Optional(r.WithdrawnAt), r.WithdrawnBy, r.Told == 1
	return s, nil
}

// keep adds a decision. It is told with the answer that made it.
func keep(ctx context.Context, tx bun.Tx, d task.Standing) error {
	text, err := table.Text(d)
	if err != nil {
		return err
	}
	r := decisionRow{ID: d.ID, Scope: string(d.Scope), DecidedIn: d.Task, Project: d.Project, Standing: text, UntilAt: table.Nanos(d.Until), Told: 1}
	if err := tx.NewRaw("SELECT coalesce(max(number), 0) + 1 FROM decisions").Scan(ctx, &r.Number); err != nil {
		return err
	}
	_, err = tx.NewInsert().Model(&r).Exec(ctx)
	return err
}

// Apply remembers where a decision is given out.
func (s Rows) Apply(ctx context.Context, decision, sandbox string, now time.Time) (bool, error) {
	lasts := false
	err := s.base.Change(ctx, "", func(tx bun.Tx) error {
		d, err := one(ctx, tx, decision)
		if err != nil {
			return err
		}
		if lasts = d.Lasts(now); !lasts || sandbox == "" {
			return nil
		}
		_, err = tx.NewInsert().Model(&useRow{Decision: decision, Sandbox: sandbox}).On("CONFLICT (decision, sandbox) DO NOTHING").Exec(ctx)
		return err
	})
	return lasts && err == nil, s.base.Failure("apply decision", err)
}

func one(ctx context.Context, tx bun.Tx, id string) (task.Standing, error) {
	var r decisionRow
	err := tx.NewSelect().Model(&r).Where("id = ?", id).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return task.Standing{}, table.NotFound("decision", id)
	}
	if err != nil {
		return task.Standing{}, err
	}
	return r.standing()
}

// Standings gives decisions, newest first.
func (s Rows) Standings(ctx context.Context, f approval.Filter) ([]task.Standing, error) {
	var rows []decisionRow
	q := s.base.Read.NewSelect().Model(&rows)
	switch {
	case f.ID != "":
		q = q.Where("id = ?", f.ID)
	case f.Task != "" && f.Project != "":
		q = q.Where("(decided_in = ? OR scope = 'project' AND project = ?)", f.Task, f.Project)
	case f.Task != "":
		q = q.Where("decided_in = ?", f.Task)
	case f.Project != "":
		q = q.Where("scope = 'project' AND project = ?", f.Project)
	}
	if f.Waiting {
		q = q.Where("withdrawn_at IS NULL")
	}
	if f.Untold {
		q = q.Where("told = 0")
	}
	if f.Limit > 0 {
		q = q.Limit(int64(f.Limit))
	}
	if err := q.OrderExpr("number DESC").Scan(ctx); err != nil {
		return nil, s.base.Failure("list decisions", err)
	}
	out := make([]task.Standing, 0, len(rows))
	for _, r := range rows {
		d, err := r.standing()
		if err != nil {
			return nil, s.base.Failure("list decisions", err)
		}
		if f.Requester == "" || d.Requester == f.Requester || d.By == f.Requester {
			out = append(out, d)
		}
	}
	return out, nil
}

// Withdraw ends a decision, once.
func (s Rows) Withdraw(ctx context.Context, id, by string, at time.Time) (task.Standing, []string, error) {
	var out task.Standing
	var where []string
	err := s.base.Change(ctx, "", func(tx bun.Tx) error {
		d, err := one(ctx, tx, id)
		if err != nil {
			return err
		}
		if d.Withdrawn == nil {
			if _, err := tx.NewRaw("UPDATE decisions SET withdrawn_at = ?, withdrawn_by = ?, told = 0 WHERE id = ?", at.UnixNano(), by, id).Exec(ctx); err != nil {
				return err
			}
			d.Withdrawn, d.Ended, d.Told = &at, by, false
		}
		out = d
		return tx.NewSelect().Model((*useRow)(nil)).Column("sandbox").Where("decision = ?", id).OrderExpr("sandbox").Scan(ctx, &where)
	})
	return out, where, s.base.Failure("withdraw decision", err)
}

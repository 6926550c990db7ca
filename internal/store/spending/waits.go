package spending

import (
	"context"
	"database/sql"
	"errors"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

type waitRow struct {
	bun.BaseModel `bun:"table:budget_waits"`

	Task    string `bun:"task,pk"`
	Number  int64  `bun:"number,pk"`
	Sandbox string `bun:"sandbox"`
	Text    string `bun:"text"`
	Since   int64  `bun:"since_at"`
	Until   int64  `bun:"until_at"`
	Ended   *int64 `bun:"ended_at"`
	Raised  int64  `bun:"raised"`
	Told    int64  `bun:"told"`
}

func (w waitRow) wait() task.BudgetWait {
	return task.BudgetWait{
		Task: w.Task, Number: w.Number, Sandbox: w.Sandbox, Text: w.Text, Since: table.Moment(w.Since), Until: table.Moment(w.Until),
		Ended: table.Optional(w.Ended), Raised: w.Raised != 0, Told: int(w.Told),
	}
}

// Begin notes that a task waits, or gives the wait that it is in already. Its
// sandbox is the one that asked last.
func (r *Rows) Begin(ctx context.Context, w task.BudgetWait) (task.BudgetWait, error) {
	var row waitRow
	err := r.base.Change(ctx, "", func(tx bun.Tx) error {
		err := tx.NewSelect().Model(&row).Where("task = ? AND ended_at IS NULL", w.Task).Scan(ctx)
		switch {
		case err == nil && (w.Sandbox == "" || row.Sandbox == w.Sandbox):
			return nil
		case err == nil:
			row.Sandbox = w.Sandbox
			_, err = tx.NewRaw("UPDATE budget_waits SET sandbox = ? WHERE task = ? AND number = ?", w.Sandbox, w.Task, row.Number).Exec(ctx)
			return err
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		row = waitRow{Task: w.Task, Sandbox: w.Sandbox, Text: w.Text, Since: w.Since.UnixNano(), Until: w.Until.UnixNano()}
		if err := tx.NewRaw("SELECT coalesce(max(number), 0) + 1 FROM budget_waits WHERE task = ?", w.Task).Scan(ctx, &row.Number); err != nil {
			return err
		}
		_, err = tx.NewInsert().Model(&row).Exec(ctx)
		return err
	})
	return row.wait(), r.base.Failure("begin to wait for a budget", err)
}

// End notes that a wait is over. One that is over already stays as it is.
func (r *Rows) End(ctx context.Context, w task.BudgetWait) error {
	raised := 0
	if w.Raised {
		raised = 1
	}
	return r.base.Failure("end a wait for a budget", r.base.Change(ctx, "", func(tx bun.Tx) error {
		_, err := tx.NewRaw("UPDATE budget_waits SET ended_at = ?, raised = ? WHERE task = ? AND number = ? AND ended_at IS NULL",
			table.Nanos(w.Ended), raised, w.Task, w.Number).Exec(ctx)
		return err
	}))
}

// Told notes how many of a wait's records the audit has.
func (r *Rows) Told(ctx context.Context, taskID string, number int64, told int) error {
	return r.base.Failure("settle a wait for a budget", r.base.Change(ctx, "", func(tx bun.Tx) error {
		_, err := tx.NewRaw("UPDATE budget_waits SET told = max(told, ?) WHERE task = ? AND number = ?", told, taskID, number).Exec(ctx)
		return err
	}))
}

// Open lists the waits that are not over, and those of which the audit lacks
// something.
func (r *Rows) Open(ctx context.Context) ([]task.BudgetWait, error) {
	return r.waits(ctx, "ended_at IS NULL OR told < 2")
}

// Of lists the waits of a task, in order.
func (r *Rows) Of(ctx context.Context, taskID string) ([]task.BudgetWait, error) {
	return r.waits(ctx, "task = ?", taskID)
}

func (r *Rows) waits(ctx context.Context, where string, args ...any) ([]task.BudgetWait, error) {
	var rows []waitRow
	if err := r.base.Read.NewSelect().Model(&rows).Where(where, args...).OrderExpr("task, number").Scan(ctx); err != nil {
		return nil, r.base.Failure("list waits for budgets", err)
	}
	out := make([]task.BudgetWait, 0, len(rows))
	for _, w := range rows {
		out = append(out, w.wait())
	}
	return out, nil
}

// Package spending keeps the rows of what models were used for: sums by task,
// day and model, the budgets, and when tasks waited for one.
//
// Words. A sum is counted in the transaction that keeps the gateway's record
// which says it, so a record counts once whatever is killed. Days are those of
// this program's clock when a record came, in UTC.
//
// Sums outlive their tasks, since budgets of users and projects are made of
// them: those of tasks that are removed go once the month after theirs is over.
package spending

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

const dayFormat = "2006-01-02"

type sumRow struct {
	bun.BaseModel `bun:"table:model_spend"`

	Task       string `bun:"task,pk"`
	Day        string `bun:"day,pk"`
	Model      string `bun:"model,pk"`
	Requester  string `bun:"requester"`
	Project    string `bun:"project"`
	Requests   int64  `bun:"requests"`
	Estimates  int64  `bun:"estimates"`
	Input      int64  `bun:"input"`
	Output     int64  `bun:"output"`
	CacheRead  int64  `bun:"cache_read"`
	CacheWrite int64  `bun:"cache_write"`
}

// Of says whose a sum is.
type Of struct {
	Task      string
	Requester string
	Project   string // empty: none
}

// Count adds what a record says to the sums, within the transaction that keeps
// it.
func Count(ctx context.Context, tx bun.Tx, of Of, now time.Time, t task.ModelTokens) error {
	row := sumRow{
		Task: of.Task, Day: now.UTC().Format(dayFormat), Model: t.Model, Requester: of.Requester, Project: of.Project,
		Requests: 1, Input: t.Input, Output: t.Output, CacheRead: t.CacheRead, CacheWrite: t.CacheWrite,
	}
	if t.Estimated {
		row.Estimates = 1
	}
	q := tx.NewInsert().Model(&row).On("CONFLICT (task, day, model) DO UPDATE")
	for _, column := range []bun.Ident{"requests", "estimates", "input", "output", "cache_read", "cache_write"} {
		q = q.Set("? = ?TableAlias.? + excluded.?", column, column, column)
	}
	_, err := q.Exec(ctx)
	return err
}

// Forget is called when a task is removed: its budget and its waits go, its sums
// once no budget of a user or a project can count them.
func Forget(ctx context.Context, tx bun.Tx, id string, now time.Time) error {
	if _, err := tx.NewRaw("DELETE FROM budgets WHERE scope = ? AND name = ?", task.BudgetTask, id).Exec(ctx); err != nil {
		return err
	}
	if _, err := tx.NewRaw("DELETE FROM budget_waits WHERE task = ?", id).Exec(ctx); err != nil {
		return err
	}
	before := task.PerMonth.Start(now).AddDate(0, -1, 0).Format(dayFormat)
	_, err := tx.NewRaw("DELETE FROM model_spend WHERE day < ? AND (task = ? OR task NOT IN (SELECT id FROM tasks))", before, id).Exec(ctx)
	return err
}

// Rows are the rows of one database. Errors are *task.Failure.
type Rows struct{ base table.Base }

// New gives the rows of a database.
func New(base table.Base) *Rows { return &Rows{base} }

// Spent sums what a task, a user or a project used since a moment's day, by
// model. Prices are not looked at.
func (r *Rows) Spent(ctx context.Context, scope task.BudgetScope, name string, since time.Time) ([]task.ModelSpend, error) {
	column, ok := map[task.BudgetScope]bun.Ident{task.BudgetTask: "task", task.BudgetUser: "requester", task.BudgetProject: "project"}[scope]
	if !ok {
		return nil, task.Fail(task.InfraInternal, "nobody has a budget of this scope", nil)
	}
	var rows []sumRow
	q := r.base.Read.NewSelect().Model((*sumRow)(nil)).Column("model").GroupExpr("model").OrderExpr("model").Where("? = ?", column, name)
	for _, c := range []bun.Ident{"requests", "estimates", "input", "output", "cache_read", "cache_write"} {
		q = q.ColumnExpr("sum(?) AS ?", c, c)
	}
	if !since.IsZero() {
		q = q.Where("day >= ?", since.UTC().Format(dayFormat))
	}
	if err := q.Scan(ctx, &rows); err != nil {
		return nil, r.base.Failure("sum what models were used for", err)
	}
	out := make([]task.ModelSpend, 0, len(rows))
	for _, s := range rows {
		out = append(out, task.ModelSpend{
			ModelTokens: task.ModelTokens{Model: s.Model, Input: s.Input, Output: s.Output, CacheRead: s.CacheRead, CacheWrite: s.CacheWrite},
			Requests:    s.Requests, Estimates: s.Estimates,
		})
	}
	return out, nil
}

type budgetRow struct {
	bun.BaseModel `bun:"table:budgets"`

	Scope    string `bun:"scope,pk"`
	Name     string `bun:"name,pk"`
	Tokens   int64  `bun:"tokens"`
	MicroUSD int64  `bun:"micro_usd"`
	Per      string `bun:"per"`
	By       string `bun:"set_by"`
	At       int64  `bun:"set_at"`
}

func (b budgetRow) budget() task.Budget {
	return task.Budget{
		Scope: task.BudgetScope(b.Scope), Name: b.Name, Tokens: b.Tokens, MicroUSD: b.MicroUSD,
		Per: task.BudgetPeriod(b.Per), By: b.By, At: table.Moment(b.At),
	}
}

// Budgets lists what was set for users and projects, by scope and name.
func (r *Rows) Budgets(ctx context.Context) ([]task.Budget, error) {
	var rows []budgetRow
	err := r.base.Read.NewSelect().Model(&rows).Where("scope <> ?", task.BudgetTask).OrderExpr("scope, name").Scan(ctx)
	if err != nil {
		return nil, r.base.Failure("list budgets", err)
	}
	out := make([]task.Budget, 0, len(rows))
	for _, b := range rows {
		out = append(out, b.budget())
	}
	return out, nil
}

// Budget gives what was set for one; the zero budget where nothing was.
func (r *Rows) Budget(ctx context.Context, scope task.BudgetScope, name string) (task.Budget, error) {
	var row budgetRow
	err := r.base.Read.NewSelect().Model(&row).Where("scope = ? AND name = ?", scope, name).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return task.Budget{}, nil
	}
	return row.budget(), r.base.Failure("read a budget", err)
}

// SetBudget keeps a budget in place of the one before. One that says nothing is
// removed.
func (r *Rows) SetBudget(ctx context.Context, b task.Budget) error {
	return r.base.Failure("set a budget", r.base.Change(ctx, "", func(tx bun.Tx) error {
		if b.Tokens == 0 && b.MicroUSD == 0 {
			_, err := tx.NewDelete().Model((*budgetRow)(nil)).Where("scope = ? AND name = ?", b.Scope, b.Name).Exec(ctx)
			return err
		}
		row := budgetRow{Scope: string(b.Scope), Name: b.Name, Tokens: b.Tokens, MicroUSD: b.MicroUSD, Per: string(b.Per), By: b.By, At: b.At.UnixNano()}
		_, err := tx.NewInsert().Model(&row).On("CONFLICT (scope, name) DO UPDATE").Exec(ctx)
		return err
	}))
}

// LastSeq is the number of the last record that is kept of a sandbox's gateway.
func (r *Rows) LastSeq(ctx context.Context, sandbox string) (n int64, err error) {
	err = r.base.Read.NewRaw("SELECT coalesce(max(seq), 0) FROM egress WHERE sandbox = ?", sandbox).Scan(ctx, &n)
	return n, r.base.Failure("read the last record of a sandbox", err)
}

// TaskOf is the task that a sandbox belongs to; empty: none.
func (r *Rows) TaskOf(ctx context.Context, sandbox string) (id string, err error) {
	err = r.base.Read.NewRaw("SELECT task FROM sandboxes WHERE id = ?", sandbox).Scan(ctx, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, r.base.Failure("read the task of a sandbox", err)
}

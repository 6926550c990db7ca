// Package workers keeps the rows of machines that are set apart.
package workers

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

type row struct {
	bun.BaseModel `bun:"table:worker_marks"`

	Worker   string `bun:"worker,pk"`
	State    string `bun:"state"`
	Reason   string `bun:"reason"`
	MarkedBy string `bun:"marked_by"`
	MarkedAt int64  `bun:"marked_at"`
}

// Rows are the rows of one database. Errors are *task.Failure.
type Rows struct{ base table.Base }

// New gives the rows of a database.
func New(base table.Base) *Rows { return &Rows{base} }

// Marks lists the marks, by worker.
func (r *Rows) Marks(ctx context.Context) ([]task.WorkerMark, error) {
	var rows []row
	if err := r.base.Read.NewSelect().Model(&rows).OrderExpr("worker").Scan(ctx); err != nil {
		return nil, r.base.Failure("list the marks of workers", err)
	}
	out := make([]task.WorkerMark, 0, len(rows))
	for _, have := range rows {
		out = append(out, task.WorkerMark{Worker: have.Worker, State: have.State, Reason: have.Reason, By: have.MarkedBy, At: table.Moment(have.MarkedAt)})
	}
	return out, nil
}

// Mark keeps a mark in place of the one before; one without a state is removed.
func (r *Rows) Mark(ctx context.Context, m task.WorkerMark) error {
	return r.base.Failure("mark a worker", r.base.Change(ctx, "", func(tx bun.Tx) error {
		if _, err := tx.NewDelete().Model((*row)(nil)).Where("worker = ?", m.Worker).Exec(ctx); err != nil || m.State == "" {
			return err
		}
		_, err := tx.NewInsert().Model(&row{Worker: m.Worker, State: m.State, Reason: m.Reason, MarkedBy: m.By, MarkedAt: m.At.UnixNano()}).Exec(ctx)
		return err
	}))
}

// Placed counts the sandboxes that were given to a worker and are not known to be
// gone.
func (r *Rows) Placed(ctx context.Context, worker string) (int, error) {
	n, err := r.base.Read.NewSelect().TableExpr("placements").Where("worker = ?", worker).Count(ctx)
	return int(n), r.base.Failure("count the sandboxes of a worker", err)
}

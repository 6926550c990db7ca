// Package frozen has the rows of sandboxes that are kept as evidence.
package frozen

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

type row struct {
	bun.BaseModel `bun:"table:frozen_sandboxes"`

	Sandbox    string `bun:"sandbox,pk"`
	Task       string `bun:"task"`
	Worker     string `bun:"worker"`
	Reason     string `bun:"reason"`
	FrozenBy   string `bun:"frozen_by"`
	FrozenAt   int64  `bun:"frozen_at"`
	ReleasedAt *int64 `bun:"released_at"`
}

// Rows are the rows of one database. Errors are *task.Failure.
type Rows struct{ base table.Base }

// New gives the rows of a database.
func New(base table.Base) *Rows { return &Rows{base} }

// Keep notes that a sandbox is kept. One that is noted already stays as it was
// noted.
func (r *Rows) Keep(ctx context.Context, f task.FrozenSandbox) error {
	return r.base.Failure("keep a sandbox as evidence", r.base.Change(ctx, "", func(tx bun.Tx) error {
		_, err := tx.NewInsert().Model(&row{
			Sandbox: f.Sandbox, Task: f.Task, Worker: f.Worker, Reason: f.Reason, FrozenBy: f.By, FrozenAt: f.At.UnixNano(),
		}).On("CONFLICT DO NOTHING").Exec(ctx)
		return err
	}))
}

// Kept is one sandbox that is or was kept; task.InputNotFound: it never was.
func (r *Rows) Kept(ctx context.Context, sandbox string) (task.FrozenSandbox, error) {
	var have row
	err := r.base.Read.NewSelect().Model(&have).Where("sandbox = ?", sandbox).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return task.FrozenSandbox{}, table.NotFound("sandbox that is kept as evidence", sandbox)
	}
	return have.frozen(), r.base.Failure("read which sandbox is kept", err)
}

// All lists those that are kept, the oldest first.
func (r *Rows) All(ctx context.Context) ([]task.FrozenSandbox, error) {
	var rows []row
	if err := r.base.Read.NewSelect().Model(&rows).Where("released_at IS NULL").OrderExpr("frozen_at, sandbox").Scan(ctx); err != nil {
		return nil, r.base.Failure("list the sandboxes that are kept", err)
	}
	out := make([]task.FrozenSandbox, 0, len(rows))
	for _, have := range rows {
		out = append(out, have.frozen())
	}
	return out, nil
}

// Release notes that a sandbox is kept no more. It may be repeated.
func (r *Rows) Release(ctx context.Context, sandbox string, at time.Time) error {
	return r.base.Failure("release a sandbox", r.base.Change(ctx, "", func(tx bun.Tx) error {
		_, err := tx.NewRaw("UPDATE frozen_sandboxes SET released_at = ? WHERE sandbox = ? AND released_at IS NULL", at.UnixNano(), sandbox).Exec(ctx)
		return err
	}))
}

func (r row) frozen() task.FrozenSandbox {
	return task.FrozenSandbox{
		Sandbox: r.Sandbox, Task: r.Task, Worker: r.Worker, Reason: r.Reason, By: r.FrozenBy, At: table.Moment(r.FrozenAt), Released: table.Optional(r.ReleasedAt),
	}
}

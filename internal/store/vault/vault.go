// Package vault has the rows of the vault, credentials and leases, and what is
// done to all of them at once: their end.
package vault

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Rows are the rows of one database. Errors are *task.Failure.
type Rows struct{ base table.Base }

// New gives the rows of a database.
func New(base table.Base) *Rows { return &Rows{base} }

// EndAll wipes every value, revokes every credential and ends every lease, in one
// transaction. It returns how many credentials and leases that ended, every
// credential there is, all of them revoked, and the leases whose connections may
// not be cut yet: those that it ended, and those that a revocation before it ended
// in sandboxes that are still placed.
func (r *Rows) EndAll(ctx context.Context, at time.Time) (task.EndOfAll, error) {
	var out task.EndOfAll
	ns := at.UnixNano()
	err := r.base.Change(ctx, "", func(tx bun.Tx) error {
		for _, step := range []struct {
			sql   string
			args  []any
			count *int
		}{
			{"UPDATE credentials SET sealed = '', revoked_at = ? WHERE revoked_at IS NULL", []any{ns}, &out.Credentials},
			// What was revoked before has no value; this is for a row that was changed by hand.
			{"UPDATE credentials SET sealed = '' WHERE sealed <> ''", nil, nil},
			// A clock that was set back does not make a lease end before it began.
			{"UPDATE leases SET until_at = CASE WHEN from_at > ? THEN from_at ELSE ? END, ended = ? WHERE until_at IS NULL", []any{ns, ns, task.EndedRevoked}, &out.Leases},
		} {
			res, err := tx.NewRaw(step.sql, step.args...).Exec(ctx)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			if step.count != nil {
				*step.count = int(n)
			}
		}
		return r.ended(ctx, tx, ns, &out)
	})
	return out, r.base.Failure("end everything that is lent", err)
}

// ended reads what a transaction has ended.
func (r *Rows) ended(ctx context.Context, tx bun.Tx, ns int64, out *task.EndOfAll) error {
	var rows []CredentialRow
	if err := tx.NewSelect().Model(&rows).OrderExpr("name").Scan(ctx); err != nil {
		return err
	}
	for _, row := range rows {
		c, err := row.Credential()
		if err != nil {
			return err
		}
		out.All = append(out.All, c)
	}
	var leases []LeaseRow
	err := tx.NewSelect().Model(&leases).
		Where("ended = ? AND (until_at >= ? OR sandbox IN (SELECT sandbox FROM placements))", task.EndedRevoked, ns).OrderExpr("task, number").Scan(ctx)
	if err != nil {
		return err
	}
	for _, row := range leases {
		l, err := row.Lent()
		if err != nil {
			return err
		}
		out.Cut = append(out.Cut, l)
	}
	return nil
}

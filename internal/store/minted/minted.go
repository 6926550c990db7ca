// Package minted keeps the rows of values that were minted for leases, from
// before they are asked for until they are over or were revoked at who made
// them. Values are sealed by the vault and only text to this package.
package minted

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

// row is a row of minted_values. record is the value's lease and credential as
// they were, as JSON.
type row struct {
	bun.BaseModel `bun:"table:minted_values"`

	ID         string `bun:"id,pk"`
	Lease      string `bun:"lease"`
	Count      int64  `bun:"count"`
	Task       string `bun:"task"`
	Credential string `bun:"credential"` // its id
	Record     string `bun:"record"`
	Sealed     string `bun:"sealed"` // base64; empty until the value came
	BegunAt    int64  `bun:"begun_at"`
	KeptAt     *int64 `bun:"kept_at"`
	UntilAt    *int64 `bun:"until_at"`
}

// record is what of a minted value never changes.
type record struct {
	Lease      task.Lent       `json:"lease"`
	Credential task.Credential `json:"credential"`
}

// Rows are the rows of one database. Errors are *task.Failure.
type Rows struct{ base table.Base }

// New gives the rows of a database.
func New(base table.Base) *Rows { return &Rows{base} }

// BeginMint notes that a value will be asked for.
func (r *Rows) BeginMint(ctx context.Context, m task.MintedValue) error {
	text, err := table.Text(record{m.Lease, m.Credential})
	if err != nil {
		return r.base.Failure("begin to mint", err)
	}
	return r.base.Failure("begin to mint", r.base.Change(ctx, "", func(tx bun.Tx) error {
		_, err := tx.NewInsert().Model(&row{
			ID: m.ID, Lease: m.Lease.ID, Count: int64(m.Lease.Count), Task: m.Lease.Task, Credential: m.Credential.ID,
			Record: text, BegunAt: m.Begun.UnixNano(),
		}).Exec(ctx)
		return err
	}))
}

// KeepMint keeps the value of a row, sealed. A row that is gone gives
// task.InputNotFound.
func (r *Rows) KeepMint(ctx context.Context, id string, sealed []byte, at, until time.Time) error {
	return r.base.Failure("keep what was minted", r.base.Change(ctx, "", func(tx bun.Tx) error {
		res, err := tx.NewRaw("UPDATE minted_values SET sealed = ?, kept_at = ?, until_at = ? WHERE id = ?",
			base64.StdEncoding.EncodeToString(sealed), at.UnixNano(), until.UnixNano(), id).Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return table.NotFound("minted value", id)
		}
		return nil
	}))
}

// DropMint forgets a row. One that is gone is no error.
func (r *Rows) DropMint(ctx context.Context, id string) error {
	return r.base.Failure("drop what was minted", r.base.Change(ctx, "", func(tx bun.Tx) error {
		_, err := tx.NewRaw("DELETE FROM minted_values WHERE id = ?", id).Exec(ctx)
		return err
	}))
}

// Mints lists the rows of one lease, or (empty) all, the oldest first.
func (r *Rows) Mints(ctx context.Context, lease string) ([]task.MintedValue, error) {
	var rows []row
	q := r.base.Read.NewSelect().Model(&rows)
	if lease != "" {
		q = q.Where("lease = ?", lease)
	}
	if err := q.OrderExpr("begun_at, id").Scan(ctx); err != nil {
		return nil, r.base.Failure("list what was minted", err)
	}
	out := make([]task.MintedValue, 0, len(rows))
	for _, have := range rows {
		m, err := have.value()
		if err != nil {
			return nil, r.base.Failure("list what was minted", err)
		}
		out = append(out, m)
	}
	return out, nil
}

func (r row) value() (task.MintedValue, error) {
	of, err := table.From[record](r.Record)
	if err != nil {
		return task.MintedValue{}, fmt.Errorf("minted value %q: %w", r.ID, err)
	}
	// What is no base64 is no sealed value either: the vault says so.
	sealed, err := base64.StdEncoding.DecodeString(r.Sealed)
	if err != nil {
		sealed = nil
	}
	m := task.MintedValue{
		ID: r.ID, Lease: of.Lease, Credential: of.Credential, Sealed: sealed,
		Begun: table.Moment(r.BegunAt), Kept: table.Optional(r.KeptAt), Until: table.Optional(r.UntilAt),
	}
	m.Lease.ID, m.Lease.Count, m.Lease.Task, m.Credential.ID = r.Lease, int(r.Count), r.Task, r.Credential
	return m, nil
}

// Reseal puts in place of each value what the function makes of it, within a
// transaction of others, and returns how many there were.
func Reseal(ctx context.Context, tx bun.Tx, anew func(task.MintedValue) ([]byte, error)) (int, error) {
	var rows []row
	if err := tx.NewSelect().Model(&rows).Where("sealed <> ''").OrderExpr("begun_at, id").Scan(ctx); err != nil {
		return 0, err
	}
	for _, have := range rows {
		m, err := have.value()
		if err != nil {
			return 0, err
		}
		sealed, err := anew(m)
		if err != nil {
			return 0, err
		}
		if _, err := tx.NewRaw("UPDATE minted_values SET sealed = ? WHERE id = ?", base64.StdEncoding.EncodeToString(sealed), have.ID).Exec(ctx); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

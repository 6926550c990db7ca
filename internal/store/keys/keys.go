// Package keys has the rows of keys that were made anew: which, when, by whom.
// It never has a key.
package keys

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

type row struct {
	bun.BaseModel `bun:"table:key_rotations"`

	Name   string `bun:"name,pk"`
	Key    string `bun:"key,pk"`
	MadeBy string `bun:"made_by"`
	MadeAt int64  `bun:"made_at"`
}

// Rows are the rows of one database. Errors are *task.Failure.
type Rows struct{ base table.Base }

// New gives the rows of a database.
func New(base table.Base) *Rows { return &Rows{base} }

// Add notes a rotation within a transaction of others.
func Add(ctx context.Context, tx bun.Tx, r task.KeyRotation) error {
	_, err := tx.NewInsert().Model(&row{Name: r.Name, Key: r.Key, MadeBy: r.By, MadeAt: r.At.UnixNano()}).On("CONFLICT DO NOTHING").Exec(ctx)
	return err
}

// Add notes a rotation. It may be repeated.
func (r *Rows) Add(ctx context.Context, one task.KeyRotation) error {
	return r.base.Failure("note a new key", r.base.Change(ctx, "", func(tx bun.Tx) error { return Add(ctx, tx, one) }))
}

// Rotated says whether the key of that name and id is on record.
func (r *Rows) Rotated(ctx context.Context, name, key string) (bool, error) {
	ok, err := r.base.Read.NewSelect().Model((*row)(nil)).Where("name = ? AND key = ?", name, key).Exists(ctx)
	return ok, r.base.Failure("look a key up", err)
}

// Last lists the newest rotation of each name.
func (r *Rows) Last(ctx context.Context) (map[string]task.KeyRotation, error) {
	var rows []row
	if err := r.base.Read.NewSelect().Model(&rows).OrderExpr("made_at").Scan(ctx); err != nil {
		return nil, r.base.Failure("list the rotations of keys", err)
	}
	out := map[string]task.KeyRotation{}
	for _, have := range rows {
		out[have.Name] = task.KeyRotation{Name: have.Name, Key: have.Key, By: have.MadeBy, At: table.Moment(have.MadeAt)}
	}
	return out, nil
}

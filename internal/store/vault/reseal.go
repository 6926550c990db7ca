package vault

import (
	"context"
	"encoding/base64"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/keys"
	"github.com/cofferdam/cofferdam/internal/store/minted"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Reseal puts in place of each sealed value what the functions make of it, and
// notes the rotation, in one transaction: all or nothing. It returns how many
// values there were.
func (r *Rows) Reseal(ctx context.Context, rotation task.KeyRotation, credential func(task.Credential, []byte) ([]byte, error), value func(task.MintedValue) ([]byte, error)) (n int, err error) {
	err = r.base.Change(ctx, "", func(tx bun.Tx) error {
		n = 0
		if err := keys.Add(ctx, tx, rotation); err != nil {
			return err
		}
		var rows []CredentialRow
		if err := tx.NewSelect().Model(&rows).Where("sealed <> ''").OrderExpr("name").Scan(ctx); err != nil {
			return err
		}
		for _, row := range rows {
			c, err := row.Credential()
			if err != nil {
				return err
			}
			// What is no base64 is no sealed value either: the vault says so.
			sealed, err := base64.StdEncoding.DecodeString(row.Sealed)
			if err != nil {
				sealed = nil
			}
			if sealed, err = credential(c, sealed); err != nil {
				return err
			}
			if _, err := tx.NewRaw("UPDATE credentials SET sealed = ? WHERE id = ?", base64.StdEncoding.EncodeToString(sealed), row.ID).Exec(ctx); err != nil {
				return err
			}
			n++
		}
		made, err := minted.Reseal(ctx, tx, value)
		n += made
		return err
	})
	return n, r.base.Failure("seal everything anew", err)
}

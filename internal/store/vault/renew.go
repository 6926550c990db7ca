package vault

import (
	"context"
	"encoding/base64"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/task"
)

// RenewCredential puts another sealed value in the place of a credential's, which
// was not revoked.
func (r *Rows) RenewCredential(ctx context.Context, id string, sealed []byte) error {
	return r.base.Failure("renew credential", r.base.Change(ctx, "", func(tx bun.Tx) error {
		done, err := tx.NewRaw("UPDATE credentials SET sealed = ? WHERE id = ? AND revoked_at IS NULL", base64.StdEncoding.EncodeToString(sealed), id).Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 1 {
			return err
		}
		return task.Fail(task.PolicyCredential, "the credential was revoked or removed", nil)
	}))
}

package credential

import (
	"context"
	"fmt"

	"github.com/cofferdam/cofferdam/internal/credential/seal"
	"github.com/cofferdam/cofferdam/internal/task"
)

// RenewRows puts sealed values in place of others. Implemented by store/vault. A
// credential that was revoked or removed gives task.PolicyCredential.
type RenewRows interface {
	RenewCredential(ctx context.Context, id string, sealed []byte) error
}

// Renewals are the values of the vault that are made new while they are used: logins
// of our own. Everything else of a credential stays as it was added.
type Renewals struct {
	vault *Vault
	rows  RenewRows
}

// NewRenewals returns the renewals of a vault.
func NewRenewals(v *Vault, rows RenewRows) *Renewals { return &Renewals{v, rows} }

// Newest is the value of a credential as it is now.
func (r *Renewals) Newest(ctx context.Context, c task.Credential) (task.Secret, error) {
	_, value, err := r.vault.active(ctx, c.Name, c.ID)
	return value, err
}

// Renew puts another value in the place of a credential's.
func (r *Renewals) Renew(ctx context.Context, c task.Credential, value task.Secret) error {
	v := r.vault
	v.writing.RLock()
	defer v.writing.RUnlock()
	k, err := v.unlock(ctx)
	if err != nil {
		return err
	}
	ad, err := seal.Bound(c)
	if err != nil {
		return fmt.Errorf("credential %q: %w", c.Name, err)
	}
	return r.rows.RenewCredential(ctx, c.ID, k.Seal(ad, value))
}

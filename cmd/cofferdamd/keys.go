package main

import (
	"context"
	"path/filepath"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/credential/seal"
	storekeys "github.com/cofferdam/cofferdam/internal/store/keys"
	"github.com/cofferdam/cofferdam/internal/task"
)

// settleVault ends a rotation of the vault's key that was broken off.
func (p *plane) settleVault(ctx context.Context, keys string) error {
	return seal.Settle(ctx, filepath.Join(keys, "vault.key"), func(ctx context.Context, id string) (bool, error) {
		return storekeys.New(p.store.Base()).Rotated(ctx, task.KeyVault, id)
	})
}

// openAudit opens the account under its key, and ends a rotation of that key that
// was broken off.
func (p *plane) openAudit(ctx context.Context, keys string) error {
	if err := audit.SettleKey(ctx, keys, p.store.Audit()); err != nil {
		return err
	}
	key, err := audit.NewKey(keys)
	if err != nil {
		return err
	}
	p.audit, err = audit.Open(ctx, audit.Options{Store: p.store.Audit(), Key: key})
	return err
}

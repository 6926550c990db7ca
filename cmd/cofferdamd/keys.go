package main

import (
	"context"
	"path/filepath"

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

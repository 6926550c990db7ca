package credential

import (
	"context"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/seal"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Sealed are all values that are kept sealed. Implemented by store/vault.
type Sealed interface {
	// Reseal puts in place of each sealed value what the functions make of it, and
	// notes that the key of that id sealed them, in one transaction: all or
	// nothing. It returns how many there were.
	Reseal(ctx context.Context, r task.KeyRotation, credential func(task.Credential, []byte) ([]byte, error), minted func(task.MintedValue) ([]byte, error)) (int, error)
}

// Rotate seals everything anew under a new key and returns the id of that key and
// how many values there were. A value that does not open stops it, and nothing has
// changed then. A process that was killed meanwhile is mended by seal.Settle.
func (v *Vault) Rotate(ctx context.Context, rows Sealed, by string) (id string, n int, err error) {
	v.writing.Lock()
	defer v.writing.Unlock()
	old, err := v.unlock(ctx)
	if err != nil {
		return "", 0, err
	}
	next, err := seal.Next(v.file)
	if err != nil {
		return "", 0, task.Fail(task.InfraVault, "the vault's next key can't be made: "+reasonFor(err), err)
	}
	r := task.KeyRotation{Name: task.KeyVault, Key: next.ID(), By: by, At: v.now().UTC().Truncate(time.Microsecond)}
	n, err = rows.Reseal(ctx, r,
		func(c task.Credential, sealed []byte) ([]byte, error) {
			ad, err := seal.Bound(c)
			if err != nil {
				return nil, err
			}
			return anew(old, next, ad, c, sealed)
		},
		func(m task.MintedValue) ([]byte, error) {
			ad, err := boundMint(m.ID, m.Lease, m.Credential)
			if err != nil {
				return nil, err
			}
			return anew(old, next, ad, m.Credential, m.Sealed)
		})
	if err != nil {
		return "", 0, err
	}
	v.mu.Lock()
	v.key, v.former = next, old
	v.mu.Unlock()
	if err := seal.Take(v.file); err != nil {
		return next.ID(), n, task.Fail(task.InfraStorage, "everything is sealed under the vault's new key, which waits in keys/vault.key.new for the next start of cofferdamd: "+reasonFor(err), err)
	}
	return next.ID(), n, nil
}

func anew(old, next *seal.Key, bound []byte, c task.Credential, sealed []byte) ([]byte, error) {
	value, err := old.Open(bound, c, sealed)
	if err != nil {
		return nil, err
	}
	return next.Seal(bound, value), nil
}

// keyFor is the key that a value which was read a moment ago opens under.
func (v *Vault) keyFor(ctx context.Context, sealed []byte) (*seal.Key, error) {
	k, err := v.unlock(ctx)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.former != nil && v.former.Sealed(sealed) {
		return v.former, nil
	}
	return k, nil
}

// KeyID names the key, without telling it.
func (v *Vault) KeyID(ctx context.Context) (string, error) {
	k, err := v.unlock(ctx)
	if err != nil {
		return "", err
	}
	return k.ID(), nil
}

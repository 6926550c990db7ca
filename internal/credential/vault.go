package credential

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/seal"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Rows keeps credentials and their sealed values. Implemented by store. A name
// that is not there gives a *task.Failure with task.InputNotFound.
type Rows interface {
	// AddCredential keeps a new one; a name that is taken gives task.InputConflict.
	AddCredential(ctx context.Context, c task.Credential, sealed []byte) error
	Credential(ctx context.Context, name string) (c task.Credential, sealed []byte, err error)
	// Credentials lists all, by name.
	Credentials(ctx context.Context) ([]task.Credential, error)
	// EndCredential wipes the sealed value and ends the active leases, in one
	// step, and returns every lease it ended. The row goes too when remove is true.
	EndCredential(ctx context.Context, name string, at time.Time, remove bool) (task.Credential, []task.Lent, error)
	// UseCredential notes when the value was last lent.
	UseCredential(ctx context.Context, id string, at time.Time) error
}

// Vault keeps credentials. It is safe for concurrent use.
type Vault struct {
	file string
	rows Rows
	now  func() time.Time

	// writing is held for reading from where a value is sealed until its row is
	// kept, so that none is kept under a key that was rotated out meanwhile.
	writing sync.RWMutex

	mu     sync.Mutex
	key    *seal.Key // nil while the key can't be read
	former *seal.Key // before it, for what was read before a rotation; nil: none
}

// Open opens the vault whose key lies in the folder, and makes the key when
// there are no values yet that another one sealed. A key that is lost or
// damaged is no error here: what needs it fails with task.InfraVault, and Check
// says so.
func Open(ctx context.Context, folder string, rows Rows, now func() time.Time) (*Vault, error) {
	v := &Vault{file: filepath.Join(folder, "vault.key"), rows: rows, now: now}
	if _, err := v.unlock(ctx); err != nil {
		if f, ok := errors.AsType[*task.Failure](err); !ok || f.Reason != task.InfraVault {
			return nil, err
		}
	}
	return v, nil
}

// unlock returns the key. A key file that was put back is taken without a
// restart.
func (v *Vault) unlock(ctx context.Context) (*seal.Key, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.key != nil {
		return v.key, nil
	}
	k, err := seal.Read(v.file)
	if errors.Is(err, seal.ErrNoKey) {
		sealed, lerr := v.sealedNames(ctx)
		if lerr != nil {
			return nil, lerr
		}
		if len(sealed) > 0 {
			return nil, task.Fail(task.InfraVault, fmt.Sprintf(
				"the vault's key, cofferdamd/keys/vault.key in the data folder, is missing and %d credentials were sealed under it; put it back from a backup, or remove them and add them again",
				len(sealed)), nil)
		}
		k, err = seal.Make(v.file)
	}
	if err != nil {
		return nil, task.Fail(task.InfraVault, "the vault's key, cofferdamd/keys/vault.key in the data folder, can't be used: "+reasonFor(err), err)
	}
	v.key = k
	return k, nil
}

// sealedNames lists the credentials that have a value.
func (v *Vault) sealedNames(ctx context.Context) ([]string, error) {
	list, err := v.rows.Credentials(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range list {
		if c.Revoked == nil {
			names = append(names, c.Name)
		}
	}
	return names, nil
}

// Check opens every value and says what does not open. For doctor.
func (v *Vault) Check(ctx context.Context) error {
	if _, err := v.unlock(ctx); err != nil {
		return err
	}
	names, err := v.sealedNames(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		c, sealed, err := v.rows.Credential(ctx, name)
		if err != nil {
			if task.ReasonOf(err) == task.InputNotFound {
				continue // removed meanwhile
			}
			return err
		}
		if c.Revoked != nil {
			continue
		}
		if _, err := v.open(ctx, c, sealed); err != nil {
			return err
		}
	}
	return nil
}

// reasonFor is the error without the path, which is nobody's business outside.
func reasonFor(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

func (v *Vault) open(ctx context.Context, c task.Credential, sealed []byte) (task.Secret, error) {
	k, err := v.keyFor(ctx, sealed)
	if err != nil {
		return task.Secret{}, err
	}
	ad, err := seal.Bound(c)
	if err != nil {
		return task.Secret{}, task.Fail(task.InfraVault, fmt.Sprintf("credential %q: its binding can't be encoded", c.Name), nil)
	}
	return k.Open(ad, c, sealed)
}

// Add seals a value and keeps it. Errors are *task.Failure: task.InputInvalid
// with the field, task.InputConflict for a name that is taken, task.InfraVault.
func (v *Vault) Add(ctx context.Context, r task.CredentialRequest) (task.Credential, error) {
	c, err := request(r).credential()
	if err != nil {
		return c, err
	}
	var raw [10]byte
	_, _ = rand.Read(raw[:])
	c.ID = "c-" + strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))
	c.Created = v.now().UTC().Truncate(time.Microsecond)
	v.writing.RLock()
	defer v.writing.RUnlock()
	k, err := v.unlock(ctx)
	if err != nil {
		return task.Credential{}, err
	}
	ad, err := seal.Bound(c)
	if err != nil {
		return task.Credential{}, fmt.Errorf("credential %q: %w", c.Name, err)
	}
	return c, v.rows.AddCredential(ctx, c, k.Seal(ad, r.Value))
}

// List gives every credential, by name. Who may see which is the door's part.
func (v *Vault) List(ctx context.Context) ([]task.Credential, error) { return v.rows.Credentials(ctx) }

// Get gives one credential.
func (v *Vault) Get(ctx context.Context, name string) (task.Credential, error) {
	if !namePattern.MatchString(name) {
		return task.Credential{}, task.Fail(task.InputNotFound, "no such credential", nil)
	}
	c, _, err := v.rows.Credential(ctx, name)
	return c, err
}

// active gives a credential and its opened value. One that was revoked, or is
// another than id, gives task.PolicyCredential.
func (v *Vault) active(ctx context.Context, name, id string) (task.Credential, task.Secret, error) {
	c, sealed, err := v.rows.Credential(ctx, name)
	switch {
	case task.ReasonOf(err) == task.InputNotFound:
		return c, task.Secret{}, task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q was removed", name), nil)
	case err != nil:
		return c, task.Secret{}, err
	case c.ID != id:
		return c, task.Secret{}, task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q was removed and another one added under its name", name), nil)
	case c.Revoked != nil:
		return c, task.Secret{}, task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q was revoked", name), nil)
	}
	value, err := v.open(ctx, c, sealed)
	return c, value, err
}

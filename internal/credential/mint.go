package credential

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/seal"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Minter makes short-lived values of one kind from what the vault keeps, one
// adapter a vendor. Errors are *task.Failure and never hold a value:
// task.PolicyCredential where the provider refuses; task.InfraCredential where it
// does not answer or answers garbage. Either may have a Later as its cause.
type Minter interface {
	// Mint makes a value for one lease. long is what the vault keeps.
	Mint(ctx context.Context, c task.Credential, long task.Secret, l task.Lent) (Minted, error)
	// Revoke ends a value that Mint made. It may be repeated, and a value that is
	// over already is no error; ErrLasts says that there is no way to end it. long
	// is empty when the vault's own was wiped.
	Revoke(ctx context.Context, c task.Credential, long, value task.Secret) error
}

// Minted is a value that was made for one lease.
type Minted struct {
	Value task.Secret
	// Until is when it is over by itself, by our clock: the lifetime that the
	// provider told, from before it was asked. Zero: it is for one use and never
	// kept, which its kind must say too.
	Until time.Time
}

// ErrLasts says that a provider has no way to end a value before its time.
var ErrLasts = errors.New("its provider has no way to end it before its time")

// Later is the cause of a failure after which a provider is to be left alone for
// a time.
type Later struct{ After time.Duration }

// Error says for how long.
func (l *Later) Error() string { return fmt.Sprintf("asked to come back in %s", l.After) }

// MintRows keeps values that were minted, sealed. Implemented by store/minted.
type MintRows interface {
	// BeginMint notes that a value will be asked for.
	BeginMint(ctx context.Context, m task.MintedValue) error
	// KeepMint keeps the value that came.
	KeepMint(ctx context.Context, id string, sealed []byte, at, until time.Time) error
	// Mints lists those of a lease, or (empty) all, the oldest first.
	Mints(ctx context.Context, lease string) ([]task.MintedValue, error)
	DropMint(ctx context.Context, id string) error
}

// Minting is what values are minted with. The zero Minting mints nothing.
type Minting struct {
	Minters  map[string]Minter // by kind
	MintRows MintRows          // required with Minters
	Log      *slog.Logger      // nil: no log
}

// The bounds of what is minted.
const (
	mintTime  = 14 * time.Second    // one minting; a gateway waits 15 s
	minLife   = 10 * time.Second    // a shorter one would be over before it is used
	maxLife   = 31 * 24 * time.Hour // a longer one is no short-lived value
	maxMinted = 16 << 10
	clockSlip = 5 * time.Minute // how far clocks may be apart
)

// margin is how long before its end a value is no longer given away: our clock
// may be set meanwhile.
func margin(life time.Duration) time.Duration { return min(clockSlip, life/4) }

// left is for how long a value may still be given away, and whether the next one
// should be made already.
func left(m task.MintedValue, now time.Time) (d time.Duration, renew bool) {
	life := m.Until.Sub(*m.Kept)
	d = m.Until.Sub(now) - margin(life)
	return d, d < min(2*Life, life/4)
}

// fit says what is wrong with a value that was minted, without telling any of it.
func (m Minted) fit(now time.Time, once bool) string {
	value := m.Value.Reveal()
	if value == "" || len(value) > maxMinted {
		return fmt.Sprintf("a value of %d bytes", len(value))
	}
	for _, c := range []byte(value) {
		if c < ' ' || c >= 0x7f {
			return "a value that no header can carry: it has a line break or another character that is not printable"
		}
	}
	if once {
		if !m.Until.IsZero() {
			return "a value for one request that lasts"
		}
		return ""
	}
	if life := m.Until.Sub(now); life < minLife || life > maxLife {
		return "a value that is over at once, or lasts absurdly long"
	}
	return ""
}

// boundMint is what a minted value is tied to when it is sealed.
func boundMint(id string, lent task.Lent, c task.Credential) ([]byte, error) {
	of, err := seal.Bound(c)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "minted 1|%s|%s|%d|%s|%s", id, lent.ID, lent.Count, lent.Sandbox, of), nil
}

func (v *Vault) sealMint(ctx context.Context, id string, lent task.Lent, c task.Credential, value task.Secret) ([]byte, error) {
	k, err := v.unlock(ctx)
	if err != nil {
		return nil, err
	}
	ad, err := boundMint(id, lent, c)
	if err != nil {
		return nil, err
	}
	return k.Seal(ad, value), nil
}

func (v *Vault) openMint(ctx context.Context, m task.MintedValue) (task.Secret, error) {
	k, err := v.keyFor(ctx, m.Sealed)
	if err != nil {
		return task.Secret{}, err
	}
	ad, err := boundMint(m.ID, m.Lease, m.Credential)
	if err != nil {
		return task.Secret{}, err
	}
	return k.Open(ad, m.Credential, m.Sealed)
}

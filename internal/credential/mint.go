package credential

import (
	"context"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Minter makes short-lived values of one kind from what the vault keeps, one
// adapter a vendor. Errors are *task.Failure and never hold a value:
// task.PolicyCredential where the provider refuses, which is not tried again;
// task.InfraCredential where it does not answer or answers garbage.
type Minter interface {
	// Mint makes a value for one lease. long is what the vault keeps.
	Mint(ctx context.Context, c task.Credential, long task.Secret, l task.Lent) (Minted, error)
	// Revoke ends a value that Mint made. It may be repeated, and a value that is
	// over already is no error. long is empty when the vault's own was wiped.
	Revoke(ctx context.Context, c task.Credential, long, value task.Secret) error
}

// Minted is a value that was made for one lease.
type Minted struct {
	Value task.Secret
	Until time.Time // when it is over by itself; zero: it is for one use and never kept
}

package outbound

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Secret is the real value of a credential. It prints as "[sealed]" and only
// Reveal gives it. The zero Secret is empty and never injected.
type Secret = task.Secret

// Lender gives the value of a lease to one use of it. An error whose reason is
// of class "policy" means that the lease is refused, ended or revoked;
// task.InfraCredential that who mints its value does not answer as it should; any
// other error that it can't be known now. Errors never hold the value.
type Lender interface {
	Value(ctx context.Context, sandbox string, lease task.Lease) (Secret, error)
}

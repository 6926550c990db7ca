package outbound

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/cofferdam/cofferdam/internal/task"
)

// sealed is what a Secret prints as, however it is printed.
const sealed = "[sealed]"

// Secret is the real value of a credential. It prints as "[sealed]" and only
// Reveal gives it. The zero Secret is empty and never injected.
type Secret struct{ value string }

// NewSecret wraps a value.
func NewSecret(value string) Secret { return Secret{value: value} }

// Reveal gives the value. Whoever calls it must neither keep nor print it.
func (s Secret) Reveal() string { return s.value }

// String hides the value.
func (Secret) String() string { return sealed }

// Format hides the value from every verb of package fmt.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(sealed)) }

// MarshalText hides the value from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte(sealed), nil }

// LogValue hides the value from package slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(sealed) }

// Lender gives the value of a lease to one use of it. An error whose reason is
// of class "policy" means that the lease is refused, ended or revoked; any other
// error that it can't be known now. Errors never hold the value.
type Lender interface {
	Value(ctx context.Context, sandbox string, lease task.Lease) (Secret, error)
}

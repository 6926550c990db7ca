package vault

import (
	"fmt"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

// CredentialRow is a row of credentials. Its binding is the credential as JSON;
// its value is sealed by the vault, and only text here.
type CredentialRow struct {
	bun.BaseModel `bun:"table:credentials"`

	ID        string `bun:"id,pk"`
	Name      string `bun:"name"`
	Owner     string `bun:"owner"`
	Kind      string `bun:"kind"`
	Binding   string `bun:"binding"`
	Sealed    string `bun:"sealed"` // base64; empty: wiped
	CreatedAt int64  `bun:"created_at"`
	UsedAt    *int64 `bun:"used_at"`
	RevokedAt *int64 `bun:"revoked_at"`
}

// Credential is what the row says of the credential.
func (r CredentialRow) Credential() (task.Credential, error) {
	c, err := table.From[task.Credential](r.Binding)
	if err != nil {
		return c, fmt.Errorf("credential %q: %w", r.Name, err)
	}
	c.ID, c.Name, c.Owner, c.Kind = r.ID, r.Name, r.Owner, r.Kind
	c.Created, c.LastUsed, c.Revoked = table.Moment(r.CreatedAt), table.Optional(r.UsedAt), table.Optional(r.RevokedAt)
	return c, nil
}

// LeaseRow is a row of leases. What never changes is in lease, as JSON.
type LeaseRow struct {
	bun.BaseModel `bun:"table:leases"`

	ID           string `bun:"id,pk"`
	Task         string `bun:"task"`
	Number       int64  `bun:"number"`
	Sandbox      string `bun:"sandbox"`
	CredentialID string `bun:"credential_id"`
	Lease        string `bun:"lease"`
	Count        int64  `bun:"count"`
	FromAt       int64  `bun:"from_at"`
	UntilAt      *int64 `bun:"until_at"`
	Ended        string `bun:"ended"`
}

// Lent is what the row says of the lease.
func (r LeaseRow) Lent() (task.Lent, error) {
	l, err := table.From[task.Lent](r.Lease)
	if err != nil {
		return l, fmt.Errorf("lease %q: %w", r.ID, err)
	}
	l.ID, l.Task, l.Sandbox, l.CredentialID = r.ID, r.Task, r.Sandbox, r.CredentialID
	l.Count, l.From, l.Until, l.Ended = int(r.Count), table.Moment(r.FromAt), table.Optional(r.UntilAt), r.Ended
	return l, nil
}

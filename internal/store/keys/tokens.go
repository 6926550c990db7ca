package keys

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/store/table"
)

// TokenRow is a row of tokens.
type TokenRow struct {
	bun.BaseModel `bun:"table:tokens"`

	ID        string `bun:"id,pk"`
	Owner     string `bun:"owner"`
	Role      string `bun:"role"`
	Note      string `bun:"note"`
	Hash      string `bun:"hash"`
	CreatedAt int64  `bun:"created_at"`
	ExpiresAt *int64 `bun:"expires_at"`
}

// TokenRowOf is the row of a token.
func TokenRowOf(t identity.Token) TokenRow {
	row := TokenRow{ID: t.ID, Owner: t.User, Role: string(t.Role), Note: t.Note, Hash: t.Hash, CreatedAt: t.CreatedAt.UnixNano()}
	if !t.ExpiresAt.IsZero() {
		ns := t.ExpiresAt.UnixNano()
		row.ExpiresAt = &ns
	}
	return row
}

// Token is what the row says.
func (r TokenRow) Token() identity.Token {
	t := identity.Token{ID: r.ID, User: r.Owner, Role: identity.Role(r.Role), Note: r.Note, Hash: r.Hash, CreatedAt: table.Moment(r.CreatedAt)}
	if r.ExpiresAt != nil {
		t.ExpiresAt = table.Moment(*r.ExpiresAt)
	}
	return t
}

// ReplaceTokens forgets every token of a user (empty: everyone's) and keeps those
// that were made in their place, in one transaction.
func (r *Rows) ReplaceTokens(ctx context.Context, user string, made []identity.Token) error {
	return r.base.Failure("replace tokens", r.base.Change(ctx, "", func(tx bun.Tx) error {
		gone := tx.NewDelete().Model((*TokenRow)(nil)).Where("1 = 1")
		if user != "" {
			gone = gone.Where("owner = ?", user)
		}
		if _, err := gone.Exec(ctx); err != nil {
			return err
		}
		for _, t := range made {
			row := TokenRowOf(t)
			if _, err := tx.NewInsert().Model(&row).Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
}

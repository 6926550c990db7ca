package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/store/keys"
)

var _ identity.Tokens = (*Store)(nil)

// AddToken keeps a token. A worker's token is one of role "worker".
func (s *Store) AddToken(ctx context.Context, t identity.Token) error {
	row := keys.TokenRowOf(t)
	_, err := s.write.NewInsert().Model(&row).Exec(ctx)
	return s.failure("add token", err)
}

// TokenByHash finds a token by the hash of its secret, expired or not.
func (s *Store) TokenByHash(ctx context.Context, hash string) (identity.Token, error) {
	var row keys.TokenRow
	err := s.read.NewSelect().Model(&row).Where("hash = ?", hash).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return identity.Token{}, notFound("token", "")
	}
	return row.Token(), s.failure("read token", err)
}

// Tokens lists all tokens, oldest first.
func (s *Store) Tokens(ctx context.Context) ([]identity.Token, error) {
	var rows []keys.TokenRow
	if err := s.read.NewSelect().Model(&rows).OrderExpr("created_at, id").Scan(ctx); err != nil {
		return nil, s.failure("list tokens", err)
	}
	out := make([]identity.Token, 0, len(rows))
	for _, r := range rows {
		out = append(out, r.Token())
	}
	return out, nil
}

// RemoveToken forgets a token; it works no more at once.
func (s *Store) RemoveToken(ctx context.Context, id string) error {
	res, err := s.write.NewDelete().Model((*keys.TokenRow)(nil)).Where("id = ?", id).Exec(ctx)
	if err != nil {
		return s.failure("remove token", err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		if err != nil {
			return s.failure("remove token", err)
		}
		return notFound("token", id)
	}
	return nil
}

package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/vault"
	"github.com/cofferdam/cofferdam/internal/task"
)

// AddCredential keeps a new credential. A name that is taken, also by one that
// was revoked, is a *task.Failure with task.InputConflict.
func (s *Store) AddCredential(ctx context.Context, c task.Credential, sealed []byte) error {
	c.LastUsed, c.Revoked = nil, nil
	binding, err := jsonText(c)
	if err != nil {
		return err
	}
	row := vault.CredentialRow{
		ID: c.ID, Name: c.Name, Owner: c.Owner, Kind: c.Kind, Binding: binding,
		Sealed: base64.StdEncoding.EncodeToString(sealed), CreatedAt: c.Created.UnixNano(),
	}
	err = s.write.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		taken, err := tx.NewSelect().Model((*vault.CredentialRow)(nil)).Where("name = ?", c.Name).Exists(ctx)
		if err != nil {
			return err
		}
		if taken {
			return task.Fail(task.InputConflict, fmt.Sprintf("name: a credential %q is there already; remove it first, or choose another name", c.Name), nil)
		}
		_, err = tx.NewInsert().Model(&row).Exec(ctx)
		return err
	})
	return s.failure("add credential", err)
}

func oneCredential(ctx context.Context, db bun.IDB, name string) (vault.CredentialRow, error) {
	var row vault.CredentialRow
	err := db.NewSelect().Model(&row).Where("name = ?", name).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return row, notFound("credential", name)
	}
	return row, err
}

// Credential finds a credential and its sealed value by name.
func (s *Store) Credential(ctx context.Context, name string) (task.Credential, []byte, error) {
	row, err := oneCredential(ctx, s.read, name)
	if err != nil {
		return task.Credential{}, nil, s.failure("read credential", err)
	}
	c, err := row.Credential()
	if err != nil {
		return c, nil, s.failure("read credential", err)
	}
	// What is no base64 is no sealed value either: the vault says so.
	sealed, err := base64.StdEncoding.DecodeString(row.Sealed)
	if err != nil {
		sealed = nil
	}
	return c, sealed, nil
}

// Credentials lists all credentials, by name.
func (s *Store) Credentials(ctx context.Context) ([]task.Credential, error) {
	var rows []vault.CredentialRow
	if err := s.read.NewSelect().Model(&rows).ExcludeColumn("sealed").OrderExpr("name").Scan(ctx); err != nil {
		return nil, s.failure("list credentials", err)
	}
	out := make([]task.Credential, 0, len(rows))
	for _, r := range rows {
		c, err := r.Credential()
		if err != nil {
			return nil, s.failure("list credentials", err)
		}
		out = append(out, c)
	}
	return out, nil
}

// UseCredential notes when the value was last lent. The time never goes back.
func (s *Store) UseCredential(ctx context.Context, id string, at time.Time) error {
	ns := at.UnixNano()
	_, err := s.write.NewRaw("UPDATE credentials SET used_at = ? WHERE id = ? AND (used_at IS NULL OR used_at < ?)", ns, id, ns).Exec(ctx)
	return s.failure("use credential", err)
}

// EndCredential wipes the sealed value and ends every active lease in one
// transaction, and returns the leases that it ended. With remove the row goes
// too; otherwise the first time of revocation stays.
func (s *Store) EndCredential(ctx context.Context, name string, at time.Time, remove bool) (task.Credential, []task.Lent, error) {
	var row vault.CredentialRow
	var ended []task.Lent
	err := s.write.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		var err error
		if row, err = oneCredential(ctx, tx, name); err != nil {
			return err
		}
		ns := at.UnixNano()
		if row.RevokedAt == nil {
			row.RevokedAt = &ns
		}
		row.Sealed = ""
		if remove {
			_, err = tx.NewDelete().Model(&row).WherePK().Exec(ctx)
		} else {
			_, err = tx.NewUpdate().Model(&row).WherePK().Exec(ctx)
		}
		if err != nil {
			return err
		}
		var rows []vault.LeaseRow
		if err := tx.NewSelect().Model(&rows).Where("credential_id = ? AND until_at IS NULL", row.ID).OrderExpr("task, number").Scan(ctx); err != nil {
			return err
		}
		for _, r := range rows {
			one, err := endLease(ctx, tx, r, task.EndedRevoked, at)
			if err != nil {
				return err
			}
			ended = append(ended, one)
		}
		return nil
	})
	if err != nil {
		return task.Credential{}, nil, s.failure("end credential", err)
	}
	for _, l := range ended {
		s.wake(l.Task)
	}
	c, err := row.Credential()
	return c, ended, s.failure("end credential", err)
}

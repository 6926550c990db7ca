package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/vault"
	"github.com/cofferdam/cofferdam/internal/task"
)

// MakeLease keeps a lease. One that is there already stays as it is, with its
// placeholder, but one that ended with its stage lasts again and is counted. A
// task that ended or is being cancelled is lent nothing (task.Cancelled), and
// neither is a credential that was revoked or removed (task.PolicyCredential).
func (s *Store) MakeLease(ctx context.Context, l task.Lent) (task.Lent, error) {
	text, err := jsonText(l)
	if err != nil {
		return task.Lent{}, err
	}
	var row vault.LeaseRow
	err = s.change(ctx, l.Task, func(tx bun.Tx) error {
		of, err := oneTask(ctx, tx, l.Task)
		if err != nil {
			return err
		}
		if of.EndedAt != nil || of.CancelRequested != nil {
			return task.Fail(task.Cancelled, "the task has ended or is being cancelled; nothing is lent to it", nil)
		}
		live, err := tx.NewSelect().Model((*vault.CredentialRow)(nil)).Where("id = ? AND revoked_at IS NULL", l.CredentialID).Exists(ctx)
		if err != nil {
			return err
		}
		live = live || l.CredentialID == "" && l.OfIdentity() // has none behind it
		err = tx.NewSelect().Model(&row).Where("id = ?", l.ID).Scan(ctx)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			if !live {
				return task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q was revoked or removed", l.Credential), nil)
			}
			return addLease(ctx, tx, &row, l, text)
		case err != nil:
			return err
		case row.Task != l.Task || row.Sandbox != l.Sandbox:
			return task.Fail(task.InfraInternal, "a lease of this id belongs to another sandbox", nil)
		case row.UntilAt == nil || row.Ended != task.EndedStage || !live:
			return nil
		}
		row.Count, row.FromAt, row.UntilAt, row.Ended = row.Count+1, l.From.UnixNano(), nil, ""
		_, err = tx.NewUpdate().Model(&row).WherePK().Exec(ctx)
		return err
	})
	if err != nil {
		return task.Lent{}, s.failure("make lease", err)
	}
	have, err := row.Lent()
	return have, s.failure("make lease", err)
}

func addLease(ctx context.Context, tx bun.Tx, row *vault.LeaseRow, l task.Lent, text string) error {
	*row = vault.LeaseRow{ID: l.ID, Task: l.Task, Sandbox: l.Sandbox, CredentialID: l.CredentialID, Lease: text, Count: 1, FromAt: l.From.UnixNano()}
	if err := tx.NewRaw("SELECT coalesce(max(number), 0) + 1 FROM leases WHERE task = ?", l.Task).Scan(ctx, &row.Number); err != nil {
		return err
	}
	_, err := tx.NewInsert().Model(row).Exec(ctx)
	return err
}

// endLease ends a lease that is active.
func endLease(ctx context.Context, tx bun.Tx, r vault.LeaseRow, why string, at time.Time) (task.Lent, error) {
	// A clock that was set back does not make a lease end before it began.
	ns := max(at.UnixNano(), r.FromAt)
	r.UntilAt, r.Ended = &ns, why
	if _, err := tx.NewUpdate().Model(&r).WherePK().Exec(ctx); err != nil {
		return task.Lent{}, err
	}
	return r.Lent()
}

// EndLeases ends what is active of the task, in one sandbox or (empty) in all,
// and returns all of them in the order they were made, also those that had
// ended before, which stay as they are.
func (s *Store) EndLeases(ctx context.Context, taskID, sandbox, why string, at time.Time) ([]task.Lent, error) {
	var out []task.Lent
	err := s.change(ctx, taskID, func(tx bun.Tx) error {
		rows, err := leasesOf(ctx, tx, taskID, sandbox)
		if err != nil {
			return err
		}
		for _, r := range rows {
			one, err := r.Lent()
			if err == nil && r.UntilAt == nil {
				one, err = endLease(ctx, tx, r, why, at)
			}
			if err != nil {
				return err
			}
			out = append(out, one)
		}
		return nil
	})
	if err != nil {
		return nil, s.failure("end leases", err)
	}
	return out, nil
}

func leasesOf(ctx context.Context, db bun.IDB, taskID, sandbox string) ([]vault.LeaseRow, error) {
	var rows []vault.LeaseRow
	q := db.NewSelect().Model(&rows).Where("task = ?", taskID)
	if sandbox != "" {
		q = q.Where("sandbox = ?", sandbox)
	}
	return rows, q.OrderExpr("number").Scan(ctx)
}

// Lease finds a lease by id.
func (s *Store) Lease(ctx context.Context, id string) (task.Lent, error) {
	var row vault.LeaseRow
	err := s.read.NewSelect().Model(&row).Where("id = ?", id).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return task.Lent{}, notFound("lease", id)
	}
	if err != nil {
		return task.Lent{}, s.failure("read lease", err)
	}
	l, err := row.Lent()
	return l, s.failure("read lease", err)
}

// Leases lists the task's leases in the order they were made.
func (s *Store) Leases(ctx context.Context, taskID string) ([]task.Lent, error) {
	rows, err := leasesOf(ctx, s.read, taskID, "")
	if err != nil {
		return nil, s.failure("list leases", err)
	}
	out := make([]task.Lent, 0, len(rows))
	for _, r := range rows {
		l, err := r.Lent()
		if err != nil {
			return nil, s.failure("list leases", err)
		}
		out = append(out, l)
	}
	return out, nil
}

package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/store/spending"
	"github.com/cofferdam/cofferdam/internal/task"
)

// AddSandbox remembers that the task had the sandbox, before it is made. The
// first spec of an id stays.
func (s *Store) AddSandbox(ctx context.Context, id string, spec sandbox.Spec) error {
	if !sandbox.ValidID(spec.ID) {
		return task.Fail(task.InfraInternal, "not a sandbox's id: "+quoted(spec.ID), nil)
	}
	text, err := jsonText(spec)
	if err != nil {
		return err
	}
	err = s.change(ctx, id, func(tx bun.Tx) error {
		if _, err := oneTask(ctx, tx, id); err != nil {
			return err
		}
		var old sandboxRow
		switch err := tx.NewSelect().Model(&old).Where("id = ?", spec.ID).Scan(ctx); {
		case err == nil && old.Task != id:
			return task.Fail(task.InfraInternal, "sandbox "+spec.ID+" belongs to another task", nil)
		case err == nil:
			return nil
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		row := sandboxRow{ID: spec.ID, Task: id, Spec: text}
		if err := tx.NewRaw("UPDATE tasks SET sandboxes = sandboxes + 1 WHERE id = ? RETURNING sandboxes", id).Scan(ctx, &row.Number); err != nil {
			return err
		}
		if _, err := tx.NewInsert().Model(&row).Exec(ctx); err != nil {
			return err
		}
		return s.taskEvent(ctx, tx, id)
	})
	return s.failure("add sandbox", err)
}

// SandboxesOf lists every sandbox the task ever had, oldest first.
func (s *Store) SandboxesOf(ctx context.Context, id string) ([]sandbox.Spec, error) {
	if _, err := oneTask(ctx, s.read, id); err != nil {
		return nil, s.failure("list sandboxes", err)
	}
	specs, err := sandboxesOf(ctx, s.read, id)
	return specs, s.failure("list sandboxes", err)
}

func sandboxesOf(ctx context.Context, db bun.IDB, id string) ([]sandbox.Spec, error) {
	var rows []sandboxRow
	if err := db.NewSelect().Model(&rows).Where("task = ?", id).OrderExpr("number").Scan(ctx); err != nil {
		return nil, err
	}
	specs := make([]sandbox.Spec, 0, len(rows))
	for _, r := range rows {
		var spec sandbox.Spec
		if err := json.Unmarshal([]byte(r.Spec), &spec); err != nil {
			return nil, fmt.Errorf("sandbox %q: %w", r.ID, err)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// ClaimSandbox remembers the owner of a sandbox without a task and the digest
// of the request, before the sandbox is made, once: a second claim changes
// nothing and returns the first.
func (s *Store) ClaimSandbox(ctx context.Context, id, owner, digest string) (firstOwner, firstDigest string, err error) {
	if !sandbox.ValidID(id) {
		return "", "", task.Fail(task.InputInvalid, "not a sandbox's id: "+quoted(id), nil)
	}
	row := ownerRow{Sandbox: id, Owner: owner, Digest: digest}
	err = s.write.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		var ofTask sandboxRow
		switch err := tx.NewSelect().Model(&ofTask).Where("id = ?", id).Scan(ctx); {
		case err == nil:
			return task.Fail(task.InputConflict, "the sandbox's id is taken; choose another", nil)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		if _, err := tx.NewInsert().Model(&row).On("CONFLICT (sandbox) DO NOTHING").Exec(ctx); err != nil {
			return err
		}
		return tx.NewSelect().Model(&row).WherePK().Scan(ctx)
	})
	return row.Owner, row.Digest, s.failure("claim sandbox", err)
}

// SandboxOwner returns whose a sandbox is: who claimed it, or who asked for its
// task. A *task.Failure with task.InputNotFound when nobody did.
func (s *Store) SandboxOwner(ctx context.Context, id string) (string, error) {
	var owner string
	err := s.read.NewRaw("SELECT owner FROM owners WHERE sandbox = ? UNION ALL "+
		"SELECT t.requested_by FROM sandboxes b JOIN tasks t ON t.id = b.task WHERE b.id = ? LIMIT 1", id, id).Scan(ctx, &owner)
	if errors.Is(err, sql.ErrNoRows) {
		return "", notFound("sandbox", id)
	}
	return owner, s.failure("read owner", err)
}

// AddEgress records the gateway's decisions, counts them into the task's usage
// and tells of each. Numbers that a sandbox has already are ignored.
func (s *Store) AddEgress(ctx context.Context, id string, records []task.EgressRecord) error {
	if len(records) == 0 {
		return nil
	}
	err := s.change(ctx, id, func(tx bun.Tx) error {
		of, err := oneTask(ctx, tx, id)
		if err != nil {
			return err
		}
		var number int64
		if err := tx.NewRaw("SELECT coalesce(max(number), 0) FROM egress WHERE task = ?", id).Scan(ctx, &number); err != nil {
			return err
		}
		var use task.Usage
		for _, r := range records {
			text, err := jsonText(r)
			if err != nil {
				return err
			}
			row := egressRow{Sandbox: r.Sandbox, Seq: r.Seq, Task: id, Number: number + 1, Record: text}
			res, err := tx.NewInsert().Model(&row).On("CONFLICT (sandbox, seq) DO NOTHING").Exec(ctx)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				if err != nil {
					return err
				}
				continue
			}
			number++
			count(&use, r)
			if err := s.countModel(ctx, tx, of, r.Tokens); err != nil {
				return err
			}
			if err := s.emit(ctx, tx, id, "egress", r); err != nil {
				return err
			}
		}
		_, err = tx.NewRaw("UPDATE tasks SET egress_allowed = egress_allowed + ?, egress_denied = egress_denied + ?, bytes_in = bytes_in + ?, bytes_out = bytes_out + ? WHERE id = ?",
			use.EgressAllowed, use.EgressDenied, use.BytesIn, use.BytesOut, id).Exec(ctx)
		return err
	})
	return s.failure("add egress", err)
}

// countModel counts what a record says of a model.
func (s *Store) countModel(ctx context.Context, tx bun.Tx, of taskRow, t *task.ModelTokens) error {
	if t == nil {
		return nil
	}
	spec, err := decodeAs[task.Spec](of.Spec)
	if err != nil {
		return err
	}
	return spending.Count(ctx, tx, spending.Of{Task: of.ID, Requester: of.RequestedBy, Project: spec.Project}, s.now(), *t)
}

// count adds one record to the usage: a decision is a connection, its end
// brings the bytes. What the gateway answers itself goes nowhere.
func count(use *task.Usage, r task.EgressRecord) {
	if task.IsReserved(r.Name) && r.Verdict == task.Allowed.String() {
		return
	}
	use.BytesIn += r.BytesIn
	use.BytesOut += r.BytesOut
	switch {
	case r.Done:
	case r.Verdict == task.Allowed.String():
		use.EgressAllowed++
	default:
		use.EgressDenied++
	}
}

// Egress returns the gateway's records of all sandboxes of the task, in the
// order they came.
func (s *Store) Egress(ctx context.Context, taskID string) ([]task.EgressRecord, error) {
	if _, err := oneTask(ctx, s.read, taskID); err != nil {
		return nil, s.failure("read egress", err)
	}
	var rows []egressRow
	if err := s.read.NewSelect().Model(&rows).Where("task = ?", taskID).OrderExpr("number").Scan(ctx); err != nil {
		return nil, s.failure("read egress", err)
	}
	out := make([]task.EgressRecord, 0, len(rows))
	for _, r := range rows {
		rec, err := decodeAs[task.EgressRecord](r.Record)
		if err != nil {
			return nil, s.failure("read egress", fmt.Errorf("record %d of sandbox %q: %w", r.Seq, r.Sandbox, err))
		}
		out = append(out, rec)
	}
	return out, nil
}

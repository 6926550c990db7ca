package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/spending"
	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

type removedRow struct {
	bun.BaseModel `bun:"table:removed_tasks"`

	Task          string `bun:"task,pk"`
	Owner         string `bun:"owner"`
	KeyDigest     string `bun:"key_digest,nullzero"`
	RequestDigest string `bun:"request_digest"`
	RemovedBy     string `bun:"removed_by"`
	RemovedAt     int64  `bun:"removed_at"`
	Told          int64  `bun:"told"` // 1: the audit has it
}

func (r removedRow) removed() task.Removed {
	return task.Removed{Task: r.Task, Owner: r.Owner, By: r.RemovedBy, At: table.Moment(r.RemovedAt)}
}

type looseBlobRow struct {
	bun.BaseModel `bun:"table:loose_blobs"`

	Digest string `bun:"digest,pk"`
}

type looseLogRow struct {
	bun.BaseModel `bun:"table:loose_logs"`

	Task string `bun:"task,pk"`
}

// taskTables are the tables with rows of a task, those that refer to others
// first. The audit's tables are not among them.
func taskTables() []string {
	return []string{"approvals", "calls", "turns", "agent_events", "file_denials", "egress", "leases", "stage_rounds", "stages", "outputs", "events", "sandboxes"}
}

// RemoveTask removes every row of a task that has ended, in one step, and leaves
// a word that it was there. What its outputs and its bundle referred to, and its
// logs, become loose: Loose lists them until they are gone from the disk. A task
// that was removed before gives the first removal; one that has not ended is a
// *task.Failure with task.InputConflict.
func (s *Store) RemoveTask(ctx context.Context, id, by string) (task.Removed, error) {
	row := removedRow{Task: id, RemovedBy: by, RemovedAt: s.now().UnixNano()}
	err := s.change(ctx, id, func(tx bun.Tx) error {
		of, err := oneTask(ctx, tx, id)
		if err != nil {
			var old removedRow
			if tx.NewSelect().Model(&old).Where("task = ?", id).Scan(ctx) == nil {
				row = old
				return nil
			}
			return err
		}
		if of.EndedAt == nil {
			return task.Fail(task.InputConflict, "task "+id+" has not ended; cancel it first", nil)
		}
		row.Owner, row.RequestDigest, row.KeyDigest = of.RequestedBy, of.RequestDigest, keyDigest(of.IdempotencyKey)
		if err := s.loosen(ctx, tx, of); err != nil {
			return err
		}
		if _, err := tx.NewRaw("DELETE FROM placements WHERE sandbox IN (SELECT id FROM sandboxes WHERE task = ?)", id).Exec(ctx); err != nil {
			return err
		}
		for _, text := range []string{
			"DELETE FROM decision_uses WHERE decision IN (SELECT id FROM decisions WHERE decided_in = ? AND scope = 'task')",
			"DELETE FROM decisions WHERE decided_in = ? AND scope = 'task'", // a project's outlive the task
		} {
			if _, err := tx.NewRaw(text, id).Exec(ctx); err != nil {
				return err
			}
		}
		if err := spending.Forget(ctx, tx, id, s.now()); err != nil {
			return err
		}
		for _, table := range taskTables() {
			if _, err := tx.NewRaw("DELETE FROM ? WHERE task = ?", bun.Ident(table), id).Exec(ctx); err != nil {
				return err
			}
		}
		if _, err := tx.NewRaw("DELETE FROM tasks WHERE id = ?", id).Exec(ctx); err != nil {
			return err
		}
		_, err = tx.NewInsert().Model(&row).Exec(ctx)
		return err
	})
	return row.removed(), s.failure("remove task", err)
}

// RemoveOutputs lets go of the bytes of everything an ended task left and of its
// bundle; the task's rows stay and say so. Doing it again changes nothing.
func (s *Store) RemoveOutputs(ctx context.Context, id string) error {
	err := s.change(ctx, id, func(tx bun.Tx) error {
		of, err := oneTask(ctx, tx, id)
		if err != nil {
			return err
		}
		if of.EndedAt == nil {
			return task.Fail(task.InputConflict, "task "+id+" has not ended; cancel it first", nil)
		}
		if err := s.loosen(ctx, tx, of); err != nil {
			return err
		}
		if _, err := tx.NewRaw("UPDATE outputs SET removed_at = ? WHERE task = ? AND removed_at IS NULL", s.now().UnixNano(), id).Exec(ctx); err != nil {
			return err
		}
		_, err = tx.NewRaw("UPDATE tasks SET bundle = '' WHERE id = ?", id).Exec(ctx)
		return err
	})
	return s.failure("remove outputs", err)
}

// loosen marks what the task's rows refer to.
func (s *Store) loosen(ctx context.Context, tx bun.Tx, of taskRow) error {
	t, err := of.task(s.now())
	if err != nil {
		return err
	}
	var digests []string
	if err := tx.NewSelect().Model((*outputRow)(nil)).ColumnExpr("DISTINCT digest").Where("task = ? AND removed_at IS NULL", of.ID).Scan(ctx, &digests); err != nil {
		return err
	}
	if t.Spec.Repo.Bundle != "" {
		digests = append(digests, string(t.Spec.Repo.Bundle))
	}
	for _, d := range digests {
		if _, err := tx.NewInsert().Model(&looseBlobRow{Digest: d}).On("CONFLICT (digest) DO NOTHING").Exec(ctx); err != nil {
			return err
		}
	}
	_, err = tx.NewInsert().Model(&looseLogRow{Task: of.ID}).On("CONFLICT (task) DO NOTHING").Exec(ctx)
	return err
}

// keyDigest is what is kept of a removed task's idempotency key.
func keyDigest(key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// spent refuses an idempotency key whose task was removed: what it asked for
// once is not done again.
func spent(ctx context.Context, tx bun.Tx, row taskRow) error {
	var old removedRow
	err := tx.NewSelect().Model(&old).Where("owner = ? AND key_digest = ?", row.RequestedBy, keyDigest(row.IdempotencyKey)).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return task.Fail(task.InputConflict, "the idempotency key made task "+old.Task+", which was removed; use a new key for a new request", nil)
}

// Removed tells of a task that was removed; a *task.Failure with
// task.InputNotFound when none of this id was.
func (s *Store) Removed(ctx context.Context, id string) (task.Removed, error) {
	var row removedRow
	err := s.read.NewSelect().Model(&row).Where("task = ?", id).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return task.Removed{}, notFound("removed task", id)
	}
	return row.removed(), s.failure("read removed task", err)
}

// Untold returns the removals that the audit may not have yet.
func (s *Store) Untold(ctx context.Context) ([]task.Removed, error) {
	var rows []removedRow
	if err := s.read.NewSelect().Model(&rows).Where("told = 0").OrderExpr("removed_at").Scan(ctx); err != nil {
		return nil, s.failure("list removed tasks", err)
	}
	out := make([]task.Removed, 0, len(rows))
	for _, r := range rows {
		out = append(out, r.removed())
	}
	return out, nil
}

// Told says that the audit has the removal.
func (s *Store) Told(ctx context.Context, id string) error {
	_, err := s.write.NewRaw("UPDATE removed_tasks SET told = 1 WHERE task = ?", id).Exec(ctx)
	return s.failure("settle a removal", err)
}

// Expired returns at most limit tasks that ended before a moment, oldest first;
// with outputs, only those some of whose outputs still have their bytes.
func (s *Store) Expired(ctx context.Context, before time.Time, outputs bool, limit int) ([]string, error) {
	ids := []string{}
	q := s.read.NewSelect().Model((*taskRow)(nil)).Column("id").Where("ended_at < ?", before.UnixNano()).OrderExpr("ended_at").Limit(int64(max(limit, 1)))
	if outputs {
		q = q.Where("(bundle IS NULL OR bundle <> '' OR id IN (SELECT task FROM outputs WHERE removed_at IS NULL))")
	}
	err := q.Scan(ctx, &ids)
	return ids, s.failure("list expired tasks", err)
}

// Loose returns what is to be removed from the disk: blobs that may have no
// reference any more, and tasks whose logs are to go.
func (s *Store) Loose(ctx context.Context) (blobs []task.Digest, logs []string, err error) {
	if err := s.read.NewSelect().Model((*looseBlobRow)(nil)).OrderExpr("digest").Scan(ctx, &blobs); err != nil {
		return nil, nil, s.failure("list loose blobs", err)
	}
	err = s.read.NewSelect().Model((*looseLogRow)(nil)).OrderExpr("task").Scan(ctx, &logs)
	return blobs, logs, s.failure("list loose logs", err)
}

// Referenced says whether a task's row refers to the blob.
func (s *Store) Referenced(ctx context.Context, d task.Digest) (bool, error) {
	var n int
	// By the writer, so that nothing that was kept a moment ago is missed.
	err := s.write.NewRaw("SELECT (SELECT count(*) FROM outputs WHERE digest = ? AND removed_at IS NULL) + "+
		"(SELECT count(*) FROM tasks WHERE bundle = ? OR (bundle IS NULL AND spec LIKE ?))", d, d, `%"bundle":"`+string(d)+`"%`).Scan(ctx, &n)
	return n > 0, s.failure("count references", err)
}

// BlobSettled says that a loose blob is gone, or is referred to again.
func (s *Store) BlobSettled(ctx context.Context, d task.Digest) error {
	_, err := s.write.NewDelete().Model((*looseBlobRow)(nil)).Where("digest = ?", d).Exec(ctx)
	return s.failure("settle a blob", err)
}

// RemoveLogs removes the logs of a task that are loose.
func (s *Store) RemoveLogs(ctx context.Context, id string) error {
	if !validTask(id) {
		return notFound("task", id)
	}
	path := filepath.Join(s.dir, "logs", id)
	if err := os.RemoveAll(path); err != nil {
		return s.logFailure(path, err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	if err != nil {
		return s.logFailure(path, err)
	}
	_, err = s.write.NewDelete().Model((*looseLogRow)(nil)).Where("task = ?", id).Exec(ctx)
	return s.failure("settle logs", err)
}

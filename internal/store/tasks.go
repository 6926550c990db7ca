package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base32"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/task"
)

// validTask says whether id can be a task's id.
func validTask(id string) bool {
	ok, _ := regexp.MatchString(`^t-[a-z2-7]{16}$`, id)
	return ok
}

// newTaskID returns a random id.
func newTaskID() string {
	var raw [10]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand since Go 1.24)
	return "t-" + strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))
}

// CreateTask writes the row of a new task in state queued. An idempotency key
// that its requester used before gives the task made with it and false, or a
// *task.Failure with task.InputConflict when it was for another request. An
// empty id is chosen here.
func (s *Store) CreateTask(ctx context.Context, t task.Task, requestDigest string) (stored task.Task, created bool, err error) {
	if t.ID == "" {
		t.ID = newTaskID()
	}
	if !validTask(t.ID) {
		return task.Task{}, false, task.Fail(task.InputInvalid, "not a task's id: "+quoted(t.ID), nil)
	}
	if t.State != "" && t.State != task.Queued {
		return task.Task{}, false, task.Fail(task.InfraInternal, "a new task is queued", fmt.Errorf("not %q", t.State))
	}
	if t.CreatedAt.IsZero() {
		t.CreatedAt = s.now()
	}
	spec, err := jsonText(t.Spec)
	if err != nil {
		return task.Task{}, false, err
	}
	layers, err := jsonText(t.Layers)
	if err != nil {
		return task.Task{}, false, err
	}
	row := taskRow{
		ID: t.ID, State: string(task.Queued), RequestedBy: t.RequestedBy, IdempotencyKey: t.IdempotencyKey,
		RequestDigest: requestDigest, Repo: t.Repo, Ref: t.Ref, Commit: t.Commit, PolicyDigest: string(t.PolicyDigest),
		Attempt: int64(t.Attempt), Spec: spec, Layers: layers, CreatedAt: t.CreatedAt.UnixNano(),
		Bundle: new(string),
	}
	*row.Bundle = string(t.Spec.Repo.Bundle)
	err = s.change(ctx, row.ID, func(tx bun.Tx) error {
		known, err := keyed(ctx, tx, row)
		if err != nil {
			return err
		}
		if known != "" {
			row.ID = known
			return nil
		}
		created = true
		if err := tx.NewRaw("SELECT coalesce(max(number), 0) + 1 FROM tasks").Scan(ctx, &row.Number); err != nil {
			return err
		}
		if _, err := tx.NewInsert().Model(&row).Exec(ctx); err != nil {
			return err
		}
		return s.taskEvent(ctx, tx, row.ID)
	})
	if err != nil {
		return task.Task{}, false, s.failure("create task", err)
	}
	stored, err = s.Task(ctx, row.ID)
	return stored, created, err
}

// keyed finds the task that the idempotency key made.
func keyed(ctx context.Context, tx bun.Tx, row taskRow) (id string, err error) {
	if row.IdempotencyKey == "" {
		return "", nil
	}
	var old taskRow
	err = tx.NewSelect().Model(&old).Where("requested_by = ? AND idempotency_key = ?", row.RequestedBy, row.IdempotencyKey).Scan(ctx)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", spent(ctx, tx, row)
	case err != nil:
		return "", err
	case old.RequestDigest != row.RequestDigest:
		return "", task.Fail(task.InputConflict, "the idempotency key was used for another request, task "+old.ID+"; use a new key for a new request", nil)
	}
	return old.ID, nil
}

// Task returns the task with its stages and outputs: of each of the nine stages
// the latest run, or a pending one.
func (s *Store) Task(ctx context.Context, id string) (task.Task, error) {
	t, err := s.loadTask(ctx, s.read, id)
	return t, s.failure("read task", err)
}

func (s *Store) loadTask(ctx context.Context, db bun.IDB, id string) (task.Task, error) {
	row, err := oneTask(ctx, db, id)
	if err != nil {
		return task.Task{}, err
	}
	all, err := s.fill(ctx, db, []taskRow{row})
	if err != nil {
		return task.Task{}, err
	}
	return all[0], nil
}

func oneTask(ctx context.Context, db bun.IDB, id string) (row taskRow, err error) {
	err = db.NewSelect().Model(&row).Where("id = ?", id).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return row, notFound("task", id)
	}
	return row, err
}

// Tasks returns at most limit tasks that were made before the task before
// (empty: the newest), newest first, of owner (empty: everyone's).
func (s *Store) Tasks(ctx context.Context, owner string, limit int, before string) ([]task.Task, error) {
	var rows []taskRow
	q := s.read.NewSelect().Model(&rows).OrderExpr("number DESC").Limit(int64(max(limit, 1)))
	if owner != "" {
		q = q.Where("requested_by = ?", owner)
	}
	if before != "" {
		row, err := oneTask(ctx, s.read, before)
		if err != nil {
			return nil, s.failure("list tasks", err)
		}
		q = q.Where("number < ?", row.Number)
	}
	if err := q.Scan(ctx); err != nil {
		return nil, s.failure("list tasks", err)
	}
	all, err := s.fill(ctx, s.read, rows)
	return all, s.failure("list tasks", err)
}

// fill gives rows their stages and outputs.
func (s *Store) fill(ctx context.Context, db bun.IDB, rows []taskRow) ([]task.Task, error) {
	all := make([]task.Task, 0, len(rows))
	if len(rows) == 0 {
		return all, nil
	}
	ids := make([]string, 0, len(rows))
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	var stages []stageRow
	if err := db.NewSelect().Model(&stages).Where("task IN (?)", bun.List(ids)).OrderExpr("attempt").Scan(ctx); err != nil {
		return nil, err
	}
	latest := map[string]map[task.StageName]task.Stage{}
	for _, st := range stages {
		if latest[st.Task] == nil {
			latest[st.Task] = map[task.StageName]task.Stage{}
		}
		latest[st.Task][task.StageName(st.Name)] = st.stage()
	}
	var outputs []outputRow
	if err := db.NewSelect().Model(&outputs).Where("task IN (?)", bun.List(ids)).OrderExpr("number").Scan(ctx); err != nil {
		return nil, err
	}
	kept := map[string][]task.Output{}
	for _, r := range outputs {
		o, err := r.output()
		if err != nil {
			return nil, err
		}
		kept[r.Task] = append(kept[r.Task], o)
	}
	now := s.now()
	for _, r := range rows {
		t, err := r.task(now)
		if err != nil {
			return nil, err
		}
		for _, name := range task.StageNames() {
			st, ok := latest[t.ID][name]
			if !ok {
				st = task.Stage{Name: name, State: task.StagePending}
			}
			t.Stages = append(t.Stages, st)
		}
		t.Outputs = append(t.Outputs, kept[t.ID]...)
		all = append(all, t)
	}
	return all, nil
}

// OpenTasks returns the ids of the tasks that have not ended, oldest first.
func (s *Store) OpenTasks(ctx context.Context) ([]string, error) {
	return s.open(ctx, "ended_at IS NULL")
}

// CancelledOpen returns the ids of the tasks that are to end and have not.
func (s *Store) CancelledOpen(ctx context.Context) ([]string, error) {
	return s.open(ctx, "ended_at IS NULL AND cancel_requested_at IS NOT NULL")
}

func (s *Store) open(ctx context.Context, where string) ([]string, error) {
	ids := []string{}
	err := s.read.NewSelect().Model((*taskRow)(nil)).Column("id").Where(where).OrderExpr("number").Scan(ctx, &ids)
	return ids, s.failure("list open tasks", err)
}

// RequestCancel remembers that the task is to end; false when it has ended.
func (s *Store) RequestCancel(ctx context.Context, id string) (open bool, err error) {
	err = s.change(ctx, id, func(tx bun.Tx) error {
		row, err := oneTask(ctx, tx, id)
		if err != nil {
			return err
		}
		open = row.EndedAt == nil
		if !open || row.CancelRequested != nil {
			return nil
		}
		if _, err := tx.NewUpdate().Model((*taskRow)(nil)).Set("cancel_requested_at = ?", s.now().UnixNano()).Where("id = ?", id).Exec(ctx); err != nil {
			return err
		}
		return s.taskEvent(ctx, tx, id)
	})
	return open, s.failure("request cancel", err)
}

// CancelRequested says whether the task is to end.
func (s *Store) CancelRequested(ctx context.Context, id string) (bool, error) {
	row, err := oneTask(ctx, s.read, id)
	return row.CancelRequested != nil, s.failure("read task", err)
}

var _ audit.Store = rows{}

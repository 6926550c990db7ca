package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// change runs f in one writing transaction and wakes the task's watchers when it
// was kept.
func (s *Store) change(ctx context.Context, taskID string, f func(tx bun.Tx) error) error {
	if err := s.write.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return f(tx) }); err != nil {
		return err
	}
	s.wake(taskID)
	return nil
}

// SetTask moves the task to a state and sets what is not empty. Reason and text
// belong to the state: a move sets both, also to nothing. A move that package
// task does not know is refused; the same update again changes nothing.
func (s *Store) SetTask(ctx context.Context, id string, u stage.TaskUpdate) error {
	err := s.change(ctx, id, func(tx bun.Tx) error {
		row, err := oneTask(ctx, tx, id)
		if err != nil {
			return err
		}
		next := row
		if err := s.move(&next, u); err != nil {
			return err
		}
		if u.Layers != nil {
			if next.Layers, err = jsonText(u.Layers); err != nil {
				return err
			}
		}
		if next == row {
			return nil
		}
		if _, err := tx.NewUpdate().Model(&next).WherePK().Exec(ctx); err != nil {
			return err
		}
		if u.Layers != nil && next.Layers != row.Layers && len(u.Layers.Narrowed) > 0 {
			if err := s.emit(ctx, tx, id, "policy", task.PolicyNote{Layer: task.LayerRepository, Narrowed: u.Layers.Narrowed}); err != nil {
				return err
			}
		}
		return s.taskEvent(ctx, tx, id)
	})
	return s.failure("set task", err)
}

func (s *Store) move(row *taskRow, u stage.TaskUpdate) error {
	if u.State != "" && string(u.State) != row.State {
		if !task.State(row.State).CanBecome(u.State) {
			return task.Fail(task.InfraInternal, "a task that is "+row.State+" can't become "+string(u.State), fmt.Errorf("task %q", row.ID))
		}
		now := s.now().UnixNano()
		if u.State == task.Running && row.StartedAt == nil {
			row.StartedAt = &now
		}
		if u.State.Ended() {
			row.EndedAt = &now
		}
		row.State, row.Reason, row.Text = string(u.State), string(u.Reason), u.Text
	}
	for _, f := range []struct {
		to   *string
		from string
	}{
		{&row.Reason, string(u.Reason)},
		{&row.Text, u.Text},
		{&row.Commit, u.Commit},
		{&row.Worker, u.Worker},
		{&row.PolicyDigest, string(u.PolicyDigest)},
	} {
		if f.from != "" {
			*f.to = f.from
		}
	}
	row.Attempt = max(row.Attempt, int64(u.Attempt))
	return nil
}

// SetStage records where a stage stands in an attempt. Times that are not given
// are set here; sandbox and exit code stay when not given. A run that has ended
// stays ended: "running" begins another run only when it began after that end,
// so that a repeated call changes nothing.
func (s *Store) SetStage(ctx context.Context, id string, attempt int, st task.Stage) error {
	if !slices.Contains(task.StageNames(), st.Name) || attempt < 1 {
		return task.Fail(task.InfraInternal, "not a stage of an attempt", fmt.Errorf("stage %q, attempt %d", st.Name, attempt))
	}
	err := s.change(ctx, id, func(tx bun.Tx) error {
		if _, err := oneTask(ctx, tx, id); err != nil {
			return err
		}
		var old stageRow
		err := tx.NewSelect().Model(&old).Where("task = ? AND attempt = ? AND name = ?", id, attempt, st.Name).Scan(ctx)
		known := err == nil
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		next := s.nextStage(old, known, stageRow{
			Task: id, Attempt: int64(attempt), Name: string(st.Name), State: string(st.State), Reason: string(st.Reason),
			Text: st.Text, Starts: int64(st.Attempts), Sandbox: st.Sandbox, ExitCode: wide(st.ExitCode),
			StartedAt: nanos(st.StartedAt), EndedAt: nanos(st.EndedAt),
		})
		if next.Starts == 0 && next.StartedAt != nil {
			var before int64
			if err := tx.NewRaw("SELECT count(*) FROM stages WHERE task = ? AND name = ? AND attempt < ? AND started_at IS NOT NULL", id, st.Name, attempt).Scan(ctx, &before); err != nil {
				return err
			}
			next.Starts = before + 1
		}
		if known && sameStage(old, next) {
			return nil
		}
		if _, err := tx.NewInsert().Model(&next).On("CONFLICT (task, attempt, name) DO UPDATE").Exec(ctx); err != nil {
			return err
		}
		if err := keepRound(ctx, tx, next, int64(st.Round)); err != nil {
			return err
		}
		told := next.stage()
		told.Round = st.Round
		return s.emit(ctx, tx, id, "stage", told)
	})
	return s.failure("set stage", err)
}

// nextStage merges what is told into what is known.
func (s *Store) nextStage(old stageRow, known bool, next stageRow) stageRow {
	begins := next.State == string(task.StageRunning) || next.State == string(task.StagePending)
	if known && stageEnded(old.State) && begins {
		again := next.StartedAt != nil && old.EndedAt != nil && *next.StartedAt >= *old.EndedAt &&
			(old.StartedAt == nil || *next.StartedAt != *old.StartedAt)
		if !again {
			return old
		}
		if next.Starts == 0 {
			next.Starts = old.Starts + 1
		}
		if next.Sandbox == "" {
			next.Sandbox = old.Sandbox
		}
		return next
	}
	if known {
		if next.Sandbox == "" {
			next.Sandbox = old.Sandbox
		}
		if next.ExitCode == nil {
			next.ExitCode = old.ExitCode
		}
		if next.StartedAt == nil {
			next.StartedAt = old.StartedAt
		}
		if next.EndedAt == nil && next.State == old.State {
			next.EndedAt = old.EndedAt
		}
		if next.Starts == 0 {
			next.Starts = old.Starts
		}
	}
	now := s.now().UnixNano()
	if next.State == string(task.StageRunning) && next.StartedAt == nil {
		next.StartedAt = &now
	}
	if stageEnded(next.State) && next.EndedAt == nil {
		next.EndedAt = &now
	}
	return next
}

func stageEnded(state string) bool {
	switch task.StageState(state) {
	case task.StageSucceeded, task.StageFailed, task.StageSkipped, task.StageCancelled:
		return true
	case task.StagePending, task.StageRunning:
	}
	return false
}

func sameStage(a, b stageRow) bool {
	return a.State == b.State && a.Reason == b.Reason && a.Text == b.Text && a.Starts == b.Starts && a.Sandbox == b.Sandbox &&
		same(a.ExitCode, b.ExitCode) && same(a.StartedAt, b.StartedAt) && same(a.EndedAt, b.EndedAt)
}

func same(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func wide(n *int) *int64 {
	if n == nil {
		return nil
	}
	w := int64(*n)
	return &w
}

// AddOutput records an output by name, replacing one of the same name.
func (s *Store) AddOutput(ctx context.Context, id string, o task.Output) error {
	if o.Flags == nil {
		o.Flags = []string{}
	}
	flags, err := jsonText(o.Flags)
	findings, err2 := jsonText(o.Findings)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	err = s.change(ctx, id, func(tx bun.Tx) error {
		if _, err := oneTask(ctx, tx, id); err != nil {
			return err
		}
		row := outputRow{Task: id, Name: o.Name, Kind: o.Kind, Digest: string(o.Digest), Size: o.Size, Flags: flags, Path: base64.StdEncoding.EncodeToString(o.Path), Findings: findings, Verdict: string(o.Verdict)}
		var old outputRow
		switch err := tx.NewSelect().Model(&old).Where("task = ? AND name = ?", id, o.Name).Scan(ctx); {
		case err == nil:
			row.Number = old.Number
			if row == old {
				return nil
			}
			// What is replaced may have no reference any more.
			if _, err := tx.NewInsert().Model(&looseBlobRow{Digest: old.Digest}).On("CONFLICT (digest) DO NOTHING").Exec(ctx); err != nil {
				return err
			}
		case errors.Is(err, sql.ErrNoRows):
			if err := tx.NewRaw("SELECT coalesce(max(number), 0) + 1 FROM outputs WHERE task = ?", id).Scan(ctx, &row.Number); err != nil {
				return err
			}
		default:
			return err
		}
		if _, err := tx.NewInsert().Model(&row).On("CONFLICT (task, name) DO UPDATE").Exec(ctx); err != nil {
			return err
		}
		return s.emit(ctx, tx, id, "output", o)
	})
	return s.failure("add output", err)
}

package store

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/task"
)

// roundRow is a row of stage_rounds: one run of one stage.
type roundRow struct {
	bun.BaseModel `bun:"table:stage_rounds"`

	Task      string `bun:"task,pk"`
	Attempt   int64  `bun:"attempt,pk"`
	Name      string `bun:"name,pk"`
	Round     int64  `bun:"round,pk"`
	State     string `bun:"state"`
	Reason    string `bun:"reason"`
	Text      string `bun:"text"`
	Sandbox   string `bun:"sandbox"`
	ExitCode  *int64 `bun:"exit_code"`
	StartedAt *int64 `bun:"started_at"`
	EndedAt   *int64 `bun:"ended_at"`
}

// keepRound writes down where a round of a stage stands; round 0 is the latest
// that is known. A stage that was never begun has no history.
func keepRound(ctx context.Context, tx bun.Tx, row stageRow, round int64) error {
	if row.StartedAt == nil {
		return nil
	}
	if round <= 0 {
		err := tx.NewRaw("SELECT coalesce(max(round), 1) FROM stage_rounds WHERE task = ? AND attempt = ? AND name = ?", row.Task, row.Attempt, row.Name).Scan(ctx, &round)
		if err != nil {
			return err
		}
	}
	kept := roundRow{
		Task: row.Task, Attempt: row.Attempt, Name: row.Name, Round: round, State: row.State, Reason: row.Reason, Text: row.Text,
		Sandbox: row.Sandbox, ExitCode: row.ExitCode, StartedAt: row.StartedAt, EndedAt: row.EndedAt,
	}
	_, err := tx.NewInsert().Model(&kept).On("CONFLICT (task, attempt, name, round) DO UPDATE").
		Set("state = EXCLUDED.state, reason = EXCLUDED.reason, text = EXCLUDED.text, sandbox = EXCLUDED.sandbox").
		Set("exit_code = EXCLUDED.exit_code, started_at = EXCLUDED.started_at, ended_at = EXCLUDED.ended_at").Exec(ctx)
	return err
}

// History returns every run of every stage of a task, in the order in which
// they began: all rounds of all attempts.
func (s *Store) History(ctx context.Context, id string) ([]task.StageRun, error) {
	if _, err := oneTask(ctx, s.read, id); err != nil {
		return nil, s.failure("read history", err)
	}
	var rows []roundRow
	err := s.read.NewSelect().Model(&rows).Where("task = ?", id).OrderExpr("attempt, started_at, round, name").Scan(ctx)
	if err != nil {
		return nil, s.failure("read history", err)
	}
	out := make([]task.StageRun, 0, len(rows))
	for _, r := range rows {
		st := stageRow{
			Name: r.Name, State: r.State, Reason: r.Reason, Text: r.Text, Sandbox: r.Sandbox,
			ExitCode: r.ExitCode, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
		}.stage()
		st.Round = int(r.Round)
		out = append(out, task.StageRun{Attempt: int(r.Attempt), Stage: st})
	}
	return out, nil
}

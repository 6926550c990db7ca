package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// placementRow is a row of placements.
type placementRow struct {
	bun.BaseModel `bun:"table:placements"`

	Sandbox string `bun:"sandbox,pk"`
	Worker  string `bun:"worker"`
}

// SandboxWorker returns the worker that a sandbox was given to, "" for one that
// was never placed or is forgotten.
func (s *Store) SandboxWorker(ctx context.Context, id string) (string, error) {
	var row placementRow
	err := s.read.NewSelect().Model(&row).Where("sandbox = ?", id).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return row.Worker, s.failure("read placement", err)
}

// SetSandboxWorker remembers the worker before the sandbox is made there. A
// sandbox has one worker for its life: another one later is refused.
func (s *Store) SetSandboxWorker(ctx context.Context, id, worker string) error {
	if !sandbox.ValidID(id) || worker == "" {
		return task.Fail(task.InfraInternal, "not a sandbox and its worker: "+quoted(id)+", "+quoted(worker), nil)
	}
	row := placementRow{Sandbox: id, Worker: worker}
	err := s.write.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&row).On("CONFLICT (sandbox) DO NOTHING").Exec(ctx); err != nil {
			return err
		}
		return tx.NewSelect().Model(&row).WherePK().Scan(ctx)
	})
	if err == nil && row.Worker != worker {
		return task.Fail(task.InfraInternal, fmt.Sprintf("sandbox %s is on worker %s already", id, row.Worker), nil)
	}
	return s.failure("place sandbox", err)
}

// ForgetSandboxWorker removes what is remembered of a sandbox that is gone.
func (s *Store) ForgetSandboxWorker(ctx context.Context, id string) error {
	_, err := s.write.NewDelete().Model((*placementRow)(nil)).Where("sandbox = ?", id).Exec(ctx)
	return s.failure("forget placement", err)
}

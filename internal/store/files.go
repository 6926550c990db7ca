package store

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

var _ stage.FileFacts = (*Store)(nil)

type denialRow struct {
	bun.BaseModel `bun:"table:file_denials"`

	Sandbox string `bun:"sandbox,pk"`
	Seq     int64  `bun:"seq,pk"`
	Task    string `bun:"task"`
	Number  int64  `bun:"number"`
	Record  string `bun:"record"`
}

// AddFileDenials records what was refused on protected files and tells of each.
// Numbers that a sandbox has already are ignored.
func (s *Store) AddFileDenials(ctx context.Context, id string, list []task.FileDenial) error {
	if len(list) == 0 {
		return nil
	}
	err := s.change(ctx, id, func(tx bun.Tx) error {
		if _, err := oneTask(ctx, tx, id); err != nil {
			return err
		}
		var number int64
		if err := tx.NewRaw("SELECT coalesce(max(number), 0) FROM file_denials WHERE task = ?", id).Scan(ctx, &number); err != nil {
			return err
		}
		for _, d := range list {
			text, err := jsonText(d)
			if err != nil {
				return err
			}
			row := denialRow{Sandbox: d.Sandbox, Seq: d.Seq, Task: id, Number: number + 1, Record: text}
			res, err := tx.NewInsert().Model(&row).On("CONFLICT (sandbox, seq) DO NOTHING").Exec(ctx)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			number++
			if err := s.emit(ctx, tx, id, "files", d); err != nil {
				return err
			}
		}
		return nil
	})
	return s.failure("add refused writes", err)
}

// FileDenials returns what was refused on protected files in all sandboxes of
// the task, in the order it came.
func (s *Store) FileDenials(ctx context.Context, taskID string) ([]task.FileDenial, error) {
	if _, err := oneTask(ctx, s.read, taskID); err != nil {
		return nil, s.failure("read refused writes", err)
	}
	var rows []denialRow
	if err := s.read.NewSelect().Model(&rows).Where("task = ?", taskID).OrderExpr("number").Scan(ctx); err != nil {
		return nil, s.failure("read refused writes", err)
	}
	out := make([]task.FileDenial, 0, len(rows))
	for _, r := range rows {
		d, err := decodeAs[task.FileDenial](r.Record)
		if err != nil {
			return nil, s.failure("read refused writes", fmt.Errorf("record %d of sandbox %q: %w", r.Seq, r.Sandbox, err))
		}
		out = append(out, d)
	}
	return out, nil
}

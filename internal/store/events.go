package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

// emit appends an event in the change's own transaction.
func (s *Store) emit(ctx context.Context, tx bun.Tx, id, kind string, data any) error {
	text, err := jsonText(data)
	if err != nil {
		return err
	}
	row := eventRow{Task: id, Time: s.now().UnixNano(), Type: kind, Data: text}
	if err := tx.NewRaw("UPDATE tasks SET last_event = last_event + 1 WHERE id = ? RETURNING last_event", id).Scan(ctx, &row.Seq); err != nil {
		return err
	}
	_, err = tx.NewInsert().Model(&row).Exec(ctx)
	return err
}

// taskEvent tells of the task as the transaction leaves it, without lists.
func (s *Store) taskEvent(ctx context.Context, tx bun.Tx, id string) error {
	row, err := oneTask(ctx, tx, id)
	if err != nil {
		return err
	}
	t, err := row.task(s.now())
	if err != nil {
		return err
	}
	return s.emit(ctx, tx, id, "task", t)
}

// Events returns at most limit events numbered higher than after, in order. Data
// is a task.Task without lists, a task.Stage, a task.Output, a
// task.EgressRecord or a task.AgentEvent, as Type says.
func (s *Store) Events(ctx context.Context, taskID string, after int64, limit int) ([]task.Event, error) {
	if _, err := oneTask(ctx, s.read, taskID); err != nil {
		return nil, s.failure("read events", err)
	}
	var rows []eventRow
	err := s.read.NewSelect().Model(&rows).Where("task = ? AND seq > ?", taskID, after).OrderExpr("seq").Limit(int64(max(limit, 1))).Scan(ctx)
	if err != nil {
		return nil, s.failure("read events", err)
	}
	out := make([]task.Event, 0, len(rows))
	for _, r := range rows {
		data, err := r.decode()
		if err != nil {
			return nil, s.failure("read events", fmt.Errorf("event %d of %q: %w", r.Seq, r.Task, err))
		}
		out = append(out, task.Event{Seq: r.Seq, Task: r.Task, Time: table.Moment(r.Time), Type: r.Type, Data: data})
	}
	return out, nil
}

func (r eventRow) decode() (any, error) {
	switch r.Type {
	case "task":
		return decodeAs[task.Task](r.Data)
	case "stage":
		return decodeAs[task.Stage](r.Data)
	case "output":
		return decodeAs[task.Output](r.Data)
	case "egress":
		return decodeAs[task.EgressRecord](r.Data)
	case "files":
		return decodeAs[task.FileDenial](r.Data)
	case "agent":
		return decodeAs[task.AgentEvent](r.Data)
	case "policy":
		return decodeAs[task.PolicyNote](r.Data)
	case "approval":
		return decodeAs[task.Approval](r.Data)
	}
	return json.RawMessage(r.Data), nil // of a newer program
}

func decodeAs[T any](text string) (v T, err error) {
	err = json.Unmarshal([]byte(text), &v)
	return v, err
}

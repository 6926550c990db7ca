package steps

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/fact"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Sweep destroys every sandbox the task ever had and takes over the gateway's
// last records. It is idempotent; the error says that some are left.
func (w *Work) Sweep(ctx context.Context, taskID string) error {
	specs, err := w.Facts.SandboxesOf(ctx, taskID)
	if err != nil {
		return removed(err)
	}
	var errs []error
	for _, spec := range specs {
		if spec.Role == stage.RoleAgent { // Its account of refused writes goes with it.
			if _, err := w.refused(ctx, taskID, spec.ID); err != nil {
				w.Logger.Warn("refused writes not collected", "task", taskID, "sandbox", spec.ID, "err", err)
			}
		}
		if err := w.discard(ctx, taskID, spec.ID); err != nil {
			errs = append(errs, &leftError{sandbox: spec.ID, err: err})
		}
	}
	return errors.Join(errs...)
}

// removed forgives that a task is unknown: only one that had ended was removed,
// and the engine may ask again for an end that it did not hear of.
func removed(err error) error {
	if hasReason(err, task.InputNotFound) {
		return nil
	}
	return err
}

// leftError is a sandbox that could not be destroyed.
type leftError struct {
	sandbox string
	err     error
}

func (e *leftError) Error() string { return fmt.Sprintf("sandbox %s: %v", e.sandbox, e.err) }

func (e *leftError) Unwrap() error { return e.err }

// discard ends one sandbox. The records are taken before and after: before,
// since they may go with it, and after, since the end cuts connections.
func (w *Work) discard(ctx context.Context, taskID, sandboxID string) error {
	if err := w.Leases.End(ctx, taskID, sandboxID, task.EndedTask); err != nil {
		return err
	}
	before := w.collect(ctx, taskID, sandboxID)
	if err := w.Sandboxes.Destroy(ctx, sandboxID); hasReason(err, task.InputConflict) { // A person keeps it as evidence.
		return w.Recorder.Record(ctx, taskID, "sandbox.kept/"+sandboxID, "sandbox.kept", seenByWorker, fact.SandboxDestroyed{Task: taskID, Sandbox: sandboxID})
	} else if err != nil {
		return err
	}
	if after := w.collect(ctx, taskID, sandboxID); after != nil && before != nil {
		return errors.Join(before, after)
	}
	return w.Recorder.Record(ctx, taskID, "sandbox.destroyed/"+sandboxID, "sandbox.destroyed", seenByWorker,
		fact.SandboxDestroyed{Task: taskID, Sandbox: sandboxID})
}

// collect takes over the gateway's records of a sandbox, page by page. One that
// is unknown has none.
func (w *Work) collect(ctx context.Context, taskID, sandboxID string) error {
	facts := fact.EgressCollected{Task: taskID, Sandbox: sandboxID}
	sum := sha256.New()
	lines := json.NewEncoder(sum)
	for {
		records, err := w.Sandboxes.Egress(ctx, sandboxID, facts.LastSeq)
		if err != nil && !hasReason(err, task.InputNotFound) && !hasReason(err, task.InfraSandboxLost) {
			return err
		}
		if len(records) == 0 {
			break
		}
		if err := w.Facts.AddEgress(ctx, taskID, records); err != nil {
			return err
		}
		for _, r := range records {
			if err := lines.Encode(r); err != nil {
				return err
			}
			facts.Count(r)
		}
	}
	if facts.LastSeq == 0 {
		return nil
	}
	facts.Close(sum.Sum(nil))
	key := fmt.Sprintf("egress.collected/%s/%d", sandboxID, facts.LastSeq)
	return w.Recorder.Record(ctx, taskID, key, "egress.collected", seenByGateway, facts)
}

// BeginClose records that the close stage runs.
func (w *Work) BeginClose(ctx context.Context, in stage.Input) error {
	t, err := w.Facts.Task(ctx, in.Task)
	if err != nil || t.State.Ended() {
		return removed(err)
	}
	now := w.Now()
	row := task.Stage{Name: task.Close, State: task.StageRunning, Attempts: in.Attempt, StartedAt: &now}
	for _, have := range t.Stages {
		if have.Name == task.Close && have.State == task.StageRunning {
			row.StartedAt = have.StartedAt
		}
	}
	return w.Facts.SetStage(ctx, in.Task, in.Attempt, row)
}

// Finish records how the task ended, seals its receipt and sets its final
// state. Sandboxes that Sweep could not destroy are named in the account.
func (w *Work) Finish(ctx context.Context, in stage.Input, e stage.Ending, left bool) error {
	t, err := w.Facts.Task(ctx, in.Task)
	if err != nil {
		return removed(err)
	}
	if t.State.Ended() {
		return nil
	}
	if err := w.endStages(ctx, t, in, e); err != nil {
		return err
	}
	facts := fact.TaskEnded{Task: in.Task, State: e.State, Reason: e.Reason, Attempts: t.Attempt, Commit: t.Commit}
	if left {
		specs, err := w.Facts.SandboxesOf(ctx, in.Task)
		if err != nil {
			return err
		}
		for _, spec := range specs {
			if err := w.Sandboxes.Destroy(ctx, spec.ID); err != nil {
				facts.Left = append(facts.Left, spec.ID)
			}
		}
	}
	why := task.EndedTask
	if e.State == task.StateCancelled {
		why = task.EndedCancelled
	}
	// The receipt has every end: nothing that was lent outlives the task.
	if err := w.Leases.End(ctx, in.Task, "", why); err != nil {
		return err
	}
	if err := errors.Join(w.Leases.Settle(ctx, in.Task), w.Budgets.Settle(ctx, in.Task)); err != nil {
		return err
	}
	if err := w.Recorder.Record(ctx, in.Task, "task.ended", "task.ended", seenByControl, facts); err != nil {
		return err
	}
	if _, err := w.Recorder.Receipt(ctx, in.Task); err != nil {
		return err
	}
	return w.Facts.SetTask(ctx, in.Task, stage.TaskUpdate{State: e.State, Reason: e.Reason, Text: e.Text})
}

// endStages gives every stage an end: what ran was cut off, what waited was
// not needed.
func (w *Work) endStages(ctx context.Context, t task.Task, in stage.Input, e stage.Ending) error {
	rows := map[task.StageName]task.Stage{}
	for _, row := range t.Stages {
		rows[row.Name] = row
	}
	now := w.Now()
	for _, name := range task.StageNames() {
		row := rows[name]
		row.Name = name
		attempt := row.Attempts
		if attempt == 0 {
			attempt = in.Attempt
		}
		switch {
		case name == task.Close:
			if row.StartedAt == nil {
				row.StartedAt = &now
			}
			row.State, row.Attempts, row.EndedAt = task.StageSucceeded, attempt, &now
		case row.State == task.StageRunning && e.State == task.StateCancelled:
			row.State, row.Reason, row.Text, row.EndedAt = task.StageCancelled, e.Reason, e.Text, &now
		case row.State == task.StageRunning:
			row.State, row.Reason, row.Text, row.EndedAt = task.StageFailed, e.Reason, e.Text, &now
		case row.State == task.StagePending || row.State == "":
			row.State = task.StageSkipped
		default:
			continue
		}
		if err := w.Facts.SetStage(ctx, in.Task, attempt, row); err != nil {
			return err
		}
	}
	return nil
}

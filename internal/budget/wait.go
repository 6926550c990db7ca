package budget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Linux's signals that hold a process and let it go on. The first can't be
// caught.
const (
	sigCont = 18
	sigStop = 19
)

const seenBy = "control plane"

// Met are the facts of the record that a budget was met, and Over of the one that
// its task waits no more.
type (
	Met struct {
		Task  string    `json:"task"`
		Wait  int64     `json:"wait"`
		Text  string    `json:"text"`
		Since time.Time `json:"since"`
		Until time.Time `json:"until"`
	}
	// Over has how it ended: "raised", "expired" or "task ended".
	Over struct {
		Task string    `json:"task"`
		Wait int64     `json:"wait"`
		How  string    `json:"how"`
		At   time.Time `json:"at"`
	}
	// Used are the facts of the record of what a task used of models.
	Used struct {
		Task string `json:"task"`
		task.Spend
		Tokens   int64  `json:"tokens"`
		MicroUSD int64  `json:"microUSD"`
		Unpriced string `json:"unpriced,omitempty"` // the first model without a price
	}
)

// tell puts on record what the audit lacks of a wait.
func (k *Keeper) tell(ctx context.Context, w task.BudgetWait) error {
	if w.Told < 1 {
		err := k.Audit.Record(ctx, w.Task, fmt.Sprintf("budget.met/%d", w.Number), "budget.met", seenBy,
			Met{Task: w.Task, Wait: w.Number, Text: w.Text, Since: w.Since, Until: w.Until})
		if err == nil {
			err = k.Waits.Told(ctx, w.Task, w.Number, 1)
		}
		if err != nil {
			return err
		}
	}
	if w.Ended == nil || w.Told >= 2 {
		return nil
	}
	how := "task ended"
	switch {
	case w.Raised:
		how = "raised"
	case vain(w):
		how = "expired"
	}
	err := k.Audit.Record(ctx, w.Task, fmt.Sprintf("budget.over/%d", w.Number), "budget.over", seenBy, Over{Task: w.Task, Wait: w.Number, How: how, At: *w.Ended})
	if err != nil {
		return err
	}
	return k.Waits.Told(ctx, w.Task, w.Number, 2)
}

// hold stops what runs in a sandbox. It is done once by this process.
func (k *Keeper) hold(ctx context.Context, sandbox string) error {
	k.mu.Lock()
	done := k.held[sandbox]
	k.mu.Unlock()
	if done {
		return nil
	}
	err := k.signal(ctx, sandbox, sigStop)
	if err == nil {
		k.mu.Lock()
		k.held[sandbox] = true
		k.mu.Unlock()
	}
	return err
}

// release has it go on.
func (k *Keeper) release(ctx context.Context, sandbox string) error {
	if sandbox == "" {
		return nil
	}
	if err := k.signal(ctx, sandbox, sigCont); err != nil && !gone(err) {
		return err
	}
	k.mu.Lock()
	delete(k.held, sandbox)
	k.mu.Unlock()
	return nil
}

// signal sends a signal to all that commands of the sandbox left running.
func (k *Keeper) signal(ctx context.Context, id string, number int) error {
	list, err := k.Machines.Inspect(ctx, id, "")
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range list {
		if s.Phase == sandbox.CommandRunning || len(s.Children) > 0 {
			if err := k.Machines.SignalPart(ctx, id, s.ID, sandbox.Signal{Number: number}); err != nil && !gone(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Run looks after the tasks that wait, until ctx ends: also those that waited
// when the process before this one ended.
func (k *Keeper) Run(ctx context.Context) {
	ticker := time.NewTicker(k.Pace)
	defer ticker.Stop()
	for {
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			k.Log.WarnContext(ctx, "tasks that wait for a budget were not all looked after; they are again in a moment", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-k.kick:
		}
	}
}

// look looks after all of them once.
func (k *Keeper) look(ctx context.Context) error {
	open, err := k.Waits.Open(ctx)
	errs := []error{err}
	for _, w := range open {
		if err := k.settle(ctx, w.Task); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("task %s: %w", w.Task, err))
		}
	}
	return errors.Join(errs...)
}

// settle ends the wait of a task where it is over.
func (k *Keeper) settle(ctx context.Context, id string) error {
	let := k.take(id)
	defer let()
	waits, err := k.Waits.Of(ctx, id)
	if err != nil {
		return err
	}
	t, err := k.Tasks.Task(ctx, id)
	if err != nil {
		return err
	}
	for _, w := range waits {
		if w.Ended != nil {
			if err := k.tell(ctx, w); err != nil {
				return err
			}
			continue
		}
		why := ""
		if !t.State.Ended() {
			if _, why, err = k.room(ctx, t); err != nil {
				return err
			}
		}
		now := k.Now()
		if !t.State.Ended() && why != "" && now.Before(w.Until) {
			continue
		}
		w.Ended, w.Raised = &now, !t.State.Ended() && why == ""
		if err := k.end(ctx, t, w); err != nil {
			return err
		}
	}
	return nil
}

// end ends one wait: first the processes go on, so that one which is killed on
// the way does it again.
func (k *Keeper) end(ctx context.Context, t task.Task, w task.BudgetWait) error {
	if !t.State.Ended() {
		if err := k.release(ctx, w.Sandbox); err != nil {
			return err
		}
		if err := k.Tasks.Go(ctx, t.ID); err != nil {
			return err
		}
	}
	if err := k.Waits.End(ctx, w); err != nil {
		return err
	}
	k.Log.InfoContext(ctx, "a task does not wait for its budget any more", "task", t.ID, "raised", w.Raised)
	k.wake()
	return k.tell(ctx, w)
}

// Waiting says whether a task waits for a budget now. It is no error not to know.
func (k *Keeper) Waiting(ctx context.Context, taskID string) bool {
	waits, err := k.Waits.Of(ctx, taskID)
	return err == nil && len(waits) > 0 && waits[len(waits)-1].Ended == nil
}

// Vain says whether a task's last wait was over before there was room.
func (k *Keeper) Vain(ctx context.Context, taskID string) bool {
	waits, err := k.Waits.Of(ctx, taskID)
	return err == nil && len(waits) > 0 && vain(waits[len(waits)-1])
}

// Waited is how long a task has waited for budgets so far.
func (k *Keeper) Waited(ctx context.Context, taskID string) time.Duration {
	waits, err := k.Waits.Of(ctx, taskID)
	if err != nil {
		return 0
	}
	return waited(waits, k.Now())
}

func waited(waits []task.BudgetWait, now time.Time) (sum time.Duration) {
	for _, w := range waits {
		end := now
		if w.Ended != nil {
			end = *w.Ended
		}
		sum += max(0, end.Sub(w.Since))
	}
	return sum
}

// Settle puts on record what a task used of models, once all of it is known, and
// ends its wait: the task is about to end.
func (k *Keeper) Settle(ctx context.Context, taskID string) error {
	let := k.take(taskID)
	defer let()
	waits, err := k.Waits.Of(ctx, taskID)
	if err != nil {
		return err
	}
	for _, w := range waits {
		if w.Ended == nil {
			now := k.Now()
			w.Ended = &now
			if err := k.Waits.End(ctx, w); err != nil {
				return err
			}
			k.wake()
		}
		if err := k.tell(ctx, w); err != nil {
			return err
		}
		k.mu.Lock()
		delete(k.held, w.Sandbox)
		k.mu.Unlock()
	}
	list, err := k.Rows.Spent(ctx, task.BudgetTask, taskID, time.Time{})
	if err != nil || len(list) == 0 {
		return err
	}
	s := k.Prices.Of(list)
	return k.Audit.Record(ctx, taskID, "model.used", "model.used", seenBy, Used{
		Task: taskID, Spend: s, Tokens: s.Tokens(), MicroUSD: s.MicroUSD(), Unpriced: s.Unpriced(),
	})
}

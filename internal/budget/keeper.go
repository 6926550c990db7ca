package budget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Answer is what becomes of a request to a model. The zero Answer refuses.
type Answer struct {
	Go      bool
	Free    bool // no budget binds the task: it may go, and others after it for a while without asking
	Waiting bool // for a budget to be raised; ask again
	Reason  task.Reason
	Text    string // of a refusal
}

// Ask asks for one request of a sandbox, and waits at most turn for an answer
// other than that it waits. counted says that what it uses will be on record.
func (k *Keeper) Ask(ctx context.Context, sandbox string, counted bool, turn time.Duration) (Answer, error) {
	id, err := k.Rows.TaskOf(ctx, sandbox)
	if err != nil {
		return Answer{}, err
	}
	if id == "" {
		return Answer{Go: true, Free: true}, nil // it belongs to no task
	}
	return k.ask(ctx, id, sandbox, counted, turn)
}

// Await waits until a request of a task's loop, which acts in the sandbox, may
// go. Errors are *task.Failure, task.LimitSpend when no budget was raised in
// time.
func (k *Keeper) Await(ctx context.Context, taskID, sandbox string) error {
	for {
		a, err := k.ask(ctx, taskID, sandbox, true, time.Minute)
		switch {
		case err != nil:
			return err
		case a.Go:
			return nil
		case a.Waiting && ctx.Err() == nil:
			continue
		case a.Waiting:
			return context.Cause(ctx)
		}
		return task.Fail(a.Reason, a.Text, nil)
	}
}

func (k *Keeper) ask(ctx context.Context, id, sandbox string, counted bool, turn time.Duration) (Answer, error) {
	over := time.NewTimer(turn)
	defer over.Stop()
	for {
		changed := k.changes()
		a, until, err := k.once(ctx, id, sandbox, counted)
		if err != nil || !a.Waiting {
			return a, err
		}
		end := time.NewTimer(until.Sub(k.Now()))
		select {
		case <-changed:
			end.Stop()
		case <-end.C:
		case <-over.C:
			end.Stop()
			return a, nil
		case <-ctx.Done():
			end.Stop()
			return a, nil
		}
	}
}

// once looks once. Where the task waits it says until when.
func (k *Keeper) once(ctx context.Context, id, sandbox string, counted bool) (Answer, time.Time, error) {
	t, err := k.Tasks.Task(ctx, id)
	if err != nil {
		return Answer{}, time.Time{}, err
	}
	if t.State.Ended() {
		return Answer{Reason: task.PolicyDenied, Text: "the task has ended"}, time.Time{}, nil
	}
	list, err := k.budgets(ctx, t)
	if err != nil {
		return Answer{}, time.Time{}, err
	}
	limited := false
	for _, b := range list {
		limited = limited || b.Limits()
	}
	switch {
	case !limited:
		return Answer{Go: true, Free: true}, time.Time{}, nil
	case !counted:
		return Answer{Reason: task.LimitSpend, Text: "a budget limits this task, and what this request costs can't be counted; ask models by their ordinary interfaces"}, time.Time{}, nil
	}
	if err := k.collect(ctx, id, sandbox); err != nil {
		return Answer{}, time.Time{}, err
	}
	let := k.take(id)
	defer let()
	_, why, err := k.room(ctx, t)
	if err != nil {
		return Answer{}, time.Time{}, err
	}
	if why == "" {
		return Answer{Go: true}, time.Time{}, nil
	}
	return k.wait(ctx, t, sandbox, why)
}

// collect takes over what the sandbox's gateway has on record: each request that
// ended is counted before the next one is asked for.
func (k *Keeper) collect(ctx context.Context, id, sandbox string) error {
	for {
		last, err := k.Rows.LastSeq(ctx, sandbox)
		if err != nil {
			return err
		}
		records, err := k.Machines.Egress(ctx, sandbox, last)
		if err != nil || len(records) == 0 {
			return err
		}
		if err := k.Tasks.AddEgress(ctx, id, records); err != nil {
			return err
		}
	}
}

// wait has the task wait, or refuses where it waited in vain for this very
// budget. The task's turn is held.
func (k *Keeper) wait(ctx context.Context, t task.Task, sandbox, why string) (Answer, time.Time, error) {
	waits, err := k.Waits.Of(ctx, t.ID)
	if err != nil {
		return Answer{}, time.Time{}, err
	}
	if n := len(waits); n > 0 && vain(waits[n-1]) && waits[n-1].Text == why {
		return Answer{Reason: task.LimitSpend, Text: why + ", and it was not raised in time"}, time.Time{}, nil
	}
	now := k.Now()
	left := max(0, k.Options.Wait-waited(waits, now)) // a stage can't wait for ever
	w, err := k.Waits.Begin(ctx, task.BudgetWait{Task: t.ID, Sandbox: sandbox, Text: why, Since: now, Until: now.Add(left)})
	if err != nil {
		return Answer{}, time.Time{}, err
	}
	if err := k.tell(ctx, w); err != nil {
		return Answer{}, time.Time{}, err
	}
	if t.State != task.Waiting {
		if err := k.Tasks.Wait(ctx, t.ID, text(w)); err != nil {
			return Answer{}, time.Time{}, err
		}
		k.Log.InfoContext(ctx, "a budget is used up, and its task waits", "task", t.ID, "why", why)
	}
	if err := k.hold(ctx, sandbox); err != nil {
		// The request is held all the same.
		k.Log.WarnContext(ctx, "the processes of a task that waits could not be held", "task", t.ID, "sandbox", sandbox, "error", err)
	}
	return Answer{Waiting: true, Reason: task.LimitSpend, Text: why}, w.Until, nil
}

// vain says whether a wait was over before there was room.
func vain(w task.BudgetWait) bool { return w.Ended != nil && !w.Raised && !w.Ended.Before(w.Until) }

// text is what people read of a task that waits.
func text(w task.BudgetWait) string {
	return fmt.Sprintf("%s; raise it (cofferdam task budget %s, or cofferdam budget set) before %s, or the task goes on without its models", w.Text, w.Task, w.Until.UTC().Format(time.RFC3339))
}

// gone says whether an error means that the sandbox or the task is no more.
func gone(err error) bool {
	f, ok := errors.AsType[*task.Failure](err)
	return ok && (f.Reason == task.InputNotFound || f.Reason == task.InfraSandboxLost)
}

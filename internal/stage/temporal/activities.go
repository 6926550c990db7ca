package temporal

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The names of activities in histories; they never change.
const (
	beginCloseName = "close.begin"
	sweepName      = "close.sweep"
	finishName     = "close.finish"
)

func activityName(name task.StageName) string { return "stage." + string(name) }

// Steps does the work. Implemented by steps.Work.
type Steps interface {
	Do(ctx context.Context, name task.StageName, in stage.Input) (stage.Outcome, error)
	BeginClose(ctx context.Context, in stage.Input) error
	Sweep(ctx context.Context, taskID string) error
	Finish(ctx context.Context, in stage.Input, e stage.Ending, left bool) error
}

type finishInput struct {
	Input  stage.Input  `json:"input"`
	Ending stage.Ending `json:"ending"`
	Left   bool         `json:"left"`
}

// registry is the part of a worker that the activities are made known to.
type registry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// activities are the steps as the engine runs them.
type activities struct {
	steps Steps
	log   *slog.Logger
	turns turns
}

func (a *activities) register(r registry) {
	for _, name := range task.StageNames() {
		if name == task.Close {
			continue
		}
		r.RegisterActivityWithOptions(func(ctx context.Context, in stage.Input) (stage.Outcome, error) {
			return a.stage(ctx, name, in)
		}, activity.RegisterOptions{Name: activityName(name)})
	}
	r.RegisterActivityWithOptions(func(ctx context.Context, in stage.Input) error {
		return a.guarded(ctx, in.Task, func(ctx context.Context) error { return a.steps.BeginClose(ctx, in) })
	}, activity.RegisterOptions{Name: beginCloseName})
	r.RegisterActivityWithOptions(func(ctx context.Context, taskID string) error {
		return a.guarded(ctx, taskID, func(ctx context.Context) error { return a.steps.Sweep(ctx, taskID) })
	}, activity.RegisterOptions{Name: sweepName})
	r.RegisterActivityWithOptions(func(ctx context.Context, in finishInput) error {
		return a.guarded(ctx, in.Input.Task, func(ctx context.Context) error {
			return a.steps.Finish(ctx, in.Input, in.Ending, in.Left)
		})
	}, activity.RegisterOptions{Name: finishName})
}

func (a *activities) stage(ctx context.Context, name task.StageName, in stage.Input) (o stage.Outcome, err error) {
	err = a.guarded(ctx, in.Task, func(ctx context.Context) error {
		o, err = a.steps.Do(ctx, name, in)
		return err
	})
	return o, err
}

// guarded runs do with a heartbeat, one at a time for a task: after a missed
// heartbeat the engine starts a run again, and the one before must have let go.
func (a *activities) guarded(ctx context.Context, taskID string, do func(context.Context) error) (err error) {
	ctx, stop := alive(ctx)
	defer stop()
	release, err := a.turns.take(ctx, taskID)
	if err != nil {
		return err
	}
	defer release()
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("panic in a stage", "task", taskID, "panic", p, "stack", string(debug.Stack()))
			err = temporal.NewApplicationError(fmt.Sprintf("panic: %v", p), "panic")
		}
	}()
	if err := do(ctx); err != nil {
		// Plain errors of ours, so that no failure type crosses the engine.
		return temporal.NewApplicationError(err.Error(), "again")
	}
	return nil
}

// alive gives a context for the work of an activity and beats until stop is
// called. The context ends with steps.ErrStopping as its cause when this
// process goes down or the engine no longer waits for this run, and with
// another cause when the task is cancelled.
func alive(ctx context.Context) (work context.Context, stop func()) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(heartbeat / 5)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				activity.RecordHeartbeat(ctx)
			case <-activity.GetWorkerStopChannel(ctx):
				cancel(steps.ErrStopping)
				return
			case <-ctx.Done():
				if cause := context.Cause(ctx); temporal.IsCanceledError(cause) {
					cancel(cause)
				} else {
					cancel(steps.ErrStopping)
				}
				return
			}
		}
	}()
	return work, func() {
		close(done)
		<-stopped
		cancel(nil)
	}
}

// turns lets one run of a task work at a time.
type turns struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the holder lets go
}

func (t *turns) take(ctx context.Context, taskID string) (release func(), err error) {
	for {
		t.mu.Lock()
		if t.held == nil {
			t.held = map[string]chan struct{}{}
		}
		holder, busy := t.held[taskID]
		if !busy {
			mine := make(chan struct{})
			t.held[taskID] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.held, taskID)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-holder:
		case <-ctx.Done():
			return nil, temporal.NewApplicationError("another run of the task has not let go", "again")
		}
	}
}

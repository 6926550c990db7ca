package loop

import (
	"context"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
)

// Purse says whether a budget has room for a request to a model. Implemented by
// budget.
type Purse interface {
	// Await waits until there is room. Errors are *task.Failure, task.LimitSpend when
	// no budget was raised in time.
	Await(ctx context.Context, taskID, sandbox string) error
	// Waited is how long the task has waited for that so far, of all its attempts.
	Waited(ctx context.Context, taskID string) time.Duration
}

// afford waits until the next request of the job may go.
func (r *run) afford(ctx context.Context) error {
	if r.Purse == nil {
		return nil
	}
	return r.Purse.Await(ctx, r.job.Task, r.job.Grant.Sandbox)
}

// clocked is ctx until the job's wall time is over. While its task waits for a
// budget the clock stands still.
func (l *Loop) clocked(ctx context.Context, job stage.LoopJob) (context.Context, context.CancelFunc) {
	if l.Purse == nil {
		return context.WithDeadlineCause(ctx, job.Until, errTime)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			left := time.Until(job.Until)
			if left <= 0 { // only then what was waited matters
				left += l.Purse.Waited(ctx, job.Task)
			}
			if left <= 0 {
				cancel(errTime)
				return
			}
			timer := time.NewTimer(left)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

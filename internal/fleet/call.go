package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// patience is how long a request waits for a worker. It runs from the first
// trouble and starts anew after progress.
type patience struct {
	grace    time.Duration
	deadline time.Time // zero: no trouble
	last     error
}

// trouble notes that the worker did not answer and says whether to go on.
func (p *patience) trouble(err error) bool {
	if p.deadline.IsZero() {
		p.deadline = time.Now().Add(p.grace)
	}
	if err != nil {
		p.last = err
	}
	return time.Now().Before(p.deadline)
}

func (p *patience) progress() { p.deadline = time.Time{} }

// connection waits for the worker's connection until patience or ctx ends.
func (f *Fleet) connection(ctx context.Context, worker string, p *patience) (*conn, error) {
	quick, cancel := context.WithCancel(ctx)
	cancel() // Only looks.
	if c, err := f.registry.connection(quick, worker); err == nil {
		return c, nil
	}
	p.trouble(nil)
	limited, cancel := context.WithDeadline(ctx, p.deadline)
	defer cancel()
	c, err := f.registry.connection(limited, worker)
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, f.ended(ctx, ctx.Err())
	}
	if p.last == nil {
		p.last = err
	}
	return nil, f.lost(worker, p.last)
}

// call makes a request that may be repeated, until there is an answer or the
// worker's grace is over.
func (f *Fleet) call(ctx context.Context, worker string, attempt func(context.Context, *conn) error) error {
	if err := f.forgotten(worker); err != nil {
		return err
	}
	p := patience{grace: f.grace}
	for {
		c, err := f.connection(ctx, worker, &p)
		if err != nil {
			return err
		}
		err = attempt(ctx, c)
		if _, ok := errors.AsType[*brokenError](err); !ok {
			return err
		}
		if err := f.pause(ctx, c, &p, err); err != nil {
			return err
		}
	}
}

// pause waits until it makes sense to try again after err: at once when the
// connection is gone, a moment later when only the request failed.
func (f *Fleet) pause(ctx context.Context, c *conn, p *patience, err error) error {
	if ctx.Err() != nil {
		return f.ended(ctx, err)
	}
	if !p.trouble(err) {
		return f.lost(c.worker, err)
	}
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return f.ended(ctx, ctx.Err())
	case <-c.session.Done():
	case <-timer.C:
	}
	return nil
}

// at is call on the worker that has the sandbox.
func (f *Fleet) at(ctx context.Context, id string, attempt func(context.Context, *conn) error) error {
	worker, err := f.where(ctx, id)
	if err != nil {
		return err
	}
	return f.call(ctx, worker, attempt)
}

func (f *Fleet) lost(worker string, cause error) error {
	return task.Fail(task.InfraWorkerLost,
		fmt.Sprintf("worker %s did not answer for %s; see that its machine runs and that cofferdam-worker reaches the control plane", worker, f.grace), cause)
}

// ended is the failure when the caller's own context is over.
func (f *Fleet) ended(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return task.Fail(task.InfraWorkerLost, "the worker did not answer in the time that was given", errors.Join(ctx.Err(), err))
	}
	return task.Fail(task.Cancelled, "the request was given up", errors.Join(ctx.Err(), err))
}

func notFound(id string) error {
	return task.Fail(task.InputNotFound, fmt.Sprintf("no worker has a sandbox %s", id), nil)
}

func validSandbox(id string) error {
	if !sandbox.ValidID(id) {
		return task.Fail(task.InputInvalid, fmt.Sprintf("sandbox id %q is not valid", id), nil)
	}
	return nil
}

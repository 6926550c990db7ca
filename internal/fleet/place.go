package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// places remembers where sandboxes are. The zero value is ready.
type places struct {
	mu    sync.Mutex
	where map[string]string
}

func (p *places) get(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.where[id]
}

func (p *places) set(id, worker string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.where == nil {
		p.where = map[string]string{}
	}
	p.where[id] = worker
}

func (p *places) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.where, id)
}

// where returns the worker that has the sandbox.
func (f *Fleet) where(ctx context.Context, id string) (string, error) {
	if err := validSandbox(id); err != nil {
		return "", err
	}
	worker, err := f.known(ctx, id)
	if err != nil || worker != "" {
		return worker, err
	}
	// Without a memory of our own, a worker that is away could have it.
	p := patience{grace: f.grace}
	for {
		changed := f.registry.change()
		worker, away := f.search(ctx, id)
		if worker != "" {
			f.places.set(id, worker)
			return worker, nil
		}
		if f.placement != nil || !away {
			return "", notFound(id)
		}
		if !p.trouble(nil) {
			return "", task.Fail(task.InfraWorkerLost, "the sandbox may be on a worker that is away", nil)
		}
		limited, cancel := context.WithDeadline(ctx, p.deadline)
		select {
		case <-changed:
		case <-limited.Done():
		}
		cancel()
		if ctx.Err() != nil {
			return "", f.ended(ctx, ctx.Err())
		}
	}
}

// known returns the worker from memory, or "".
func (f *Fleet) known(ctx context.Context, id string) (string, error) {
	if worker := f.places.get(id); worker != "" {
		return worker, nil
	}
	if f.placement == nil {
		return "", nil
	}
	worker, err := f.placement.SandboxWorker(ctx, id)
	if err != nil {
		if ctx.Err() != nil {
			return "", f.ended(ctx, err)
		}
		return "", task.Fail(task.InfraStorage, "where the sandbox is can't be read from the store", err)
	}
	if worker != "" {
		f.places.set(id, worker)
	}
	return worker, nil
}

// search asks the workers that are connected. away says that there is none, or
// that one did not answer or is away.
func (f *Fleet) search(ctx context.Context, id string) (worker string, away bool) {
	conns, away := f.registry.connected()
	for _, c := range conns {
		infos, err := f.listOf(ctx, c)
		if err != nil {
			away = true
			continue
		}
		if slices.ContainsFunc(infos, func(i sandbox.Info) bool { return i.ID == id }) {
			return c.worker, away
		}
	}
	return "", away || len(conns) == 0
}

// place decides once which worker a sandbox goes to and remembers it before
// the sandbox is made. release ends the reservation of its memory.
func (f *Fleet) place(ctx context.Context, spec sandbox.Spec) (worker string, release func(), err error) {
	worker, err = f.known(ctx, spec.ID)
	if err != nil {
		return "", nil, err
	}
	if worker != "" {
		return worker, func() {}, nil
	}
	if f.placement == nil {
		if worker, _ = f.search(ctx, spec.ID); worker != "" {
			f.places.set(spec.ID, worker)
			return worker, func() {}, nil
		}
	}
	limited, cancel := context.WithTimeout(ctx, f.grace)
	defer cancel()
	worker, release, err = f.registry.reserve(limited, spec.Limits.WithDefaults().Memory)
	if err != nil {
		if ctx.Err() != nil {
			return "", nil, f.ended(ctx, err)
		}
		if f.registry.apart() {
			return "", nil, task.Fail(task.InfraWorkerLost, "every worker that is connected is drained or quarantined; see cofferdam worker ls", err)
		}
		return "", nil, task.Fail(task.InfraWorkerLost,
			fmt.Sprintf("no worker was connected for %s; see that cofferdam-worker runs and reaches the control plane", f.grace), err)
	}
	if f.placement != nil {
		if err := f.placement.SetSandboxWorker(ctx, spec.ID, worker); err != nil {
			release()
			return "", nil, task.Fail(task.InfraStorage, "where the sandbox goes can't be written to the store", err)
		}
	}
	f.places.set(spec.ID, worker)
	return worker, release, nil
}

// reserve picks the connected worker with most room, waiting for one until ctx
// ends, and counts memory as used there until release is called and the worker
// has told of itself again.
func (r *Registry) reserve(ctx context.Context, memory int64) (worker string, release func(), err error) {
	var best *member
	err = r.wait(ctx, func() bool {
		for _, m := range r.members {
			if m.conn != nil && !m.conn.session.IsClosed() && r.marks[m.id].State == "" && (best == nil || m.before(best)) {
				best = m
			}
		}
		if best != nil {
			best.pending += memory
		}
		return best != nil
	})
	if err != nil {
		return "", nil, err
	}
	return best.id, sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		best.pending -= memory
		best.recent += memory
	}), nil
}

// before says whether a has more room than b: the smaller part of its memory is
// promised to sandboxes.
func (a *member) before(b *member) bool {
	x, y := a.load(), b.load()
	if x != y {
		return x < y
	}
	return a.id < b.id
}

func (a *member) load() float64 {
	memory := max(a.hello.Machine.Memory, 1)
	return (float64(max(a.hello.Machine.Committed, 0)) + float64(a.pending+a.recent)) / float64(memory)
}

// change returns a channel that is closed when a worker comes or goes.
func (r *Registry) change() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

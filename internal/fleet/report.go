package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Placed is a sandbox and the worker that has it.
type Placed struct {
	Worker string
	sandbox.Info
}

// Workers returns the workers that are or were connected since the start, by id.
func (f *Fleet) Workers() []Worker { return f.registry.Workers() }

// reportTimeout bounds what is asked of every worker at once; one that hangs
// must not hide the others.
const reportTimeout = 10 * time.Second

// List returns the sandboxes of the workers that answer, without their commands.
// lost names the workers that don't: what they have is not in the list.
func (f *Fleet) List(ctx context.Context) (all []Placed, lost []string) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	for _, w := range f.Workers() {
		if w.State == Lost {
			lost = append(lost, w.ID)
		}
	}
	conns, _ := f.registry.connected()
	lists := make([][]sandbox.Info, len(conns))
	failed := make([]bool, len(conns))
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			infos, err := f.listOf(ctx, c)
			lists[i], failed[i] = infos, err != nil
		})
	}
	wg.Wait()
	for i, c := range conns {
		if failed[i] {
			lost = append(lost, c.worker)
		}
		for _, info := range lists[i] {
			// A worker that names a sandbox which was given to another one is
			// not believed.
			if owner, err := f.known(ctx, info.ID); err == nil && owner != "" && owner != c.worker {
				continue
			}
			all = append(all, Placed{Worker: c.worker, Info: info})
		}
	}
	return all, lost
}

func (f *Fleet) listOf(ctx context.Context, c *conn) ([]sandbox.Info, error) {
	var list link.SandboxList
	if err := c.exchange(ctx, http.MethodGet, "/sandboxes", nil, &list); err != nil {
		return nil, err
	}
	if len(list.Sandboxes) > link.MaxSandboxes {
		return nil, protocol(c.worker, fmt.Errorf("%d sandboxes", len(list.Sandboxes)))
	}
	for _, info := range list.Sandboxes {
		if !sandbox.ValidID(info.ID) {
			return nil, protocol(c.worker, fmt.Errorf("sandbox id %q", info.ID))
		}
	}
	return list.Sandboxes, nil
}

// Info describes one sandbox, its commands included.
func (f *Fleet) Info(ctx context.Context, id string) (worker string, info sandbox.Info, err error) {
	err = f.at(ctx, id, func(ctx context.Context, c *conn) error {
		worker, info = c.worker, sandbox.Info{}
		return c.exchange(ctx, http.MethodGet, sandboxPath(id), nil, &info)
	})
	if err != nil {
		return "", sandbox.Info{}, err
	}
	if info.ID != id {
		return "", sandbox.Info{}, protocol(worker, fmt.Errorf("asked for sandbox %s, got %q", id, info.ID))
	}
	return worker, info, nil
}

// Report is what doctor found on one worker.
type Report struct {
	Worker Worker
	Doctor link.Doctor
	Err    error // a *task.Failure when the worker did not answer
}

// Doctor asks every worker about itself.
func (f *Fleet) Doctor(ctx context.Context) []Report {
	ctx, cancel := context.WithTimeout(ctx, 3*reportTimeout)
	defer cancel()
	workers := f.Workers()
	reports := make([]Report, len(workers))
	var wg sync.WaitGroup
	for i, w := range workers {
		wg.Go(func() { reports[i] = f.examine(ctx, w) })
	}
	wg.Wait()
	return reports
}

func (f *Fleet) examine(ctx context.Context, w Worker) Report {
	report := Report{Worker: w}
	if w.State == Lost {
		report.Err = task.Fail(task.InfraWorkerLost,
			fmt.Sprintf("worker %s is not connected, last seen %s", w.ID, w.SeenAt.UTC().Format(time.RFC3339)), nil)
		return report
	}
	c, err := f.registry.connection(ctx, w.ID)
	if err == nil {
		err = c.exchange(ctx, http.MethodGet, "/doctor", nil, &report.Doctor)
	}
	var b *brokenError
	if errors.As(err, &b) || ctx.Err() != nil {
		err = task.Fail(task.InfraWorkerLost, fmt.Sprintf("worker %s does not answer", w.ID), err)
	}
	report.Err = err
	return report
}

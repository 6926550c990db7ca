package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Placement remembers which worker a sandbox was given to. Implemented by
// store.
type Placement interface {
	// SandboxWorker returns the worker's id, or "" for a sandbox that was never
	// placed.
	SandboxWorker(ctx context.Context, sandbox string) (worker string, err error)
	SetSandboxWorker(ctx context.Context, sandbox, worker string) error
	// ForgetSandboxWorker is told when the sandbox is gone.
	ForgetSandboxWorker(ctx context.Context, sandbox string) error
}

// Options says how a Fleet behaves.
type Options struct {
	// Placement may be nil: then workers are asked for what they have. That is
	// right for one machine only, since a worker that is away can't be asked.
	Placement Placement
	// Grace is how long a worker may be away; 0: 30 s.
	Grace time.Duration
	// MaxOutput bounds the output that one Run or Attach takes from a worker, over
	// the sandbox's own limit; 0: 64 GiB.
	MaxOutput int64
}

// Fleet reaches the sandboxes of all workers. It is safe for concurrent use.
type Fleet struct {
	registry  *Registry
	placement Placement
	grace     time.Duration
	maxOutput int64
	places    places
	turns     link.Turns // Create and Destroy of one sandbox take turns
	ordered   atomic.Int64
}

var _ stage.Sandboxes = (*Fleet)(nil)

// New returns the fleet of the registry's workers.
func New(registry *Registry, opts Options) *Fleet {
	if opts.Grace <= 0 {
		opts.Grace = 30 * time.Second
	}
	if opts.MaxOutput <= 0 {
		opts.MaxOutput = 64 << 30
	}
	return &Fleet{registry: registry, placement: opts.Placement, grace: opts.Grace, maxOutput: opts.MaxOutput}
}

// Create makes a sandbox on the worker that has it already, else on the one with
// most room. It is idempotent.
func (f *Fleet) Create(ctx context.Context, spec sandbox.Spec) (string, sandbox.Info, error) {
	var info sandbox.Info
	if !sandbox.ValidID(spec.ID) {
		return "", info, task.Fail(task.InputInvalid, fmt.Sprintf("sandbox id %q is not valid", spec.ID), nil)
	}
	unlock, err := f.turns.Take(ctx, spec.ID)
	if err != nil {
		return "", info, f.ended(ctx, err)
	}
	defer unlock()
	worker, release, err := f.place(ctx, spec)
	if err != nil {
		return "", info, err
	}
	defer release()
	path := sandboxPath(spec.ID) + f.order()
	err = f.call(ctx, worker, func(ctx context.Context, c *conn) error {
		info = sandbox.Info{}
		return c.exchange(ctx, http.MethodPut, path, spec, &info)
	})
	if err != nil {
		return "", sandbox.Info{}, err
	}
	if info.ID != spec.ID {
		return "", sandbox.Info{}, protocol(worker, fmt.Errorf("asked for sandbox %s, got %q", spec.ID, info.ID))
	}
	return worker, info, nil
}

// Grant sets what the sandbox may reach from now on.
func (f *Fleet) Grant(ctx context.Context, grant task.Grant) error {
	err := f.at(ctx, grant.Sandbox, func(ctx context.Context, c *conn) error {
		return c.exchange(ctx, http.MethodPut, sandboxPath(grant.Sandbox)+"/grant", grant, nil)
	})
	return f.lostSandbox(grant.Sandbox, err)
}

// Start starts the command, once for its id, and returns at once. Started is false
// when the answer to the attempt that started it was lost.
func (f *Fleet) Start(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Status, error) {
	var state link.CommandState
	if err := validCommand(cmd.ID); err != nil {
		return state.Status, err
	}
	err := f.at(ctx, id, func(ctx context.Context, c *conn) error {
		state = link.CommandState{}
		return c.exchange(ctx, http.MethodPut, commandPath(id, cmd.ID), cmd, &state)
	})
	if err == nil {
		err = f.sameCommand(id, cmd.ID, state)
	}
	if err != nil {
		return sandbox.Status{}, f.lostSandbox(id, err)
	}
	return state.Status, nil
}

// Status returns where a command stands.
func (f *Fleet) Status(ctx context.Context, id, command string) (sandbox.Status, error) {
	var state link.CommandState
	if err := validCommand(command); err != nil {
		return state.Status, err
	}
	err := f.at(ctx, id, func(ctx context.Context, c *conn) error {
		state = link.CommandState{}
		return c.exchange(ctx, http.MethodGet, commandPath(id, command), nil, &state)
	})
	if err == nil {
		err = f.sameCommand(id, command, state)
	}
	if err != nil {
		return sandbox.Status{}, err
	}
	return state.Status, nil
}

// Signal sends a signal to the command's whole tree. It is sent again when the
// worker went away before it answered, so a program may see it twice.
func (f *Fleet) Signal(ctx context.Context, id, command string, signal int) error {
	return f.SignalPart(ctx, id, command, sandbox.Signal{Number: signal})
}

// sigkill is SIGKILL on Linux, which every worker runs.
const sigkill = 9

// Kill ends the command's whole tree.
func (f *Fleet) Kill(ctx context.Context, id, command string) error {
	return f.Signal(ctx, id, command, sigkill)
}

// Destroy ends the sandbox, wherever it is. One that nobody has is no error.
func (f *Fleet) Destroy(ctx context.Context, id string) error {
	if !sandbox.ValidID(id) {
		return task.Fail(task.InputInvalid, fmt.Sprintf("sandbox id %q is not valid", id), nil)
	}
	unlock, err := f.turns.Take(ctx, id)
	if err != nil {
		return f.ended(ctx, err)
	}
	defer unlock()
	path := sandboxPath(id) + f.order()
	err = f.at(ctx, id, func(ctx context.Context, c *conn) error {
		return c.exchange(ctx, http.MethodDelete, path, nil, nil)
	})
	var failure *task.Failure
	if errors.As(err, &failure) && (failure.Reason == task.InputNotFound || f.forgotten(f.places.get(id)) != nil) {
		err = nil
	}
	if err != nil {
		return err
	}
	if f.placement != nil {
		if err := f.placement.ForgetSandboxWorker(ctx, id); err != nil {
			return task.Fail(task.InfraStorage, "that the sandbox is gone can't be written to the store", err)
		}
	}
	f.places.forget(id)
	return nil
}

// maxEgress bounds the records that one call returns; a next call goes on.
const maxEgress = 200_000

// Egress returns the gateway's records of the sandbox with a sequence number above
// after.
func (f *Fleet) Egress(ctx context.Context, id string, after int64) ([]task.EgressRecord, error) {
	var records []task.EgressRecord
	for len(records) < maxEgress {
		var page link.RecordList
		err := f.at(ctx, id, func(ctx context.Context, c *conn) error {
			page = link.RecordList{}
			path := sandboxPath(id) + "/egress?after=" + strconv.FormatInt(after, 10)
			if err := c.exchange(ctx, http.MethodGet, path, nil, &page); err != nil {
				return err
			}
			return checkRecords(c.worker, id, after, page.Records)
		})
		if err != nil {
			return nil, err
		}
		if len(page.Records) == 0 {
			break
		}
		records = append(records, page.Records...)
		after = records[len(records)-1].Seq
	}
	return records, nil
}

func checkRecords(worker, id string, after int64, records []task.EgressRecord) error {
	if len(records) > link.MaxRecords {
		return protocol(worker, fmt.Errorf("%d egress records at once", len(records)))
	}
	for _, r := range records {
		if r.Sandbox != id || r.Seq <= after {
			return protocol(worker, fmt.Errorf("egress record %d of %q where %s after %d was asked for", r.Seq, r.Sandbox, id, after))
		}
		after = r.Seq
	}
	return nil
}

// lostSandbox turns "not found" into "lost" for a sandbox that was placed: it was
// there and is no more.
func (f *Fleet) lostSandbox(id string, err error) error {
	var failure *task.Failure
	if errors.As(err, &failure) && failure.Reason == task.InputNotFound && f.places.get(id) != "" {
		return task.Fail(task.InfraSandboxLost, "the sandbox is gone from its worker", failure)
	}
	return err
}

func (f *Fleet) sameCommand(id, command string, state link.CommandState) error {
	if state.ID != command || state.Output < 0 || (state.Phase != sandbox.CommandRunning && state.Phase != sandbox.CommandExited) {
		return protocol(f.places.get(id), fmt.Errorf("asked for command %s, got %q in phase %q", command, state.ID, state.Phase))
	}
	return nil
}

func validCommand(command string) error {
	if !sandbox.ValidCommandID(command) {
		return task.Fail(task.InputInvalid, fmt.Sprintf("command id %q is not valid", command), nil)
	}
	return nil
}

// order numbers a request, so that the worker can tell a Create that was given up
// and arrives late from one that follows a Destroy. It grows over restarts too.
func (f *Fleet) order() string {
	for {
		last := f.ordered.Load()
		next := max(time.Now().UnixNano(), last+1)
		if f.ordered.CompareAndSwap(last, next) {
			return "?order=" + strconv.FormatInt(next, 10)
		}
	}
}

func sandboxPath(id string) string { return "/sandboxes/" + url.PathEscape(id) }

func commandPath(id, command string) string {
	return sandboxPath(id) + "/commands/" + url.PathEscape(command)
}

package incident

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Workers are the machines. Implemented by fleet.
type Workers interface {
	Mark(m task.WorkerMark)
	Connected(worker string) (connected, known bool)
}

// MarkRows keeps marks. Implemented by store/workers.
type MarkRows interface {
	Marks(ctx context.Context) ([]task.WorkerMark, error)
	Mark(ctx context.Context, m task.WorkerMark) error
	// Placed counts the sandboxes of a worker that are not known to be gone.
	Placed(ctx context.Context, worker string) (int, error)
}

// Recorder appends to the account, once a key. Implemented by audit.
type Recorder interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
}

// seenBy is who saw the facts of this package.
const seenBy = "control plane"

// MachineDesk sets machines apart. All fields are required.
type MachineDesk struct {
	Workers Workers
	Rows    MarkRows
	Audit   Recorder
	Now     func() time.Time
}

// Restore marks the workers that were marked before this process began. It must
// be done before any connects.
func Restore(ctx context.Context, rows MarkRows, workers interface{ Mark(m task.WorkerMark) }) error {
	list, err := rows.Marks(ctx)
	for _, m := range list {
		workers.Mark(m)
	}
	return err
}

// Describe registers its operations.
func (d *MachineDesk) Describe(door *operation.Door) {
	operation.Register(door, operation.Operation{
		ID: "mark-worker", Method: http.MethodPut, Path: "/v1/workers/{name}/mark", Access: operation.Admins, Status: http.StatusOK,
		Summary: "Set a worker apart: drain it, quarantine it, or forget one that never returns", Max: 4 << 10,
	}, func(ctx context.Context, in *marking) (*marked, error) { return d.mark(ctx, in.Name, in.Body) })
	operation.Register(door, operation.Operation{
		ID: "release-worker", Method: http.MethodDelete, Path: "/v1/workers/{name}/mark", Access: operation.Admins, Status: http.StatusOK,
		Summary: "Let a worker take part again",
	}, func(ctx context.Context, in *workerPath) (*marked, error) {
		return d.mark(ctx, in.Name, api.WorkerMarking{})
	})
}

type workerPath struct {
	Name string `path:"name" maxLength:"64"`
}

type marking struct {
	Name string `path:"name" maxLength:"64"`
	Body api.WorkerMarking
}

type marked struct{ Body api.WorkerMarked }

// mark puts it on record, keeps it, and has it hold from here on, in this order:
// what holds is always kept, and what is kept is always on record.
func (d *MachineDesk) mark(ctx context.Context, worker string, m api.WorkerMarking) (*marked, error) {
	connected, known := d.Workers.Connected(worker)
	placed, err := d.Rows.Placed(ctx, worker)
	if err != nil {
		return nil, err
	}
	if !known && placed == 0 {
		return nil, task.Fail(task.InputNotFound, fmt.Sprintf("no worker %.64q; see cofferdam worker ls", worker), nil)
	}
	if connected && m.State == task.WorkerForgotten {
		return nil, task.Fail(task.InputConflict, fmt.Sprintf("worker %s is connected; quarantine it, or stop its machine before it is forgotten", worker), nil)
	}
	kept := task.WorkerMark{Worker: worker, State: m.State, Reason: m.Reason, By: operation.Who(ctx).User, At: d.Now().UTC().Truncate(time.Microsecond)}
	kind := "worker." + m.State
	if m.State == "" {
		kind = "worker.released"
	}
	err = d.Audit.Record(ctx, "", fmt.Sprintf("%s/%s/%d", kind, worker, kept.At.UnixNano()), kind, seenBy,
		map[string]any{"worker": worker, "by": kept.By, "reason": kept.Reason, "sandboxes": placed})
	if err != nil {
		return nil, err
	}
	if err := d.Rows.Mark(ctx, kept); err != nil {
		return nil, err
	}
	d.Workers.Mark(kept)
	out := api.WorkerMarked{Worker: worker, Sandboxes: placed}
	if m.State != "" {
		out.Mark = &api.WorkerMark{State: kept.State, Reason: kept.Reason, By: kept.By, At: kept.At}
	}
	return &marked{out}, nil
}

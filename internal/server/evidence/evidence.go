// Package evidence is the part of the server that keeps a sandbox as it was found:
// frozen, exported as one signed archive, and released. Only administrators come
// here.
//
// Words. A frozen sandbox reaches nothing, nothing in it runs, nobody works in it,
// and nothing cleans it up, until a person releases it. Its task ends as cancelled
// meanwhile.
package evidence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Rows remember which sandboxes are kept. Implemented by store/frozen.
type Rows interface {
	Keep(ctx context.Context, f task.FrozenSandbox) error
	// Kept is one that is or was kept; task.InputNotFound: it never was.
	Kept(ctx context.Context, sandbox string) (task.FrozenSandbox, error)
	All(ctx context.Context) ([]task.FrozenSandbox, error)
	Release(ctx context.Context, sandbox string, at time.Time) error
}

// Places are where sandboxes are. Implemented by fleet.
type Places interface {
	Info(ctx context.Context, id string) (worker string, info sandbox.Info, err error)
	Freeze(ctx context.Context, id string) (sandbox.Info, error)
	Release(ctx context.Context, id string) error
	Destroy(ctx context.Context, id string) error
	// Remember tells where a sandbox is whose placement may be forgotten.
	Remember(id, worker string)
}

// Finds is what can be read of a frozen sandbox. Implemented by fleet.
type Finds interface {
	Inspect(ctx context.Context, id, command string) ([]sandbox.Status, error)
	Attach(ctx context.Context, id, command string, offset int64) (sandbox.Stream, error)
	Get(ctx context.Context, id, path string, exclude []string) (io.ReadCloser, error)
	Egress(ctx context.Context, id string, after int64) ([]task.EgressRecord, error)
	Denials(ctx context.Context, id string, after int64) ([]task.FileDenial, error)
}

// Leases ends what is lent to a sandbox. Implemented by credential.
type Leases interface {
	End(ctx context.Context, taskID, sandbox, why string) error
}

// Tasks knows the tasks. Implemented by store.
type Tasks interface {
	Task(ctx context.Context, id string) (task.Task, error)
	RequestCancel(ctx context.Context, id string) (bool, error)
}

// Engine ends tasks. Implemented by stage/temporal.
type Engine interface {
	Cancel(ctx context.Context, taskID string) error
}

// Account is the account of the installation. Implemented by audit.
type Account interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
	// Account writes the records of a task, a JSON document a line, and gives its
	// receipt; nil: it has none yet.
	Account(ctx context.Context, taskID string, w io.Writer) (receipt []byte, err error)
	SignEvidence(sandbox string, manifest task.Digest) (string, error)
	Origin() string
}

// Desk answers. All fields are required.
type Desk struct {
	Rows    Rows
	Places  Places
	Finds   Finds
	Leases  Leases
	Tasks   Tasks
	Engine  Engine
	Account Account
	Dir     string // where archives are put together, each a file without a name
	Now     func() time.Time
	Log     *slog.Logger
}

// seenBy is who saw the facts of this package.
const seenBy = "control plane"

// Describe registers its operations.
func (d *Desk) Describe(door *operation.Door) {
	operation.Register(door, operation.Operation{
		ID: "freeze-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/freeze", Access: operation.Admins, Status: http.StatusOK,
		Summary: "Keep a sandbox as evidence: it reaches nothing, nothing in it runs, its leases and its task end, and it is not cleaned up", Max: 4 << 10,
	}, d.freeze)
	operation.Register(door, operation.Operation{
		ID: "list-frozen", Method: http.MethodGet, Path: "/v1/evidence", Access: operation.Admins,
		Summary: "The sandboxes that are kept as evidence",
	}, d.list)
	operation.Register(door, operation.Operation{
		ID: "export-evidence", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/evidence", Access: operation.Admins, Kind: "application/x-tar",
		Summary: "What was found in a frozen sandbox, as one signed archive",
	}, d.export)
	operation.Register(door, operation.Operation{
		ID: "release-evidence", Method: http.MethodDelete, Path: "/v1/sandboxes/{id}/evidence", Access: operation.Admins,
		Summary: "Let a frozen sandbox go and destroy it",
	}, d.release)
}

type freezing struct {
	ID   string `path:"id" maxLength:"64"`
	Body api.Freezing
}

type froze struct{ Body api.FrozenSandbox }

// freeze puts it on record, ends what is lent, has the machine stop everything, and
// last ends the task. Where the machine does not answer, the task goes on, so that
// its end does not take the sandbox with it; asking again goes on from there.
func (d *Desk) freeze(ctx context.Context, in *freezing) (*froze, error) {
	if !sandbox.ValidID(in.ID) {
		return nil, problem.NotFound("sandbox", in.ID)
	}
	by := operation.Who(ctx).User
	kept, err := d.Rows.Kept(ctx, in.ID)
	switch {
	case err == nil && kept.Released != nil:
		return nil, task.Fail(task.InputConflict, "sandbox "+in.ID+" was kept and released", nil)
	case err == nil:
		d.Places.Remember(in.ID, kept.Worker)
	case problem.Of(err).Code != string(task.InputNotFound):
		return nil, err
	}
	worker, info, err := d.Places.Info(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	// A client that goes away does not stop it.
	ctx = context.WithoutCancel(ctx)
	if kept.Sandbox == "" {
		kept = task.FrozenSandbox{Sandbox: in.ID, Task: info.Task, Worker: worker, Reason: in.Body.Reason, By: by, At: d.Now().UTC().Truncate(time.Microsecond)}
		err = d.Account.Record(ctx, info.Task, "sandbox.frozen/"+in.ID, "sandbox.frozen", seenBy, map[string]any{
			"sandbox": in.ID, "task": info.Task, "worker": worker, "by": by, "reason": in.Body.Reason,
		})
		if err == nil {
			err = d.Rows.Keep(ctx, kept)
		}
		if err != nil {
			return nil, err
		}
	}
	if info.Task != "" {
		if err := d.Leases.End(ctx, info.Task, in.ID, task.EndedRevoked); err != nil {
			return nil, err
		}
	}
	if info, err = d.Places.Freeze(ctx, in.ID); err != nil {
		return nil, err
	}
	out := frozenOf(kept)
	out.State = string(info.State)
	if info.Task == "" {
		return &froze{out}, nil
	}
	if out.Ending, err = d.Tasks.RequestCancel(ctx, info.Task); err != nil {
		return nil, err
	}
	if out.Ending {
		// The row says so: a reconciler cancels what can't be cancelled now.
		if err := d.Engine.Cancel(ctx, info.Task); err != nil {
			d.Log.WarnContext(ctx, "the task of a frozen sandbox will be cancelled later", "task", info.Task, "error", err.Error())
		}
	}
	return &froze{out}, nil
}

func frozenOf(f task.FrozenSandbox) api.FrozenSandbox {
	return api.FrozenSandbox{Sandbox: f.Sandbox, Task: f.Task, Worker: f.Worker, Reason: f.Reason, By: f.By, FrozenAt: f.At}
}

type list struct{ Body api.FrozenList }

func (d *Desk) list(ctx context.Context, _ *struct{}) (*list, error) {
	all, err := d.Rows.All(ctx)
	if err != nil {
		return nil, err
	}
	out := &list{api.FrozenList{Sandboxes: []api.FrozenSandbox{}}}
	for _, f := range all {
		out.Body.Sandboxes = append(out.Body.Sandboxes, frozenOf(f))
	}
	return out, nil
}

type path struct {
	ID string `path:"id" maxLength:"64"`
}

// release puts it on record and destroys the sandbox. One whose machine was
// forgotten is released all the same.
func (d *Desk) release(ctx context.Context, in *path) (*struct{}, error) {
	kept, err := d.kept(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	err = d.Account.Record(ctx, kept.Task, "sandbox.released/"+in.ID, "sandbox.released", seenBy, map[string]any{
		"sandbox": in.ID, "task": kept.Task, "by": operation.Who(ctx).User,
	})
	if err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context, string) error{d.Places.Release, d.Places.Destroy} {
		if err := step(ctx, in.ID); err != nil && !gone(err) {
			return nil, err
		}
	}
	return nil, d.Rows.Release(ctx, in.ID, d.Now().UTC())
}

// gone says that nobody has the sandbox any more.
func gone(err error) bool {
	f, ok := errors.AsType[*task.Failure](err)
	return ok && (f.Reason == task.InputNotFound || f.Reason == task.InfraSandboxLost)
}

// kept is a sandbox that is kept now.
func (d *Desk) kept(ctx context.Context, id string) (task.FrozenSandbox, error) {
	if !sandbox.ValidID(id) {
		return task.FrozenSandbox{}, problem.NotFound("sandbox", id)
	}
	kept, err := d.Rows.Kept(ctx, id)
	if err == nil && kept.Released != nil {
		err = task.Fail(task.InputNotFound, fmt.Sprintf("sandbox %s was released; it is kept no more", id), nil)
	}
	if problem.Of(err).Code == string(task.InputNotFound) && kept.Sandbox == "" {
		err = task.Fail(task.InputConflict, fmt.Sprintf("sandbox %s is not kept as evidence; freeze it first: cofferdam sandbox freeze %s", id, id), nil)
	}
	if err != nil {
		return kept, err
	}
	d.Places.Remember(id, kept.Worker)
	return kept, nil
}

package server

import (
	"context"
	"io"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/server/credentials"
	"github.com/cofferdam/cofferdam/internal/server/doctor"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/policies"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Tasks is the record of tasks. Implemented by store. Unknown ids give a
// *task.Failure with task.InputNotFound.
type Tasks interface {
	// CreateTask writes the row of a new task. A known idempotency key gives the
	// task made with it and false, or a *task.Failure with task.InputConflict when
	// requestDigest differs.
	CreateTask(ctx context.Context, t task.Task, requestDigest string) (made task.Task, created bool, err error)
	Task(ctx context.Context, id string) (task.Task, error)
	// Tasks returns at most limit tasks that are older than the task before
	// (empty: the newest), newest first, of owner (empty: everyone's).
	Tasks(ctx context.Context, owner string, limit int, before string) ([]task.Task, error)
	// RequestCancel remembers that the task is to end; false when it has ended.
	RequestCancel(ctx context.Context, id string) (bool, error)
}

// Events tells what happens to tasks. Implemented by store.
type Events interface {
	// Events returns at most limit events numbered higher than after, in order.
	Events(ctx context.Context, taskID string, after int64, limit int) ([]task.Event, error)
	// Watch returns a channel that receives when there may be more events, and
	// what ends the watching.
	Watch(taskID string) (<-chan struct{}, func())
	// OpenLog opens a stage's log at offset; size is its length at that moment. A
	// log that was not begun is empty.
	OpenLog(ctx context.Context, taskID string, attempt int, stage task.StageName, offset int64) (r io.ReadCloser, size int64, err error)
}

// History is every run of every stage. Implemented by store.
type History interface {
	History(ctx context.Context, taskID string) ([]task.StageRun, error)
}

// Engine runs tasks. Implemented by stage/temporal.
type Engine interface {
	Start(ctx context.Context, taskID string) error
	Cancel(ctx context.Context, taskID string) error
}

// Owners remembers whose sandboxes are. Implemented by store.
type Owners interface {
	// ClaimSandbox remembers the owner of a sandbox without a task and the digest of
	// the request before it is made, once: a second claim changes nothing and returns the first.
	ClaimSandbox(ctx context.Context, id, owner, digest string) (firstOwner, firstDigest string, err error)
	// SandboxOwner returns who claimed it, or who asked for its task; a
	// *task.Failure with task.InputNotFound when nobody did.
	SandboxOwner(ctx context.Context, id string) (string, error)
}

// Places makes and lists the sandboxes of the fleet. Implemented by fleet.
// Errors are *task.Failure.
type Places interface {
	Create(ctx context.Context, spec sandbox.Spec) (worker string, info sandbox.Info, err error)
	Grant(ctx context.Context, grant task.Grant) error
	Destroy(ctx context.Context, id string) error
	Info(ctx context.Context, id string) (worker string, info sandbox.Info, err error)
	// List also names the workers that did not answer, whose sandboxes are missing.
	List(ctx context.Context) (all []fleet.Placed, lost []string)
}

// Commands runs commands in the sandboxes of the fleet. Implemented by fleet.
type Commands interface {
	Start(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Status, error)
	// Exec is Start and Attach in one round trip. The stream's status says whether
	// this call started the command.
	Exec(ctx context.Context, id string, cmd sandbox.Command, offset int64) (sandbox.Stream, error)
	Status(ctx context.Context, id, command string) (sandbox.Status, error)
	Attach(ctx context.Context, id, command string, offset int64) (sandbox.Stream, error)
	Kill(ctx context.Context, id, command string) error
}

// Files moves files in and out of the sandboxes of the fleet. Implemented by
// fleet.
type Files interface {
	Put(ctx context.Context, id, dir string, tar io.Reader) error
	Get(ctx context.Context, id, path string, exclude []string) (io.ReadCloser, error)
}

// Audit is the account of the installation. Implemented by audit.Log.
type Audit interface {
	// Receipt returns the signed receipt of a task that was closed.
	Receipt(ctx context.Context, taskID string) ([]byte, error)
	// Export writes the whole account, a JSON document a line.
	Export(ctx context.Context, w io.Writer) error
	// Record appends a fact; the same key again changes nothing.
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
}

// Workers tells about the machines. Implemented by fleet.
type Workers interface {
	Workers() []fleet.Worker
	// Doctor asks every worker about itself.
	Doctor(ctx context.Context) []fleet.Report
}

// Budgets adds to what is told of one task what it used of models, and what it
// may. Implemented by server/budgets.
type Budgets interface {
	Fill(ctx context.Context, t task.Task, out *api.Task) error
}

// Approvals tells what was asked of persons for a task. Implemented by
// server/approvals.
type Approvals interface {
	Of(ctx context.Context, taskID string) ([]api.Approval, error)
}

// Probe is one thing that doctor asks the server's own side.
type Probe = doctor.Probe

// Needs is everything the server speaks to.
type Needs struct {
	Tasks    Tasks
	Events   Events
	Engine   Engine
	Policies stage.Policies
	Blobs    stage.Blobs
	Owners   Owners
	Places   Places
	Commands Commands
	Console  sandbox.Console
	Files    Files
	Single   sandbox.Files
	Workers  Workers
	Agents   Agents

	Harnesses stage.Harnesses // what agents there are besides command and loop

	Audit  Audit
	Probes []Probe

	Credentials *credentials.Desk
	Policy      *policies.Desk
	History     History
	Denials     FileDenials
	Removal     Removal

	Budgets   Budgets          // what models were used for; nil: nobody knows
	Approvals Approvals        // what was asked of persons; nil: nothing ever is
	Desks     []operation.Desk // parts that register their own operations
}

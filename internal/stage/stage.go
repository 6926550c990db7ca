// Package stage says which steps a task goes through, in which order, with
// what timeouts and retries. It does no I/O: what it needs from the world it
// declares here as interfaces, and clock and randomness come through the
// engine. stage/temporal runs it durably; stage/steps does the work of each
// stage through the same interfaces.
package stage

import (
	"context"
	"io"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Sandboxes reaches the sandboxes of the fleet. Implemented by fleet. Errors
// are *task.Failure; a worker that does not answer is task.InfraWorkerLost.
// Calls with the same ids are idempotent, so a repeated activity is safe.
type Sandboxes interface {
	// Create makes a sandbox on a worker of the fleet's choice, or on the worker
	// that has it already, and returns which.
	Create(ctx context.Context, spec sandbox.Spec) (worker string, info sandbox.Info, err error)
	// Grant sets what the sandbox may reach from now on. Open connections that
	// were made under the grant before are cut. The zero rules reach nothing.
	Grant(ctx context.Context, grant task.Grant) error
	// Run starts the command (once per id) and copies its output from offset on to
	// out until it ends. beat is called at least every two seconds while waiting.
	Run(ctx context.Context, id string, cmd sandbox.Command, offset int64, out io.Writer, beat func()) (Result, error)
	// Input gives the command bytes of its standard input; those that were taken
	// before are not taken again, and Taken says how far it came.
	Input(ctx context.Context, id, command string, in sandbox.Input) (sandbox.Taken, error)
	// Kill ends the command's whole tree.
	Kill(ctx context.Context, id, command string) error
	Put(ctx context.Context, id, dir string, tar io.Reader) error
	Get(ctx context.Context, id, path string, exclude []string) (io.ReadCloser, error)
	// Destroy ends the sandbox, wherever it is. Unknown ids are no error.
	Destroy(ctx context.Context, id string) error
	// Egress returns the gateway's records of the sandbox from sequence number
	// after on.
	Egress(ctx context.Context, id string, after int64) ([]task.EgressRecord, error)
}

// Result is how a command ended and whether the way out changed meanwhile.
type Result struct {
	sandbox.Status
	EpochBefore string // the gateway's boot id when the command was started
	EpochAfter  string // and when it ended
}

// Facts is our record of a task: rows, events and logs. Implemented by store.
// Each call is idempotent: repeating it with the same arguments changes
// nothing.
type Facts interface {
	Task(ctx context.Context, id string) (task.Task, error)
	// SetTask moves the task to a state; commit and worker are set when not empty.
	SetTask(ctx context.Context, id string, u TaskUpdate) error
	// SetStage records where a stage stands in an attempt and emits an event.
	SetStage(ctx context.Context, id string, attempt int, s task.Stage) error
	// AddOutput records an output by name, replacing one of the same name.
	AddOutput(ctx context.Context, id string, o task.Output) error
	// Log opens the log of one stage run for appending; its size is where to go on.
	Log(ctx context.Context, id string, attempt int, stage task.StageName) (LogWriter, error)
	// AddEgress records the gateway's decisions; known sequence numbers are ignored.
	AddEgress(ctx context.Context, id string, records []task.EgressRecord) error
	// Sandboxes remembers that the task had the sandbox, before it is made.
	AddSandbox(ctx context.Context, id string, spec sandbox.Spec) error
	// SandboxesOf lists every sandbox the task ever had.
	SandboxesOf(ctx context.Context, id string) ([]sandbox.Spec, error)
	// AddAgentEvent tells what an agent said or did, once per task and key: a
	// known key changes nothing. A "usage" event adds to the task's usage of
	// models; the usage of an "end" event is a total and is not added. Text and
	// input beyond 16 KiB are cut, and bytes that are not UTF-8 are replaced.
	AddAgentEvent(ctx context.Context, id, key string, e task.AgentEvent) error
}

// TaskUpdate says what to change; empty fields stay.
type TaskUpdate struct {
	State        task.State
	Reason       task.Reason
	Text         string
	Commit       string
	Worker       string
	Attempt      int
	PolicyDigest task.Digest
	Layers       *task.Layers // what the repository asks is known now; tells an event of type "policy" when it is narrowed
}

// Open is a task that has not ended.
type Open struct {
	ID              string
	CancelRequested bool
}

// LogWriter appends to a stage's log.
type LogWriter interface {
	io.WriteCloser
	Offset() int64 // bytes in the log so far
}

// Logs reads what was written with Facts.Log. Implemented by store.
type Logs interface {
	// OpenLog opens a stage's log at offset; size is its length at that moment. A
	// log that was not begun is empty.
	OpenLog(ctx context.Context, taskID string, attempt int, stage task.StageName, offset int64) (r io.ReadCloser, size int64, err error)
}

// Blobs keeps bytes by their hash. Implemented by output.
type Blobs interface {
	// Put stores at most max bytes of r and returns their digest and size; more is
	// a *task.Failure with task.LimitSize.
	Put(ctx context.Context, r io.Reader, max int64) (task.Digest, int64, error)
	Open(ctx context.Context, d task.Digest) (io.ReadCloser, error)
}

// Recorder appends to the audit. Implemented by audit. key makes a record
// once: the same task and key again changes nothing.
type Recorder interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
	// Receipt signs the task's account and enters it into the log, once; it
	// returns the receipt's bytes.
	Receipt(ctx context.Context, taskID string) ([]byte, error)
}

// Policies turns a task's policy text into grants and limits. Implemented by
// policy through cmd.
type Policies interface {
	// Compile gives the plan of a request beneath the layers that were taken when
	// it was admitted. The same arguments give the same plan.
	Compile(spec task.Spec, layers task.Layers) (Plan, error)
	// Layers takes the layers that stand above the tasks of a project (empty: of
	// none) as they are now.
	Layers(ctx context.Context, project string) (task.Layers, error)
}

// Plan is what a task's policy comes to.
type Plan struct {
	Digest   task.Digest
	Limits   task.Limits
	Rules    map[task.StageName][]task.Rule     // checkout, setup, agent, verify
	Unknown  map[task.StageName]task.Unknown    // of connections that no rule matches
	Identity map[task.StageName][]task.Identity // for whom the stage has tokens of its run
	Timeout  map[task.StageName]time.Duration
	Files    task.FileRules // of the agent stage
	Flags    task.FlagRules // of findings in the patch
	Sudo     bool           // the workload may become root inside its sandbox
	Tools    ToolPolicy     // of the agent; nil: no layer says anything of tools, and all are allowed

	Verifying  task.Verifying
	Model      task.ModelAccess   // how the agent asks its models
	Repository task.RepositoryAsk // what the repository's layer may say, and says, in place of what the request leaves out
	Narrowed   []string           // what the repository's layer asked for and is not given, a line each
}

// Package sandbox is the contract for one isolated place: create it, run
// commands in it, move files in and out, destroy it, and find it again after
// the process that made it died. sandbox/gvisor implements it; the suite in
// sandbox/sandboxtest is run against every implementation.
//
// Words. A sandbox has an id chosen by the caller. A command has an id chosen
// by the caller, unique within its sandbox; starting the same id twice starts
// one process. A command's output is a journal on the worker's disk: an
// ordered sequence of chunks from stdout and stderr, addressed by an offset
// that counts payload bytes of both streams together.
//
// Not promised: isolation between two commands of one sandbox.
package sandbox

import (
	"context"
	"io"
	"regexp"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Driver makes and keeps sandboxes on one machine. All methods are safe for
// concurrent use. An unknown sandbox or command gives a *task.Failure with
// task.InputNotFound; a dead sandbox one with task.InfraSandboxLost, or with
// the limit that killed it (task.LimitMemory).
type Driver interface {
	// Create makes and starts the sandbox. Creating an id that lives returns it
	// as it is. On error nothing is left behind.
	Create(ctx context.Context, spec Spec) (Info, error)

	// Start starts a command and returns at once; the same id again returns the
	// command that was started first, running or ended.
	Start(ctx context.Context, id string, cmd Command) (Status, error)

	// Attach gives the command's output from offset on, and its end. It survives
	// the end of the command and ends when the sandbox is destroyed.
	Attach(ctx context.Context, id, command string, offset int64) (Stream, error)

	// Signal sends a signal to the command's whole process tree.
	Signal(ctx context.Context, id, command string, signal int) error

	// Put unpacks a tar stream beneath dir (absolute, made when absent, as user
	// agent). Entries that would leave dir are refused.
	Put(ctx context.Context, id, dir string, tar io.Reader) error

	// Get packs path (absolute; a file or a folder) as a tar stream whose first
	// entry has path's base name. exclude names entries relative to path that are
	// left out with all beneath them.
	Get(ctx context.Context, id, path string, exclude []string) (io.ReadCloser, error)

	// Destroy ends every process and removes every host object of the sandbox.
	// It is idempotent: an unknown id is no error. When it returns nil the
	// ledger has no open record of the sandbox.
	Destroy(ctx context.Context, id string) error

	// List returns the sandboxes that live, dead ones that were not destroyed
	// included, by id.
	List(ctx context.Context) ([]Info, error)

	// Audit compares the ledger with the machine and returns what has no
	// explanation. It changes nothing.
	Audit(ctx context.Context) ([]Leftover, error)
}

// Spec says what to create. ID is required.
type Spec struct {
	ID      string      `json:"id"`             // "sb-" and 16 characters of lowercase base32
	Task    string      `json:"task,omitempty"` // the task it belongs to; empty: none
	Role    string      `json:"role,omitempty"` // "agent", "export", "verify", "manual": for people and the record
	Root    string      `json:"root,omitempty"` // "host", the default, is the only kind now
	Network bool        `json:"network"`        // false: not even a device
	Sudo    bool        `json:"sudo,omitempty"` // the workload may become root inside
	Limits  task.Limits `json:"limits"`
	Agents  []string    `json:"agents,omitempty"` // installed agents that it has, "name@version", each beneath AgentsInside
	Expires time.Time   `json:"expires,omitzero"` // destroyed by the worker after this time even when nobody asks; zero: 24 h after creation
}

// AgentsInside is the folder inside that holds a sandbox's agents, read-only, one
// folder a name.
const AgentsInside = "/run/cofferdam/agents"

// ValidID says whether s can be a sandbox id.
func ValidID(s string) bool { return idPattern.MatchString(s) }

// ValidCommandID says whether s can be a command id.
func ValidCommandID(s string) bool { return commandPattern.MatchString(s) }

var (
	idPattern      = regexp.MustCompile(`^sb-[a-z2-7]{16}$`)
	commandPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// State of a sandbox.
type State string

// The states of a sandbox.
const (
	Live State = "live"
	Dead State = "dead" // its kernel ended without being asked to
)

// Info describes a sandbox.
type Info struct {
	Spec
	State     State       `json:"state"`
	Reason    task.Reason `json:"reason,omitempty"` // why it is dead
	PID       int         `json:"pid"`              // of the sandbox's kernel (the sentry) on the host
	Kernel    string      `json:"kernel"`           // what isolates it, such as "gvisor systrap"
	CreatedAt time.Time   `json:"createdAt"`
	Frozen    bool        `json:"frozen,omitempty"` // it is kept as evidence: nothing runs in it, and nobody works in it; told by the worker
	Commands  []Status    `json:"commands,omitempty"`
}

// Command says what to run. ID and Argv are required.
type Command struct {
	ID      string        `json:"id"`
	Argv    []string      `json:"argv"`
	Dir     string        `json:"dir,omitempty"`  // default /workspace
	Env     []string      `json:"env,omitempty"`  // KEY=VALUE, added to the sandbox's base environment
	User    string        `json:"user,omitempty"` // "agent", the default; "sudo": root as the workload may be, where Spec.Sudo allows it; "root": the sandbox's own root, for the platform's steps only
	Timeout time.Duration `json:"timeout,omitempty"`

	Stdin     bool          `json:"stdin,omitempty"`     // its standard input is what Input brings; false: empty
	StdinIdle time.Duration `json:"stdinIdle,omitempty"` // its input is closed when nobody gave any for so long; 0: stays open
	Terminal  *Size         `json:"terminal,omitempty"`  // it runs on a terminal of this size
}

// Phase of a command.
type Phase string

// The phases of a command.
const (
	CommandRunning Phase = "running"
	CommandExited  Phase = "exited"
)

// Status is where a command stands.
type Status struct {
	ID        string      `json:"id"`
	Phase     Phase       `json:"phase"`
	PID       int         `json:"pid,omitempty"`    // inside the sandbox
	ExitCode  int         `json:"exitCode"`         // when exited normally: 0–255; -1 otherwise
	Signal    int         `json:"signal,omitempty"` // when ended by a signal
	Reason    task.Reason `json:"reason,omitempty"` // limit.time (timed out), limit.output, limit.pids, limit.disk, cancelled, infra.sandbox_lost…
	TimedOut  bool        `json:"timedOut,omitempty"`
	Started   bool        `json:"started"`         // this very call started it
	Error     string      `json:"error,omitempty"` // why it could not be started (no such program, no such folder)
	Output    int64       `json:"output"`          // payload bytes in the journal so far
	StartedAt time.Time   `json:"startedAt"`
	EndedAt   time.Time   `json:"endedAt,omitzero"`
	Cut       int64       `json:"cut,omitempty"`       // bytes that were written beyond the limit and dropped
	Input     int64       `json:"input,omitempty"`     // bytes of standard input that were taken
	InputOpen bool        `json:"inputOpen,omitempty"` // more is taken; told by Inspect
	Terminal  bool        `json:"terminal,omitempty"`
	Children  []int       `json:"children,omitempty"`  // processes of the command's tree that outlived it, inside pids; told by Inspect, those that live now
	Processes []Process   `json:"processes,omitempty"` // of its tree that live now; told by Inspect
}

// Stream is a command's output and its end.
type Stream interface {
	// Next returns the next chunk. After the command has exited and everything
	// it wrote until then was returned, it returns io.EOF; what background
	// children write later is in the journal and is seen by a later Attach.
	Next() (Chunk, error)
	// Status is the command's status; it is final once Next returned io.EOF.
	Status() Status
	Close() error
}

// Chunk is a piece of output.
type Chunk struct {
	Fd     int    // 1 stdout, 2 stderr
	Offset int64  // of Data's first byte in the journal, counting payload bytes
	Data   []byte // valid until the next call of Next
}

// Leftover is a host object that no record explains, or a record whose object
// can't be removed.
type Leftover struct {
	Kind    string `json:"kind"` // "process", "cgroup", "folder", "mount", "namespace", "device", "record"
	Name    string `json:"name"`
	Sandbox string `json:"sandbox,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// Network gives a sandbox its only way out. The driver makes the namespace and
// the TAP device and hands the device's descriptor over; what is reachable is
// not the driver's business. Implemented by egress/keeper.
type Network interface {
	// Attach gives the descriptor of the sandbox's TAP device to the gateway. The
	// callee keeps a duplicate; the caller closes tap afterwards. It returns the
	// PEM of the sandbox's own certificate authority, to be trusted inside.
	Attach(ctx context.Context, id string, tap Device) (authorityPEM []byte, err error)
	// Detach ends the sandbox's connections and forgets it. Idempotent.
	Detach(ctx context.Context, id string) error
}

// Device is an open TAP device and how it is addressed.
type Device struct {
	File interface{ Fd() uintptr } // an *os.File
	Name string                    // "tap0"
	MTU  int
	MAC  string // the gateway's side, such as "02:…"

	MaxNames       int64 // that the sandbox may ask for; 0: as many as the gateway allows any
	MaxConnections int64 // that it may have open at one time; 0: likewise
}

// Protector takes rights on the workspace's files away from what runs in a
// sandbox, and tells what was refused. Implemented by the drivers.
type Protector interface {
	// Protect ends every process of the sandbox and applies the rules to what is
	// started from now on. It is done once for a sandbox: the same rules again end
	// nothing and return the same, other rules are refused. A workspace that can't be
	// protected as it was left is a *task.Failure with task.PolicyFiles.
	Protect(ctx context.Context, id string, rules task.FileRules) (task.FileProtection, error)
	// Denials returns what the sandbox's kernel refused under the rules, with a
	// sequence number above after, in order, until the sandbox is destroyed.
	Denials(ctx context.Context, id string, after int64) ([]task.FileDenial, error)
}

package link

import (
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The bounds of what either side reads.
const (
	MaxJSON  = 8 << 20  // bytes of one JSON body
	MaxFrame = 64 << 10 // bytes of payload in one output frame
	MaxNote  = 1 << 20  // bytes of payload in a frame that carries JSON
	MaxTar   = 64 << 30 // bytes of one tar stream, either way

	MaxSandboxes = 10000 // sandboxes a worker may name
	MaxRecords   = 5000  // egress records in one answer
)

// Welcome is what cofferdamd says when a connection stands, and again every few
// seconds.
type Welcome struct {
	Boot    string `json:"boot"` // cofferdamd's boot id
	Version string `json:"version"`
}

// Hello is a worker's answer to Welcome.
type Hello struct {
	ID        string       `json:"id"`   // of the machine, kept in the worker's data folder
	Boot      string       `json:"boot"` // made at process start
	Version   string       `json:"version"`
	Gateway   string       `json:"gateway"` // the gateway's epoch; empty: none answers
	Machine   Machine      `json:"machine"`
	Sandboxes []string     `json:"sandboxes"` // ids of what is alive or dead but not destroyed
	Ledger    []OpenRecord `json:"ledger"`    // objects that the worker's ledger holds open, mirrored upward
}

// Machine says what a worker has to give.
type Machine struct {
	Host      string `json:"host"`
	Kernel    string `json:"kernel"`
	Arch      string `json:"arch"`
	CPUs      int    `json:"cpus"`
	Memory    int64  `json:"memory"`    // bytes
	DiskFree  int64  `json:"diskFree"`  // bytes, where sandboxes are kept
	Committed int64  `json:"committed"` // bytes of memory that its sandboxes may use together
}

// OpenRecord is an entry of the worker's clean-up ledger that is not closed.
type OpenRecord struct {
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Sandbox string    `json:"sandbox,omitempty"`
	Opened  time.Time `json:"opened"`
}

// Run asks for a command to be started, once for its id, and for its output
// from Offset on.
type Run struct {
	Command sandbox.Command `json:"command"`
	Offset  int64           `json:"offset"`
}

// CommandState is a command's status with the gateway's epoch at its start and
// the latest one, or the one at its end. Both are empty for a sandbox without a
// network.
type CommandState struct {
	sandbox.Status
	EpochBefore string `json:"epochBefore,omitempty"`
	EpochAfter  string `json:"epochAfter,omitempty"`
}

// Signal asks for a signal to be sent to a command's whole tree, or to a part of
// it.
type Signal = sandbox.Signal

// Get asks for a path as a tar stream.
type Get struct {
	Path    string   `json:"path"`
	Exclude []string `json:"exclude,omitempty"`
}

// SandboxList answers a request for the worker's sandboxes.
type SandboxList struct {
	Sandboxes []sandbox.Info `json:"sandboxes"`
}

// RecordList answers a request for egress records.
type RecordList struct {
	Records []task.EgressRecord `json:"records"`
}

// The outcomes of a check.
const (
	CheckOK     = "ok"
	CheckWarn   = "warning"
	CheckFailed = "failed"
)

// Check is one thing that doctor looked at.
type Check struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
	Text    string `json:"text"`
}

// Doctor is what a worker found about itself.
type Doctor struct {
	Checks    []Check            `json:"checks"`
	Leftovers []sandbox.Leftover `json:"leftovers"`
	Ledger    []OpenRecord       `json:"ledger"`
}

package guest

import (
	"fmt"
	"time"
)

// Users a command can run as.
const (
	UserAgent = "agent" // uid and gid 1000, no capabilities
	UserRoot  = "root"  // the sandbox's own root, for the platform's steps
	UserSudo  = "sudo"  // root for the workload, with fewer capabilities; only where policy allows it
)

// The reason codes the guest gives. They are those of the platform, spelt here
// again because this package imports nothing.
const (
	ReasonTime     = "limit.time"
	ReasonOutput   = "limit.output"
	ReasonPIDs     = "limit.pids"
	ReasonDisk     = "limit.disk"
	ReasonMemory   = "limit.memory"
	ReasonInodes   = "limit.inodes"
	ReasonFiles    = "limit.files"
	ReasonInvalid  = "input.invalid"
	ReasonNotFound = "input.not_found"
	ReasonLost     = "infra.sandbox_lost"
	ReasonInternal = "infra.internal"
)

// Command says what to run. ID and Argv are required.
type Command struct {
	ID        string        `json:"id"` // chosen by the caller; see ValidID
	Argv      []string      `json:"argv"`
	Dir       string        `json:"dir,omitempty"`       // empty: /workspace
	Env       []string      `json:"env,omitempty"`       // KEY=VALUE, added to the base environment
	User      string        `json:"user,omitempty"`      // empty: UserAgent
	Timeout   time.Duration `json:"timeout,omitempty"`   // zero: none
	MaxOutput int64         `json:"maxOutput,omitempty"` // bytes of both streams; zero: DefaultMaxOutput
	NProc     int64         `json:"nproc,omitempty"`     // processes of its user; zero: as the guest has it
	Files     int64         `json:"files,omitempty"`     // open files of one process; zero: as the guest has it
	Inodes    int64         `json:"inodes,omitempty"`    // files that may exist in the sandbox while it runs; zero: any number
	Stdin     bool          `json:"stdin,omitempty"`     // its standard input is what Input brings; false: empty
	StdinIdle time.Duration `json:"stdinIdle,omitempty"` // its input is closed when none came for so long; zero: stays open
	Terminal  *Size         `json:"terminal,omitempty"`  // it runs on a terminal of this size, which is its input and output
}

// Size is a terminal's, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Valid says whether a terminal can have the size.
func (s Size) Valid() bool { return s.Rows > 0 && s.Cols > 0 }

// DefaultMaxOutput limits the output of a command that names no limit.
const DefaultMaxOutput = 1 << 30

// Phases of a command.
const (
	Running = "running"
	Exited  = "exited"
)

// Status is where a command stands.
type Status struct {
	ID        string    `json:"id"`
	Phase     string    `json:"phase"`
	PID       int       `json:"pid,omitempty"`    // inside the sandbox
	ExitCode  int       `json:"exitCode"`         // when it exited by itself: 0–255; otherwise -1
	Signal    int       `json:"signal,omitempty"` // when a signal ended it
	Reason    string    `json:"reason,omitempty"` // the limit that was hit, or why the command was lost
	TimedOut  bool      `json:"timedOut,omitempty"`
	Started   bool      `json:"started,omitempty"`   // this very call started it
	Error     string    `json:"error,omitempty"`     // why it could not be started; ExitCode is then 126 or 127
	Output    int64     `json:"output"`              // payload bytes in the journal
	Cut       int64     `json:"cut,omitempty"`       // bytes that were written beyond the limit and dropped
	Input     int64     `json:"input,omitempty"`     // bytes of standard input that the guest took
	InputOpen bool      `json:"inputOpen,omitempty"` // more may follow
	Terminal  bool      `json:"terminal,omitempty"`
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt,omitzero"`
	Children  []int     `json:"children,omitempty"` // processes of its tree that outlived it
}

// Inspection is how a command stands this very moment.
type Inspection struct {
	ID        string    `json:"id"`
	Processes []Process `json:"processes,omitempty"` // the living ones of its tree
	Input     int64     `json:"input,omitempty"`
	InputOpen bool      `json:"inputOpen,omitempty"`
}

// Process is a living process of a command's tree. What it says of itself is
// the workload's word.
type Process struct {
	PID     int    `json:"pid"` // inside the sandbox
	Parent  int    `json:"parent,omitempty"`
	State   string `json:"state,omitempty"`   // a letter, as in /proc
	Command string `json:"command,omitempty"` // its arguments, cut
}

// Ended says whether the status is final.
func (s Status) Ended() bool { return s.Phase == Exited }

// Chunk is a piece of a command's output.
type Chunk struct {
	Fd     int    // 1 standard output, 2 standard error
	Offset int64  // of Data's first byte
	Data   []byte // valid until the next call of Next
}

// Config sets the sandbox up. Applying it twice changes nothing.
type Config struct {
	AuthorityPEM []byte   `json:"authorityPEM,omitempty"` // a certificate authority to trust; empty: none
	Hostname     string   `json:"hostname,omitempty"`     // empty: as it is
	BaseEnv      []string `json:"baseEnv,omitempty"`      // KEY=VALUE, over the guest's own base environment
}

// Error is a refusal of the guest: a reason code and a text for people.
type Error struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// Error gives the code and the text.
func (e *Error) Error() string { return e.Reason + ": " + e.Text }

// Errorf returns an Error.
func Errorf(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// ValidID says whether s can name a command: 1–128 letters, digits, '.', '_' and
// '-', beginning with a letter or digit. Such a name is also a safe file name.
func ValidID(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

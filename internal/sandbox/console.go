package sandbox

import (
	"context"
	"strconv"
	"strings"
)

// Console is what is done with a command while it runs, beside attaching to its
// output. Drivers implement it; errors are as those of Driver.
type Console interface {
	// Inspect tells how the command stands this very moment, with the living
	// processes of its tree; for an empty command, how every one does.
	Inspect(ctx context.Context, id, command string) ([]Status, error)

	// Input gives the command bytes of its standard input. It returns when all were
	// taken, when no more is taken, or when ctx ends: that is no error, and Taken
	// says how far it came. Bytes that were taken before are not taken again.
	Input(ctx context.Context, id, command string, in Input) (Taken, error)

	// Resize gives the command's terminal another size, and tells its programs also
	// when it had that size already.
	Resize(ctx context.Context, id, command string, size Size) error

	// SignalPart sends a signal to a part of the command's tree.
	SignalPart(ctx context.Context, id, command string, s Signal) error
}

// Size is a terminal's, in characters. The zero Size is none.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Valid says whether a terminal can have the size.
func (s Size) Valid() bool { return s.Rows > 0 && s.Cols > 0 }

// MaxInput bounds the bytes of one Input.
const MaxInput = 1 << 20

// Input is a piece of a command's standard input.
type Input struct {
	Offset int64  // bytes of input before Data; a gap is refused
	Data   []byte // at most MaxInput bytes
	Close  bool   // nothing follows Data
}

// Taken says how far a command's standard input came.
type Taken struct {
	Offset int64 `json:"offset"` // the next Input begins here
	Open   bool  `json:"open"`   // more is taken
}

// Process is a living process of a command's tree. What it says of itself is the
// workload's word.
type Process struct {
	PID     int    `json:"pid"` // inside the sandbox
	Parent  int    `json:"parent,omitempty"`
	State   string `json:"state,omitempty"` // a letter: R runs, S sleeps, T is stopped
	Command string `json:"command,omitempty"`
}

// Signal is a signal and which part of a command's tree it goes to. With neither
// Group nor PID that is the whole tree.
type Signal struct {
	Number int  `json:"signal"`
	Group  bool `json:"group,omitempty"` // the process group of the main process
	PID    int  `json:"pid,omitempty"`   // one process of the tree
}

// signalNames are Linux's, by number.
var signalNames = [...]string{
	1: "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
	"STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
}

// ParseSignal reads a signal's name, with or without SIG in front and in any case,
// or its number, 1 to 64.
func ParseSignal(s string) (int, bool) {
	if n, err := strconv.Atoi(s); err == nil {
		return n, n >= 1 && n <= 64 && strconv.Itoa(n) == s
	}
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	for n, known := range signalNames {
		if known != "" && known == name {
			return n, true
		}
	}
	return 0, false
}

// SignalName gives a signal's name, such as "SIGTERM", or its number when it has none.
func SignalName(n int) string {
	if n > 0 && n < len(signalNames) {
		return "SIG" + signalNames[n]
	}
	return "signal " + strconv.Itoa(n)
}

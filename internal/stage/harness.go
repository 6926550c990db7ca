package stage

import (
	"strconv"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Harnesses knows the agents that are programs of their own and run inside a
// sandbox. Implemented by agent.
type Harnesses interface {
	// Find returns how the agent of spec is run. A name that is none of theirs, and
	// a version or a provider that can't be, is a *task.Failure with
	// task.InputInvalid that names the field.
	Find(spec task.AgentSpec) (Harness, error)
}

// Harness is how one agent's program is run. It does no I/O.
type Harness interface {
	// Package is what must be installed on the worker, "name@version"; empty:
	// nothing.
	Package() string
	// Start says what to run.
	Start(run HarnessRun) (HarnessStart, error)
	// Read begins to read what the command of run writes. emit is called for each
	// event in order, with its Time not set. Where Start asks for a standard input
	// it is a HarnessSpeaker.
	Read(run HarnessRun, emit func(task.AgentEvent)) HarnessReader
}

// HarnessRun is what a harness is started for.
type HarnessRun struct {
	Prompt      string
	Placeholder string        // stands for the key of the model's server; empty: none is lent
	Kind        string        // of the credential that it stands for
	Header      string        // that carries it
	Session     string        // to go on with, from HarnessEnd; empty: begin a new one
	Silence     time.Duration // how long the model's server may say nothing
	Asks        bool          // it must ask before it uses tools: its reader is a HarnessAsker
}

// HarnessStart is the command that runs it.
type HarnessStart struct {
	Argv  []string
	Env   []string      // KEY=VALUE
	Files []HarnessFile // beneath HOME, there before it starts
	Stdin bool          // it is spoken to while it runs
}

// HarnessFile is a file that a harness reads.
type HarnessFile struct {
	Path string // relative to HOME, clean
	Data []byte
}

// HarnessReader reads what a harness writes. Every byte of it is hostile.
type HarnessReader interface {
	// Output takes the next bytes of standard output (fd 1) or standard error (2).
	Output(fd int, b []byte)
	// Hopeless says why the command should be ended although it goes on, such as
	// one that asks a silent server without end; nil: it should not.
	Hopeless() *task.Failure
	// End says that there is no more, how the command ended (-1: not by an exit of
	// its own), and gives what came of it.
	End(exit int) HarnessEnd
}

// HarnessSpeaker is a HarnessReader of a command that is spoken to while it runs.
// What it says comes of its run and of the output that it read, and of nothing
// else: the same output read again makes it say the same again. So one that was
// cut off goes on where the command's input is.
type HarnessSpeaker interface {
	HarnessReader
	// Say returns what is to be said now and was not returned before.
	Say() []byte
	// Done says that nothing more will be said, and that the command may end; how
	// it ends then doesn't count.
	Done() bool
}

// HarnessEnd is what came of a harness's run.
type HarnessEnd struct {
	Session string        // by which it can be gone on with; empty: it can't
	Failure *task.Failure // nil: it ended well
}

// CheckAgent refuses an agent that can't be run, and names the field.
func CheckAgent(a task.AgentSpec, harnesses Harnesses) error {
	invalid := func(field, text string) error {
		return task.Fail(task.InputInvalid, "agent."+field+": "+text, nil)
	}
	switch a.Name {
	case "":
		return invalid("name", "is empty; there are command, loop, acp, claude, codex, gemini and opencode")
	case "command":
		if len(a.Argv) == 0 || a.Argv[0] == "" {
			return invalid("argv", `the agent "command" needs a command`)
		}
	case "loop":
		p, ok := a.ProviderOf()
		switch {
		case !ok:
			return invalid("provider", strconv.Quote(a.Provider)+" is not known; the loop asks anthropic or openai")
		case p.Name != "anthropic" && p.Name != "openai":
			return invalid("provider", "the loop does not speak to "+strconv.Quote(p.Name)+"; use anthropic or openai")
		case a.MaxTurns < 0 || a.MaxTurns > 10_000:
			return invalid("maxTurns", "must be between 1 and 10,000, or 0 for the default")
		case len(a.Argv) > 0:
			return invalid("argv", "the agent \"loop\" takes none")
		}
	default:
		_, err := harnesses.Find(a)
		return err
	}
	return nil
}

// FdWriter is an io.Writer that can be told which of a command's outputs the
// bytes are of. Sandboxes.Run uses it where it is there.
type FdWriter interface {
	WriteFd(fd int, b []byte) (int, error)
}

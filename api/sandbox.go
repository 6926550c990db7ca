package api

import (
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"
)

// Limits bound one sandbox and its commands. Zero means the default.
type Limits struct {
	MilliCPU    int64   `json:"milliCPU,omitempty" minimum:"0" doc:"Thousandths of a core."`
	Memory      int64   `json:"memory,omitempty" minimum:"0" doc:"Bytes, all processes and the sandbox's own kernel."`
	PIDs        int64   `json:"pids,omitempty" minimum:"0"`
	Disk        int64   `json:"disk,omitempty" minimum:"0" doc:"Bytes written."`
	Output      int64   `json:"output,omitempty" minimum:"0" doc:"Bytes of output of one command."`
	TimeSeconds float64 `json:"timeSeconds,omitempty" minimum:"0" maximum:"604800" doc:"Wall time of one command."`
	Inodes      int64   `json:"inodes,omitempty" minimum:"0" doc:"Files, folders and links that exist."`
	Files       int64   `json:"files,omitempty" minimum:"0" doc:"Open files of one process."`
	Names       int64   `json:"names,omitempty" minimum:"0" doc:"Host names the sandbox may ask for."`
	Connections int64   `json:"connections,omitempty" minimum:"0" doc:"Open at one time."`
}

// SandboxRequest asks for a sandbox without a task.
type SandboxRequest struct {
	ID            string  `json:"id,omitempty" pattern:"^sb-[a-z2-7]{16}$" doc:"Chosen by the caller so that a repeated request makes one sandbox; empty: the server chooses."`
	Policy        string  `json:"policy,omitempty" maxLength:"1048576" doc:"Text of a policy file (YAML); its agent stage says what the sandbox may reach. Empty: nothing, not even a network device."`
	Limits        *Limits `json:"limits,omitempty" doc:"Override the policy's limits, downwards or where it names none."`
	ExpireSeconds int64   `json:"expireSeconds,omitempty" minimum:"0" maximum:"604800" doc:"Destroyed after this time; 0: after 24 hours."`
}

// Sandbox describes one sandbox.
type Sandbox struct {
	ID        string          `json:"id"`
	Owner     string          `json:"owner"`
	Task      string          `json:"task,omitempty"`
	Role      string          `json:"role,omitempty"`
	Worker    string          `json:"worker"`
	State     string          `json:"state" doc:"live, dead, lost, or frozen: kept as evidence."`
	Reason    string          `json:"reason,omitempty" doc:"Why it is dead."`
	Network   bool            `json:"network"`
	Sudo      bool            `json:"sudo,omitempty" doc:"Commands may run as root inside."`
	Limits    Limits          `json:"limits"`
	PID       int             `json:"pid,omitempty" doc:"Of the sandbox's kernel, on its machine."`
	Kernel    string          `json:"kernel,omitempty" doc:"What isolates it."`
	CreatedAt time.Time       `json:"createdAt"`
	ExpiresAt *time.Time      `json:"expiresAt,omitempty"`
	Commands  []CommandStatus `json:"commands" nullable:"false"`
}

// SandboxList lists sandboxes.
type SandboxList struct {
	Sandboxes []Sandbox `json:"sandboxes" nullable:"false"`
}

// ExecRequest starts a command in a sandbox.
type ExecRequest struct {
	ID             string            `json:"id,omitempty" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" doc:"The command's id: the same id again starts nothing and returns the first. Empty: the server chooses."`
	Argv           []string          `json:"argv" nullable:"false" minItems:"1" maxItems:"4096"`
	Dir            string            `json:"dir,omitempty" maxLength:"4096" doc:"Absolute; empty: /workspace."`
	Env            map[string]string `json:"env,omitempty" doc:"Added to the sandbox's base environment."`
	TimeoutSeconds float64           `json:"timeoutSeconds,omitempty" minimum:"0" maximum:"604800" doc:"0: the sandbox's limit."`
	User           string            `json:"user,omitempty" enum:"agent,root" doc:"root only where the sandbox's policy allows sudo; empty: agent."`
	Stdin          bool              `json:"stdin,omitempty" doc:"Its standard input is what write-input brings; otherwise it is empty."`
	StdinIdle      float64           `json:"stdinIdleSeconds,omitempty" minimum:"0" maximum:"604800" doc:"Close its input when nobody wrote any for so long; 0: it stays open."`
	Terminal       *TerminalSize     `json:"terminal,omitempty" doc:"Run it on a terminal of this size."`
	Wait           bool              `json:"wait,omitempty" doc:"Answer when the command ended, or when the inline output or the waiting time is used up."`
}

// ExecResult answers an ExecRequest. With wait and a short command it holds
// everything: the output and the final status. Otherwise Next says from which
// offset on the output goes on.
type ExecResult struct {
	Command CommandStatus `json:"command"`
	Output  []Chunk       `json:"output" nullable:"false"`
	Next    int64         `json:"next" doc:"Offset of the first byte of output that is not in this answer."`
	Done    bool          `json:"done" doc:"The command ended and all of its output is in this answer."`
}

// Chunk is a piece of a command's output. Text holds it when it is UTF-8 and
// Base64 otherwise.
type Chunk struct {
	Fd     int    `json:"fd" doc:"1 stdout, 2 stderr."`
	Offset int64  `json:"offset" doc:"Counting the bytes of both streams together."`
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"`
}

// NewChunk returns data as a chunk.
func NewChunk(fd int, offset int64, data []byte) Chunk {
	c := Chunk{Fd: fd, Offset: offset}
	if utf8.Valid(data) {
		c.Text = string(data)
	} else {
		c.Base64 = base64.StdEncoding.EncodeToString(data)
	}
	return c
}

// Bytes returns the chunk's payload.
func (c Chunk) Bytes() ([]byte, error) {
	if c.Base64 == "" {
		return []byte(c.Text), nil
	}
	b, err := base64.StdEncoding.DecodeString(c.Base64)
	if err != nil {
		return nil, fmt.Errorf("output chunk at %d: %w", c.Offset, err)
	}
	return b, nil
}

// The phases of a command.
const (
	CommandRunning = "running"
	CommandExited  = "exited"
)

// CommandStatus is where a command stands.
type CommandStatus struct {
	ID        string     `json:"id"`
	Phase     string     `json:"phase" doc:"running or exited."`
	PID       int        `json:"pid,omitempty" doc:"Inside the sandbox."`
	ExitCode  int        `json:"exitCode" doc:"0–255 when it exited normally, -1 otherwise."`
	Signal    int        `json:"signal,omitempty" doc:"When ended by a signal."`
	Reason    string     `json:"reason,omitempty" doc:"Such as limit.time."`
	TimedOut  bool       `json:"timedOut,omitempty"`
	Started   bool       `json:"started" doc:"This very request started it."`
	Error     string     `json:"error,omitempty" doc:"Why it could not be started."`
	Output    int64      `json:"output" doc:"Bytes of output so far."`
	StartedAt *time.Time `json:"startedAt,omitempty"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
	Cut       int64      `json:"cut,omitempty" doc:"Bytes of output beyond the limit, which were dropped."`
	Input     int64      `json:"input,omitempty" doc:"Bytes of standard input that were taken."`
	InputOpen bool       `json:"inputOpen,omitempty" doc:"More input is taken; told by get-command and list-commands."`
	Terminal  bool       `json:"terminal,omitempty"`
	Children  []int      `json:"children,omitempty" doc:"Processes of its tree besides the main one; from get-command and list-commands those that live now."`
	Processes []Process  `json:"processes,omitempty" doc:"Of its tree that live now; told by get-command and list-commands."`
}

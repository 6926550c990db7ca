// Package command translates between the words of sandbox and those of the guest:
// what to run, how it stands, and what is done with it meanwhile. It checks what
// the guest would refuse, so that the text names the field.
//
// Not promised: that a command which passes here can be started.
package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/host"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Check refuses a command that can't be started in a sandbox of that kind.
func Check(cmd sandbox.Command, spec sandbox.Spec) error {
	invalid := func(format string, args ...any) error {
		return task.Fail(task.InputInvalid, fmt.Sprintf("command %q ", cmd.ID)+fmt.Sprintf(format, args...), nil)
	}
	if !sandbox.ValidCommandID(cmd.ID) {
		return task.Fail(task.InputInvalid, fmt.Sprintf("command id %q is not valid", cmd.ID), nil)
	}
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return invalid("has no argv")
	}
	for _, word := range append(append([]string{cmd.Dir}, cmd.Argv...), cmd.Env...) {
		if strings.ContainsRune(word, 0) {
			return invalid("has a zero byte in its arguments")
		}
	}
	switch cmd.User {
	case "", guest.UserAgent, guest.UserRoot:
	case guest.UserSudo:
		if !spec.Sudo {
			return task.Fail(task.PolicyDenied, fmt.Sprintf("command %q: no command of this sandbox may run as root; its policy would have to allow sudo", cmd.ID), nil)
		}
	default:
		return invalid("has user %q; there are agent, sudo and root", cmd.User)
	}
	if cmd.Terminal != nil && !cmd.Terminal.Valid() {
		return invalid("has a terminal of %d rows and %d columns", cmd.Terminal.Rows, cmd.Terminal.Cols)
	}
	if cmd.StdinIdle < 0 {
		return invalid("has a negative stdinIdle")
	}
	return nil
}

// ToGuest gives the command with the sandbox's limits.
func ToGuest(cmd sandbox.Command, limits task.Limits) guest.Command {
	timeout := limits.Time
	if cmd.Timeout > 0 {
		timeout = min(timeout, cmd.Timeout)
	}
	out := guest.Command{
		ID: cmd.ID, Argv: cmd.Argv, Dir: cmd.Dir, Env: cmd.Env, User: cmd.User,
		Timeout: timeout, MaxOutput: limits.Output, NProc: limits.PIDs, Files: limits.Files, Inodes: limits.Inodes,
		Stdin: cmd.Stdin, StdinIdle: cmd.StdinIdle,
	}
	if cmd.Terminal != nil {
		out.Terminal = &guest.Size{Rows: cmd.Terminal.Rows, Cols: cmd.Terminal.Cols}
	}
	return out
}

// FromGuest gives a status.
func FromGuest(s guest.Status) sandbox.Status {
	return sandbox.Status{
		ID: s.ID, Phase: sandbox.Phase(s.Phase), PID: s.PID, ExitCode: s.ExitCode, Signal: s.Signal,
		Reason: task.Reason(s.Reason), TimedOut: s.TimedOut, Started: s.Started, Error: s.Error,
		Output: s.Output, Cut: s.Cut, Input: s.Input, InputOpen: s.InputOpen, Terminal: s.Terminal,
		StartedAt: s.StartedAt, EndedAt: s.EndedAt, Children: s.Children,
	}
}

// Inspect asks the guest how a command, or every one, stands this very moment.
func Inspect(ctx context.Context, conn *host.Conn, command string) ([]sandbox.Status, error) {
	list, err := conn.Inspect(ctx, command)
	if err != nil {
		return nil, err
	}
	out := make([]sandbox.Status, 0, len(list))
	for _, i := range list {
		s := FromGuest(i.Status)
		for _, p := range i.Processes {
			s.Processes = append(s.Processes, sandbox.Process(p))
		}
		out = append(out, s)
	}
	return out, nil
}

// Input gives a command bytes of its standard input.
func Input(ctx context.Context, conn *host.Conn, command string, in sandbox.Input) (sandbox.Taken, error) {
	if in.Offset < 0 || len(in.Data) > sandbox.MaxInput {
		return sandbox.Taken{}, task.Fail(task.InputInvalid, fmt.Sprintf("input of %d bytes at %d: the offset must not be negative and the bytes not more than %d",
			len(in.Data), in.Offset, sandbox.MaxInput), nil)
	}
	state, err := conn.Input(ctx, command, in.Offset, in.Data, in.Close)
	return sandbox.Taken{Offset: state.Taken, Open: state.Open}, err
}

// Resize gives a command's terminal another size.
func Resize(ctx context.Context, conn *host.Conn, command string, size sandbox.Size) error {
	return conn.Resize(ctx, command, guest.Size(size))
}

// Signal sends a signal to a command's tree, or to a part of it.
func Signal(ctx context.Context, conn *host.Conn, command string, s sandbox.Signal) error {
	if s.Number < 1 || s.Number > 64 {
		return task.Fail(task.InputInvalid, fmt.Sprintf("signal %d does not exist", s.Number), nil)
	}
	if s.PID < 0 || s.PID > 0 && s.Group {
		return task.Fail(task.InputInvalid, "a signal goes to a group or to one process, which has a positive number", nil)
	}
	if !s.Group && s.PID == 0 {
		return conn.Signal(ctx, command, s.Number)
	}
	return conn.SignalPart(ctx, guest.SignalRequest{ID: command, Signal: s.Number, Group: s.Group, PID: s.PID})
}

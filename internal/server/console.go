package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/server/translate"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (s *Server) describeConsole() {
	register(s, operation.Operation{
		ID: "list-commands", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/exec", Access: operation.Users,
		Summary: "A sandbox's commands, with the processes of each that live now",
	}, s.listCommands)
	register(s, operation.Operation{
		ID: "write-input", Method: http.MethodPut, Path: "/v1/sandboxes/{id}/exec/{command}/input", Access: operation.Users, Status: http.StatusOK,
		Max: api.MaxInput, Body: api.InputType,
		Summary: "A piece of a command's standard input, taken once however often it is sent; a program that doesn't read holds the answer up for some seconds",
	}, s.writeInput)
	register(s, operation.Operation{
		ID: "resize-terminal", Method: http.MethodPut, Path: "/v1/sandboxes/{id}/exec/{command}/terminal", Access: operation.Users,
		Summary: "Give a command's terminal another size",
	}, s.resizeTerminal)
	register(s, operation.Operation{
		ID: "signal-command", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/exec/{command}/signal", Access: operation.Users,
		Summary: "Send a signal to a command's whole tree, to its group or to one process",
	}, s.signalCommand)
}

// consoleOf adds to a command what goes beyond running it.
func consoleOf(r api.ExecRequest, cmd *sandbox.Command) error {
	if r.User == "root" {
		cmd.User = "sudo" // The workload's root. The sandbox's own is for the platform's steps.
	}
	cmd.Stdin, cmd.StdinIdle = r.Stdin, translate.Seconds(r.StdinIdle)
	if r.Terminal != nil {
		cmd.Terminal = &sandbox.Size{Rows: r.Terminal.Rows, Cols: r.Terminal.Cols}
	}
	if r.Stdin && r.Wait {
		return problem.Invalid("body.wait", "can't be had together with stdin, which is written while the command runs")
	}
	if r.StdinIdle > 0 && !r.Stdin {
		return problem.Invalid("body.stdinIdleSeconds", "needs stdin")
	}
	return nil
}

type commandListOutput struct{ Body api.CommandList }

func (s *Server) listCommands(ctx context.Context, in *sandboxPath) (*commandListOutput, error) {
	if err := s.own(ctx, in.ID); err != nil {
		return nil, err
	}
	list, err := s.need.Console.Inspect(ctx, in.ID, "")
	if err != nil {
		return nil, err
	}
	out := &commandListOutput{api.CommandList{Commands: []api.CommandStatus{}}}
	for _, st := range list {
		out.Body.Commands = append(out.Body.Commands, translate.Command(st))
	}
	return out, nil
}

// inspect tells how one command stands this very moment.
func (s *Server) inspect(ctx context.Context, id, command string) (sandbox.Status, error) {
	list, err := s.need.Console.Inspect(ctx, id, command)
	if err != nil {
		return sandbox.Status{}, err
	}
	if len(list) != 1 {
		return sandbox.Status{}, fmt.Errorf("command %s: %d statuses", command, len(list))
	}
	return list[0], nil
}

type writeInputInput struct {
	ID      string `path:"id" maxLength:"64"`
	Command string `path:"command" maxLength:"128"`
	Offset  int64  `query:"offset" required:"true" minimum:"0" doc:"Bytes of input before these."`
	Close   bool   `query:"close" doc:"Nothing follows."`
	upload
}

type inputOutput struct{ Body api.InputResult }

func (s *Server) writeInput(ctx context.Context, in *writeInputInput) (*inputOutput, error) {
	if err := s.command(ctx, &commandPath{in.ID, in.Command}); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(in.body)
	if err != nil {
		if failure, ok := errors.AsType[*task.Failure](bodyFailure(err)); ok {
			return nil, failure
		}
		return nil, problem.Invalid("body", "broke off")
	}
	taken, err := s.need.Console.Input(ctx, in.ID, in.Command, sandbox.Input{Offset: in.Offset, Data: data, Close: in.Close})
	if err != nil {
		return nil, err
	}
	return &inputOutput{api.InputResult{Taken: taken.Offset, Open: taken.Open}}, nil
}

type resizeInput struct {
	ID      string `path:"id" maxLength:"64"`
	Command string `path:"command" maxLength:"128"`
	Body    api.TerminalSize
}

func (s *Server) resizeTerminal(ctx context.Context, in *resizeInput) (*struct{}, error) {
	if err := s.command(ctx, &commandPath{in.ID, in.Command}); err != nil {
		return nil, err
	}
	return nil, s.need.Console.Resize(ctx, in.ID, in.Command, sandbox.Size{Rows: in.Body.Rows, Cols: in.Body.Cols})
}

type signalInput struct {
	ID      string `path:"id" maxLength:"64"`
	Command string `path:"command" maxLength:"128"`
	Body    api.SignalRequest
}

func (s *Server) signalCommand(ctx context.Context, in *signalInput) (*struct{}, error) {
	if err := s.command(ctx, &commandPath{in.ID, in.Command}); err != nil {
		return nil, err
	}
	n, ok := sandbox.ParseSignal(in.Body.Signal)
	if !ok {
		return nil, problem.Invalid("body.signal", "is neither a signal's name nor a number from 1 to 64: "+problem.Quote(in.Body.Signal))
	}
	if in.Body.Group && in.Body.PID != 0 {
		return nil, problem.Invalid("body.pid", "can't be had together with group")
	}
	return nil, s.need.Console.SignalPart(ctx, in.ID, in.Command, sandbox.Signal{Number: n, Group: in.Body.Group, PID: in.Body.PID})
}

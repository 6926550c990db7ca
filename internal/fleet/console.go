package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

var _ sandbox.Console = (*Fleet)(nil)

// Inspect tells how the command stands this very moment, with the living
// processes of its tree; for an empty command, how every one of the sandbox does.
func (f *Fleet) Inspect(ctx context.Context, id, command string) ([]sandbox.Status, error) {
	path := sandboxPath(id) + "/commands"
	if command != "" {
		if err := validCommand(command); err != nil {
			return nil, err
		}
		path = commandPath(id, command) + "/live"
	}
	var list link.StatusList
	err := f.at(ctx, id, func(ctx context.Context, c *conn) error {
		list = link.StatusList{}
		return c.exchange(ctx, http.MethodGet, path, nil, &list)
	})
	if err != nil {
		return nil, err
	}
	if command != "" && len(list.Commands) != 1 {
		return nil, protocol(f.places.get(id), fmt.Errorf("%d statuses of command %s", len(list.Commands), command))
	}
	for _, s := range list.Commands {
		want := command
		if command == "" {
			want = s.ID
		}
		if err := f.sameCommand(id, want, link.CommandState{Status: s}); err != nil {
			return nil, err
		}
	}
	return list.Commands, nil
}

// Input gives the command bytes of its standard input, once, however often the
// worker comes back meanwhile. A program that doesn't read holds the call up for
// some seconds; Taken says how far it came.
func (f *Fleet) Input(ctx context.Context, id, command string, in sandbox.Input) (sandbox.Taken, error) {
	var taken sandbox.Taken
	if err := validCommand(command); err != nil {
		return taken, err
	}
	if in.Offset < 0 || len(in.Data) > sandbox.MaxInput {
		return taken, task.Fail(task.InputInvalid, "input has a negative offset or too many bytes at once", nil)
	}
	path := commandPath(id, command) + "/input?offset=" + strconv.FormatInt(in.Offset, 10) + "&close=" + strconv.FormatBool(in.Close)
	var worker string
	err := f.at(ctx, id, func(ctx context.Context, c *conn) error {
		worker, taken = c.worker, sandbox.Taken{}
		resp, err := c.send(ctx, http.MethodPost, path, bytes.NewReader(in.Data), "application/octet-stream")
		if err != nil {
			return err
		}
		return decode(c.worker, resp, &taken)
	})
	if err != nil {
		return sandbox.Taken{}, f.lostSandbox(id, err)
	}
	if taken.Offset < in.Offset {
		return sandbox.Taken{}, protocol(worker, fmt.Errorf("input of %s at %d: taken up to %d", command, in.Offset, taken.Offset))
	}
	return taken, nil
}

// Resize gives the command's terminal another size.
func (f *Fleet) Resize(ctx context.Context, id, command string, size sandbox.Size) error {
	if err := validCommand(command); err != nil {
		return err
	}
	return f.at(ctx, id, func(ctx context.Context, c *conn) error {
		return c.exchange(ctx, http.MethodPut, commandPath(id, command)+"/size", link.Size{Size: size}, nil)
	})
}

// SignalPart sends a signal to the command's tree or to a part of it. It is sent
// again when the worker went away before it answered, so a program may see it
// twice.
func (f *Fleet) SignalPart(ctx context.Context, id, command string, s sandbox.Signal) error {
	if err := validCommand(command); err != nil {
		return err
	}
	return f.at(ctx, id, func(ctx context.Context, c *conn) error {
		return c.exchange(ctx, http.MethodPost, commandPath(id, command)+"/signal", s, nil)
	})
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// inputWait is how long a request with input waits for a program that doesn't
// read. The answer says how far it came.
const inputWait = 10 * time.Second

func (d *Door) console() (sandbox.Console, error) {
	if c, ok := d.opts.Driver.(sandbox.Console); ok {
		return c, nil
	}
	return nil, task.Fail(task.InputInvalid, "this worker's sandboxes take no input and have no terminals", nil)
}

// inspect tells how one command, or every one, stands this very moment.
func (d *Door) inspect(w http.ResponseWriter, r *http.Request) error {
	c, err := d.console()
	if err != nil {
		return err
	}
	list, err := c.Inspect(r.Context(), r.PathValue("id"), r.PathValue("command"))
	if err != nil {
		return err
	}
	if extra := len(list) - maxCommands; extra > 0 {
		list = list[extra:]
	}
	return writeJSON(w, http.StatusOK, link.StatusList{Commands: append([]sandbox.Status{}, list...)})
}

// input gives a command bytes of its standard input.
func (d *Door) input(w http.ResponseWriter, r *http.Request) error {
	c, err := d.console()
	if err != nil {
		return err
	}
	query := r.URL.Query()
	in := sandbox.Input{Close: query.Get("close") == "true"}
	if in.Offset, err = strconv.ParseInt(query.Get("offset"), 10, 64); err != nil || in.Offset < 0 {
		return task.Fail(task.InputInvalid, "the offset is not a number of bytes", err)
	}
	if in.Data, err = io.ReadAll(http.MaxBytesReader(w, r.Body, sandbox.MaxInput)); err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return task.Fail(task.LimitSize, fmt.Sprintf("the input has more than %d bytes at once", large.Limit), nil)
		}
		return task.Fail(task.InputInvalid, "the input broke off", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), inputWait)
	defer cancel()
	taken, err := c.Input(ctx, r.PathValue("id"), r.PathValue("command"), in)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, taken)
}

func (d *Door) resize(w http.ResponseWriter, r *http.Request) error {
	var s link.Size
	if err := read(r, &s); err != nil {
		return err
	}
	c, err := d.console()
	if err == nil {
		err = c.Resize(r.Context(), r.PathValue("id"), r.PathValue("command"), s.Size)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *Door) signal(w http.ResponseWriter, r *http.Request) error {
	var s link.Signal
	if err := read(r, &s); err != nil {
		return err
	}
	if s.Number < 1 || s.Number > 64 {
		return task.Fail(task.InputInvalid, fmt.Sprintf("signal %d does not exist", s.Number), nil)
	}
	id, command := r.PathValue("id"), r.PathValue("command")
	if !s.Group && s.PID == 0 {
		if err := d.opts.Driver.Signal(r.Context(), id, command, s.Number); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	c, err := d.console()
	if err == nil {
		err = c.SignalPart(r.Context(), id, command, s)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

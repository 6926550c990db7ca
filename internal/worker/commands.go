package worker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// begin starts a command, once for its id, after the gateway's epoch at that
// moment was noted.
func (d *Door) begin(ctx context.Context, id string, cmd sandbox.Command) (link.CommandState, error) {
	state := link.CommandState{}
	if err := ctx.Err(); err != nil {
		return state, err
	}
	has, err := d.hasNetwork(ctx, id)
	if err != nil {
		return state, err
	}
	if has {
		if state.EpochBefore, err = d.epochs.started(id, cmd.ID, d.opts.Egress.Epoch()); err != nil {
			return state, task.Fail(task.InfraStorage, "the gateway's epoch can't be noted", err)
		}
	}
	if state.Status, err = d.opts.Driver.Start(ctx, id, cmd); err != nil {
		return state, err
	}
	return d.withEpochs(id, state.Status)
}

// withEpochs adds the epochs to a status. The one at the end is noted when the
// end is first seen.
func (d *Door) withEpochs(id string, status sandbox.Status) (link.CommandState, error) {
	state := link.CommandState{Status: status}
	d.mu.Lock()
	has := d.network[id]
	d.mu.Unlock()
	if !has {
		return state, nil
	}
	var err error
	now := d.opts.Egress.Epoch()
	state.EpochBefore, state.EpochAfter, err = d.epochs.seen(id, status.ID, now, status.Phase == sandbox.CommandExited)
	if err != nil {
		return state, task.Fail(task.InfraStorage, "the gateway's epoch can't be noted", err)
	}
	return state, nil
}

func (d *Door) start(w http.ResponseWriter, r *http.Request) error {
	var cmd sandbox.Command
	if err := read(r, &cmd); err != nil {
		return err
	}
	if cmd.ID != r.PathValue("command") {
		return task.Fail(task.InputInvalid, "the command's id differs between path and body", nil)
	}
	state, err := d.begin(r.Context(), r.PathValue("id"), cmd)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, state)
}

func (d *Door) status(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if _, err := d.hasNetwork(r.Context(), id); err != nil {
		return err
	}
	stream, err := d.opts.Driver.Attach(r.Context(), id, r.PathValue("command"), 0)
	if err != nil {
		return err
	}
	defer stream.Close()
	state, err := d.withEpochs(id, stream.Status())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, state)
}

// run starts a command and streams its output until it ends: one round trip.
func (d *Door) run(w http.ResponseWriter, r *http.Request) error {
	var req link.Run
	if err := read(r, &req); err != nil {
		return err
	}
	if !sandbox.ValidCommandID(req.Command.ID) || req.Offset < 0 {
		return task.Fail(task.InputInvalid, "command id or offset is not valid", nil)
	}
	id := r.PathValue("id")
	state, err := d.begin(r.Context(), id, req.Command)
	if err != nil {
		return err
	}
	stream, err := d.opts.Driver.Attach(r.Context(), id, req.Command.ID, req.Offset)
	if err != nil {
		return err
	}
	defer stream.Close()
	// Not flushed: a short command's whole answer goes out at once.
	return d.stream(w, r, stream, state, false)
}

func (d *Door) attach(w http.ResponseWriter, r *http.Request) error {
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil || offset < 0 {
		return task.Fail(task.InputInvalid, "the offset is not a number of bytes", err)
	}
	id := r.PathValue("id")
	if _, err := d.hasNetwork(r.Context(), id); err != nil {
		return err
	}
	stream, err := d.opts.Driver.Attach(r.Context(), id, r.PathValue("command"), offset)
	if err != nil {
		return err
	}
	defer stream.Close()
	state, err := d.withEpochs(id, stream.Status())
	if err != nil {
		return err
	}
	return d.stream(w, r, stream, state, true)
}

// stream copies a command's output into frames. Each chunk is flushed: what a
// command wrote is seen now, not when a buffer is full.
func (d *Door) stream(w http.ResponseWriter, r *http.Request, stream sandbox.Stream, state link.CommandState, flushFirst bool) error {
	w.Header().Set("Content-Type", link.FrameType)
	flusher := http.NewResponseController(w)
	frames := link.NewFrameWriter(w)
	if err := frames.Note(link.KindStarted, state); err != nil {
		return errors.Join(errStreaming, err)
	}
	if flushFirst {
		if err := flusher.Flush(); err != nil {
			return errors.Join(errStreaming, err)
		}
	}
	for {
		chunk, err := stream.Next()
		if err != nil {
			if r.Context().Err() != nil {
				return errors.Join(errStreaming, err)
			}
			return d.endStream(frames, r.PathValue("id"), state.Started, stream, err)
		}
		if err := frames.Output(chunk.Fd, chunk.Offset, chunk.Data); err != nil {
			return errors.Join(errStreaming, err)
		}
		if err := flusher.Flush(); err != nil {
			return errors.Join(errStreaming, err)
		}
	}
}

// endStream writes the last frame: the end, or a failure that is the sandbox's.
// One that is this process's own ending is cut off, to be asked again.
func (d *Door) endStream(frames *link.FrameWriter, id string, started bool, stream sandbox.Stream, cause error) error {
	var failure *task.Failure
	switch {
	case errors.Is(cause, io.EOF):
		state, err := d.withEpochs(id, stream.Status())
		if err != nil {
			return errors.Join(errStreaming, err)
		}
		state.Started = started
		if err := frames.Note(link.KindEnded, state); err != nil {
			return errors.Join(errStreaming, err)
		}
		return nil
	case errors.As(cause, &failure) && !errors.Is(cause, context.Canceled):
		if err := frames.Note(link.KindProblem, link.ProblemOf(failure)); err != nil {
			return errors.Join(errStreaming, err)
		}
		return nil
	}
	return errors.Join(errStreaming, cause)
}

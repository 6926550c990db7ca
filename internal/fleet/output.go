package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Run starts the command, once for its id, and copies its output from offset on
// to out until it ends. Output is written exactly once, however often the
// worker comes back.
func (f *Fleet) Run(ctx context.Context, id string, cmd sandbox.Command, offset int64, out io.Writer, beat func()) (stage.Result, error) {
	if err := validCommand(cmd.ID); err != nil {
		return stage.Result{}, err
	}
	stop := every(time.Second, beat)
	defer stop()
	o, err := f.open(ctx, id, cmd.ID, &cmd, offset)
	if err != nil {
		return stage.Result{}, f.lostSandbox(id, err)
	}
	defer o.Close()
	for {
		chunk, err := o.Next()
		if errors.Is(err, io.EOF) {
			return stage.Result{Status: o.state.Status, EpochBefore: o.state.EpochBefore, EpochAfter: o.state.EpochAfter}, nil
		}
		if err != nil {
			return stage.Result{}, f.lostSandbox(id, err)
		}
		if err := write(out, chunk); err != nil {
			return stage.Result{}, task.Fail(task.InfraStorage, "the command's output can't be kept", err)
		}
	}
}

func write(out io.Writer, chunk sandbox.Chunk) (err error) {
	if to, ok := out.(stage.FdWriter); ok {
		_, err = to.WriteFd(chunk.Fd, chunk.Data)
	} else {
		_, err = out.Write(chunk.Data)
	}
	return err
}

// every calls beat at the given pace until the returned function is called,
// which waits for a call that is under way.
func every(pace time.Duration, beat func()) (stop func()) {
	if beat == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				beat()
			}
		}
	}()
	return func() { close(quit); <-done }
}

// Attach gives a command's output from offset on, and its end.
func (f *Fleet) Attach(ctx context.Context, id, command string, offset int64) (sandbox.Stream, error) {
	if err := validCommand(command); err != nil {
		return nil, err
	}
	o, err := f.open(ctx, id, command, nil, offset)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Exec is Start and Attach in one round trip: the stream's status says whether
// this call started the command.
func (f *Fleet) Exec(ctx context.Context, id string, cmd sandbox.Command, offset int64) (sandbox.Stream, error) {
	if err := validCommand(cmd.ID); err != nil {
		return nil, err
	}
	o, err := f.open(ctx, id, cmd.ID, &cmd, offset)
	if err != nil {
		return nil, f.lostSandbox(id, err)
	}
	return o, nil
}

// output is a command's output that survives its connections.
type output struct {
	f       *Fleet
	ctx     context.Context
	cancel  context.CancelFunc
	worker  string
	id      string
	command string
	run     *sandbox.Command // set: started when it is not there
	offset  int64            // of the next byte
	budget  int64            // bytes that are still taken
	p       patience

	conn   *conn
	body   io.ReadCloser
	frames *link.FrameReader
	opened time.Time
	ended  error

	mu    sync.Mutex
	state link.CommandState
}

// open finds the sandbox and waits until its worker knows the command.
func (f *Fleet) open(ctx context.Context, id, command string, run *sandbox.Command, offset int64) (*output, error) {
	if offset < 0 {
		return nil, task.Fail(task.InputInvalid, "an offset can't be negative", nil)
	}
	worker, err := f.where(ctx, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	o := &output{
		f: f, ctx: ctx, cancel: cancel, worker: worker, id: id, command: command, run: run,
		offset: offset, budget: f.maxOutput, p: patience{grace: f.grace},
	}
	o.state.ID, o.state.Phase = command, sandbox.CommandRunning
	if err := o.connect(); err != nil {
		cancel()
		return nil, err
	}
	return o, nil
}

// lasting is how long a request must have been under way for its end to be a new
// trouble. The worker sends nothing while a command that it runs is silent, so
// that waiting is not distinguishable from progress, but a worker that
// fails each request at once is.
const lasting = time.Second

// connect makes the request, again and again until there is an answer or the
// grace is over.
func (o *output) connect() error {
	for {
		c, err := o.f.connection(o.ctx, o.worker, &o.p)
		if err != nil {
			return err
		}
		began := time.Now()
		resp, err := o.request(c) //nolint:bodyclose // the stream closes it
		if time.Since(began) > lasting {
			o.p.progress()
		}
		if err == nil {
			o.conn, o.body, o.frames, o.opened = c, resp.Body, link.NewFrameReader(resp.Body), time.Now()
			return nil
		}
		if _, ok := errors.AsType[*brokenError](err); !ok {
			return err
		}
		if err := o.f.pause(o.ctx, c, &o.p, err); err != nil {
			return err
		}
	}
}

func (o *output) request(c *conn) (*http.Response, error) {
	if o.run == nil {
		path := commandPath(o.id, o.command) + "/output?offset=" + strconv.FormatInt(o.offset, 10)
		return c.send(o.ctx, http.MethodGet, path, nil, "")
	}
	text, err := json.Marshal(link.Run{Command: *o.run, Offset: o.offset})
	if err != nil {
		return nil, task.Fail(task.InfraInternal, "the request to the worker can't be made", err)
	}
	return c.send(o.ctx, http.MethodPost, sandboxPath(o.id)+"/run", bytes.NewReader(text), "application/json")
}

// Next returns the next chunk, from a new connection when the one before broke.
func (o *output) Next() (sandbox.Chunk, error) {
	for o.ended == nil {
		frame, err := o.read()
		if err == nil {
			var chunk sandbox.Chunk
			if chunk, err = o.take(frame); err == nil && len(chunk.Data) > 0 {
				return chunk, nil
			}
		}
		var b *brokenError
		switch {
		case err == nil:
		case errors.As(err, &b):
			o.drop()
			if err := o.f.pause(o.ctx, o.conn, &o.p, err); err != nil {
				o.ended = err
			}
		default:
			o.drop()
			o.ended = err
		}
	}
	return sandbox.Chunk{}, o.ended
}

func (o *output) read() (link.Frame, error) {
	if o.body == nil {
		if err := o.connect(); err != nil {
			return link.Frame{}, err
		}
	}
	frame, err := o.frames.Next()
	switch {
	case err == nil:
		return frame, nil
	case errors.Is(err, link.ErrFrame):
		return frame, protocol(o.worker, err)
	case errors.Is(err, io.EOF):
		// The worker ended the stream without a word: it is going down.
		err = io.ErrUnexpectedEOF
	}
	if time.Since(o.opened) > lasting {
		o.p.progress()
	}
	return frame, broken(err)
}

// take acts on one frame.
func (o *output) take(frame link.Frame) (sandbox.Chunk, error) {
	switch frame.Kind {
	case link.KindStdout, link.KindStderr:
		n := int64(len(frame.Data))
		if n == 0 || frame.Offset != o.offset {
			return sandbox.Chunk{}, protocol(o.worker, fmt.Errorf("%d bytes of output at %d where %d is next", n, frame.Offset, o.offset))
		}
		if o.budget -= n; o.budget < 0 {
			return sandbox.Chunk{}, task.Fail(task.LimitOutput, "the worker sent more output than any command may write", nil)
		}
		o.offset += n
		o.p.progress()
		return sandbox.Chunk{Fd: int(frame.Kind), Offset: frame.Offset, Data: frame.Data}, nil
	case link.KindStarted, link.KindEnded:
		var state link.CommandState
		if err := json.Unmarshal(frame.Data, &state); err != nil {
			return sandbox.Chunk{}, protocol(o.worker, err)
		}
		if err := o.f.sameCommand(o.id, o.command, state); err != nil {
			return sandbox.Chunk{}, err
		}
		return sandbox.Chunk{}, o.stands(frame.Kind, state)
	case link.KindProblem:
		var p link.Problem
		if err := json.Unmarshal(frame.Data, &p); err != nil {
			return sandbox.Chunk{}, protocol(o.worker, err)
		}
		return sandbox.Chunk{}, p.Failure()
	}
	return sandbox.Chunk{}, protocol(o.worker, fmt.Errorf("frame of kind %d", frame.Kind))
}

// stands keeps the state; a final one ends the stream.
func (o *output) stands(kind byte, state link.CommandState) error {
	o.mu.Lock()
	state.Started = state.Started || o.state.Started // This very call, over several connections.
	o.state = state
	o.mu.Unlock()
	if kind == link.KindStarted {
		return nil
	}
	if state.Phase != sandbox.CommandExited {
		return protocol(o.worker, fmt.Errorf("command %s ended in phase %q", o.command, state.Phase))
	}
	// Read the end of the answer, so that the stream can be used again.
	if _, err := o.frames.Next(); errors.Is(err, io.EOF) {
		o.drop()
	}
	return io.EOF
}

func (o *output) drop() {
	if o.body != nil {
		o.body.Close()
		o.body, o.frames = nil, nil
	}
}

// Status is the command's status; it is final once Next returned io.EOF.
func (o *output) Status() sandbox.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state.Status
}

// Close ends the stream; the command goes on. It may be called while Next
// waits, which then returns.
func (o *output) Close() error {
	o.cancel()
	return nil
}

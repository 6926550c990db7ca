// Package console is the CLI's side of a command in a sandbox: it starts or finds
// the command, hands its output on, feeds it standard input and, on a terminal,
// keeps both ends' sizes and modes in step.
//
// Words. To attach is to see a command that runs and to write to it; to detach is
// to leave it running. The detach keys are Ctrl-P and Ctrl-Q, one after the other.
//
// Not promised: that two who write to one command don't get in each other's way.
package console

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
)

// ErrDetached says that the user left the command running.
var ErrDetached = errors.New("detached")

// Session is one command in one sandbox, seen from here.
type Session struct {
	Client  *client.Client
	Sandbox string
	Write   func(fd int, data []byte) error // gets the output, in order
	Input   io.Reader                       // nil: none is given
	Window  *Window                         // nil: no terminal here
	Skip    bool                            // Input begins with what the command was given already

	id atomic.Pointer[string]
}

// ID is the command's, once it is known.
func (s *Session) ID() (string, bool) {
	if id := s.id.Load(); id != nil {
		return *id, true
	}
	return "", false
}

// Run starts the command, or finds the one of its id, and stays until it has
// ended. A short command without input takes one round trip.
func (s *Session) Run(ctx context.Context, req api.ExecRequest) (api.CommandStatus, error) {
	req.Stdin = s.Input != nil
	req.Wait = !req.Stdin && req.Terminal == nil
	res, err := s.Client.Exec(ctx, s.Sandbox, req)
	if err != nil {
		return res.Command, err
	}
	s.id.Store(&res.Command.ID)
	for _, chunk := range res.Output {
		data, err := chunk.Bytes()
		if err == nil {
			err = s.Write(chunk.Fd, data)
		}
		if err != nil {
			return res.Command, err
		}
	}
	if res.Done {
		return res.Command, nil
	}
	st := res.Command
	if !st.Started && s.Input != nil {
		// Somebody fed it before: go on from what it has.
		if st, err = s.Client.Command(ctx, s.Sandbox, st.ID); err != nil {
			return st, err
		}
	}
	return s.follow(ctx, st, res.Next)
}

// Attach goes on with a command that was started before, from an offset of its
// output on; a negative one is the output's begin, or where a terminal's stands now: what was
// drawn before is for a window of another size.
func (s *Session) Attach(ctx context.Context, command string, offset int64) (api.CommandStatus, error) {
	st, err := s.Client.Command(ctx, s.Sandbox, command)
	if err != nil {
		return st, err
	}
	s.id.Store(&st.ID)
	st.Started = false
	if offset < 0 {
		if offset = 0; st.Terminal {
			offset = st.Output
		}
	}
	if !st.InputOpen {
		s.Input = nil
	}
	if !st.Terminal {
		s.Window = nil
	}
	return s.follow(ctx, st, offset)
}

// follow hands output and input on until the command has ended or the user leaves.
func (s *Session) follow(ctx context.Context, st api.CommandStatus, offset int64) (api.CommandStatus, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if s.Window != nil {
		stop, err := s.Window.open(ctx, st.Started, func(size api.TerminalSize) {
			// One that fails is made good by the next: the output goes on meanwhile.
			_ = s.Client.Resize(ctx, s.Sandbox, st.ID, size)
		})
		if err != nil {
			return st, err
		}
		defer stop()
	}
	if s.Input != nil {
		go func() {
			if err := s.feed(ctx, st); err != nil {
				cancel(err)
			}
		}()
	}
	end, err := s.Client.ExecStream(ctx, s.Sandbox, st.ID, offset, func(f api.Frame) error { return s.Write(int(f.Fd), f.Data) })
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	end.Started = end.Started || st.Started
	return end, err
}

// feed gives the command its input. What is no fault of ours is no error.
func (s *Session) feed(ctx context.Context, st api.CommandStatus) error {
	input := s.Input
	if s.Window != nil && s.Window.Raw() {
		input = &keys{r: input}
	}
	if s.Skip && st.Input > 0 {
		if _, err := io.CopyN(io.Discard, input, st.Input); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	_, err := s.Client.Feed(ctx, s.Sandbox, st.ID, st.Input, input)
	if errors.Is(err, client.ErrInputClosed) || ctx.Err() != nil {
		return nil
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == "input.not_found" {
		return nil // The sandbox was removed; the output tells.
	}
	return err
}

// The detach keys.
const (
	detachFirst  = 'P' - '@'
	detachSecond = 'Q' - '@'
)

// keys passes on what is typed until the detach keys come.
type keys struct {
	r    io.Reader
	held bool // the first key was typed and not passed on yet
}

// Read implements io.Reader. At the detach keys it fails with ErrDetached.
func (k *keys) Read(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, io.ErrShortBuffer
	}
	n, err := k.r.Read(p[1:])
	out := p[:0]
	typed := p[1 : 1+n]
	for _, key := range typed {
		switch {
		case k.held && key == detachSecond:
			return len(out), ErrDetached
		case !k.held && key == detachFirst:
			k.held = true
			continue
		}
		if k.held {
			// At most as many bytes are written as were read, and one that was held.
			k.held = key == detachFirst
			out = append(out, detachFirst)
			if k.held {
				continue
			}
		}
		out = append(out, key)
	}
	if err != nil && k.held {
		k.held, out = false, append(out, detachFirst)
	}
	return len(out), err
}

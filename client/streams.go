package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

// maxEvent bounds one line of an event stream.
const maxEvent = 16 << 20

// WatchTask calls fn for each event of the task whose number is greater than
// after, in order and each once, until the task has ended (nil), fn fails (its
// error), the context ends, or the server stays away longer than the client's
// patience.
func (c *Client) WatchTask(ctx context.Context, id string, after int64, fn func(api.Event) error) error {
	p := c.pace(ctx)
	for {
		err := c.watchOnce(ctx, id, &after, fn, p)
		var stop *stopError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &stop):
			return stop.err
		case ctx.Err() != nil:
			return fmt.Errorf("watch task %s: %w", id, ctx.Err())
		case !worthRetry(err, false) || !p.wait():
			return err
		}
	}
}

// stopError is the caller's own failure: never retried, handed back as it is.
type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }

func (c *Client) watchOnce(ctx context.Context, id string, after *int64, fn func(api.Event) error, p *pace) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.try(ctx, call{method: http.MethodGet, path: pathf("tasks", id, "events"), header: http.Header{
		"Accept":        {"text/event-stream"},
		"Last-Event-ID": {strconv.FormatInt(*after, 10)},
	}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(c.watched(resp.Body, cancel))
	lines.Buffer(make([]byte, 64<<10), maxEvent)
	var kind string
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0:
			if kind == "end" {
				return nil
			}
			if len(data) > 0 {
				if err := deliver(data, after, fn); err != nil {
					return err
				}
				p.reset()
			}
			kind, data = "", data[:0]
		case string(name) == "event":
			kind = string(value)
		case string(name) == "data":
			data = append(data, value...)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("events of %s: %w", id, err)
	}
	return fmt.Errorf("events of %s: %w", id, io.ErrUnexpectedEOF)
}

func deliver(data []byte, after *int64, fn func(api.Event) error) error {
	var ev api.Event
	if err := json.Unmarshal(data, &ev); err != nil {
		return &stopError{fmt.Errorf("event: %w", err)}
	}
	if ev.Seq <= *after {
		return nil
	}
	if err := fn(ev); err != nil {
		return &stopError{err}
	}
	*after = ev.Seq
	return nil
}

// Log says which log to read and how.
type Log struct {
	Stage   string // empty: agent
	Attempt int    // 0: the latest
	Offset  int64  // bytes to leave out
	Follow  bool   // go on until the stage has ended
}

// FollowLogs copies a stage's log to w and returns the offset after the last
// byte written. A stream that was cut goes on where it stopped.
func (c *Client) FollowLogs(ctx context.Context, id string, l Log, w io.Writer) (int64, error) {
	p := c.pace(ctx)
	for {
		err := c.logsOnce(ctx, id, &l, w, p)
		var stop *stopError
		switch {
		case err == nil:
			return l.Offset, nil
		case errors.As(err, &stop):
			return l.Offset, stop.err
		case ctx.Err() != nil:
			return l.Offset, fmt.Errorf("logs of %s: %w", id, ctx.Err())
		case !worthRetry(err, false) || !p.wait():
			return l.Offset, err
		}
	}
}

func (c *Client) logsOnce(ctx context.Context, id string, l *Log, w io.Writer, p *pace) error {
	q := url.Values{"offset": {strconv.FormatInt(l.Offset, 10)}}
	if l.Stage != "" {
		q.Set("stage", l.Stage)
	}
	if l.Attempt > 0 {
		q.Set("attempt", strconv.Itoa(l.Attempt))
	}
	if l.Follow {
		q.Set("follow", "true")
	}
	resp, err := c.try(ctx, call{method: http.MethodGet, path: pathf("tasks", id, "logs"), query: q})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// The attempt is pinned, so that a resumed stream goes on in the same log.
	if n, err := strconv.Atoi(resp.Header.Get("Cofferdam-Attempt")); err == nil && n > 0 {
		l.Attempt = n
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return &stopError{werr}
			}
			l.Offset += int64(n)
			p.reset()
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("logs of %s: %w", id, err)
		}
	}
}

// ExecStream calls fn for the output of a command from offset on, in order and
// each byte once, until the command has ended, and returns its final status. A
// stream that was cut goes on where it stopped.
func (c *Client) ExecStream(ctx context.Context, sandbox, command string, offset int64, fn func(api.Frame) error) (api.CommandStatus, error) {
	p := c.pace(ctx)
	for {
		st, err := c.streamOnce(ctx, sandbox, command, &offset, fn, p)
		var stop *stopError
		switch {
		case err == nil:
			return st, nil
		case errors.As(err, &stop):
			return st, stop.err
		case ctx.Err() != nil:
			return st, fmt.Errorf("output of %s: %w", command, ctx.Err())
		case !worthRetry(err, false) || !p.wait():
			return st, err
		}
	}
}

func (c *Client) streamOnce(ctx context.Context, sandbox, command string, offset *int64, fn func(api.Frame) error, p *pace) (api.CommandStatus, error) {
	var none api.CommandStatus
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.try(ctx, call{
		method: http.MethodGet, path: pathf("sandboxes", sandbox, "exec", command, "output"),
		query: url.Values{"offset": {strconv.FormatInt(*offset, 10)}, "follow": {"true"}},
	})
	if err != nil {
		return none, err
	}
	defer resp.Body.Close()
	frames := api.NewFrameReader(c.watched(resp.Body, cancel))
	for {
		f, err := frames.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			if errors.Is(err, api.ErrFrame) {
				err = &stopError{err}
			}
			return none, fmt.Errorf("output of %s: %w", command, err)
		}
		switch f.Fd {
		case api.FrameStatus:
			return f.Status()
		case api.FrameProblem:
			problem := &api.Problem{}
			if err := json.Unmarshal(f.Data, problem); err != nil {
				return none, &stopError{fmt.Errorf("output of %s: %w", command, err)}
			}
			return none, problem
		case api.FrameStdout, api.FrameStderr:
			if err := pass(f, offset, fn); err != nil {
				return none, err
			}
			p.reset()
		}
	}
}

// pass hands a frame on, without the bytes that were handed on before.
func pass(f api.Frame, offset *int64, fn func(api.Frame) error) error {
	end := f.Offset + int64(len(f.Data))
	if end <= *offset {
		return nil
	}
	if f.Offset < *offset {
		f.Data, f.Offset = f.Data[*offset-f.Offset:], *offset
	}
	if err := fn(f); err != nil {
		return &stopError{err}
	}
	*offset = end
	return nil
}

// watched cancels the request when nothing, not even a heartbeat, came for a
// while: a connection that died without saying so.
func (c *Client) watched(r io.Reader, cancel context.CancelFunc) io.Reader {
	return &quiet{r: r, timer: time.AfterFunc(c.silence, cancel), after: c.silence}
}

type quiet struct {
	r     io.Reader
	timer *time.Timer
	after time.Duration
}

func (q *quiet) Read(p []byte) (int, error) {
	n, err := q.r.Read(p)
	if err != nil {
		q.timer.Stop()
	} else {
		q.timer.Reset(q.after)
	}
	return n, err
}

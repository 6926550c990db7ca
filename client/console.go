package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/cofferdam/cofferdam/api"
)

// Commands lists a sandbox's commands with the processes of each that live now.
func (c *Client) Commands(ctx context.Context, sandbox string) ([]api.CommandStatus, error) {
	var l api.CommandList
	err := c.get(ctx, pathf("sandboxes", sandbox, "exec"), nil, &l)
	return l.Commands, err
}

// Signal sends a signal to a command's whole tree, or to a part of it. It is sent
// again when no answer came, so a program may see it twice.
func (c *Client) Signal(ctx context.Context, sandbox, command string, req api.SignalRequest) error {
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("sandboxes", sandbox, "exec", command, "signal")}, req, nil)
	return err
}

// Resize gives a command's terminal another size.
func (c *Client) Resize(ctx context.Context, sandbox, command string, size api.TerminalSize) error {
	_, err := c.json(ctx, call{method: http.MethodPut, path: pathf("sandboxes", sandbox, "exec", command, "terminal")}, size, nil)
	return err
}

// WriteInput sends a piece of a command's standard input, of which offset bytes
// come before data; close says that nothing follows. It is taken once, however
// often it is sent. The result says how far the input came: not always to data's
// end, since a program may read slowly.
func (c *Client) WriteInput(ctx context.Context, sandbox, command string, offset int64, data []byte, close bool) (api.InputResult, error) {
	var r api.InputResult
	k := call{
		method: http.MethodPut, path: pathf("sandboxes", sandbox, "exec", command, "input"),
		query: url.Values{"offset": {strconv.FormatInt(offset, 10)}, "close": {strconv.FormatBool(close)}},
		kind:  api.InputType, size: int64(len(data)),
		body: func() (io.Reader, error) { return bytes.NewReader(data), nil },
	}
	_, err := c.json(ctx, k, nil, &r)
	return r, err
}

// ErrInputClosed says that a command takes no more input: it has ended, or its
// input was closed.
var ErrInputClosed = errors.New("the command takes no more input")

// Feed copies r to a command's standard input, from offset on, and closes that
// when r ends. It returns the offset after the last byte that was taken, from
// which another Feed can go on. What r gives is sent at once.
func (c *Client) Feed(ctx context.Context, sandbox, command string, offset int64, r io.Reader) (int64, error) {
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return offset, fmt.Errorf("standard input: %w", err)
		}
		if n == 0 && !ended {
			continue
		}
		if offset, err = c.feedPiece(ctx, sandbox, command, offset, buf[:n], ended); err != nil || ended {
			return offset, err
		}
	}
}

// feedPiece sends one piece until all of it was taken.
func (c *Client) feedPiece(ctx context.Context, sandbox, command string, offset int64, data []byte, last bool) (int64, error) {
	end := offset + int64(len(data))
	for {
		res, err := c.WriteInput(ctx, sandbox, command, offset, data, last)
		if err != nil {
			return offset, err
		}
		if res.Taken < offset || res.Taken > end {
			return offset, fmt.Errorf("input of %s: another client writes it too; it is at %d, not between %d and %d", command, res.Taken, offset, end)
		}
		data, offset = data[res.Taken-offset:], res.Taken
		if !res.Open {
			if offset == end && last {
				return offset, nil
			}
			return offset, ErrInputClosed
		}
		if len(data) == 0 && !last {
			return offset, nil
		}
	}
}

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/task"
)

// conn is one connection of one worker.
type conn struct {
	worker  string
	session *link.Session
	client  *http.Client
}

// brokenError says that no answer came: the request may be repeated where that
// is harmless.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return "connection to the worker: " + e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

func broken(err error) error { return &brokenError{err} }

// base is the address of every worker inside its own tunnel.
const base = "http://worker"

// send makes a request and returns an answer whose status is 2xx. The error is
// a *brokenError when there was no answer, and a *task.Failure for every
// answer that is no success.
func (c *conn) send(ctx context.Context, method, path string, body io.Reader, contentType string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return nil, task.Fail(task.InfraInternal, "the request to the worker can't be made", err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, broken(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	var p link.Problem
	if err := link.DecodeAnswer(resp.Body, &p); err != nil {
		if !errors.Is(err, link.ErrProtocol) {
			return nil, broken(err)
		}
		return nil, protocol(c.worker, fmt.Errorf("status %d: %w", resp.StatusCode, err))
	}
	return nil, p.Failure()
}

// exchange sends in as JSON and reads the answer into out; nil leaves either
// away.
func (c *conn) exchange(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	contentType := ""
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return task.Fail(task.InfraInternal, "the request to the worker can't be made", err)
		}
		body, contentType = bytes.NewReader(text), "application/json"
	}
	resp, err := c.send(ctx, method, path, body, contentType)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		// Read to the end, so that the stream can be used again.
		if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 4096)); err != nil {
			return broken(err)
		}
		return nil
	}
	return decode(c.worker, resp, out)
}

// decode reads an answer and closes it.
func decode(worker string, resp *http.Response, out any) error {
	defer resp.Body.Close()
	if err := link.DecodeAnswer(resp.Body, out); err != nil {
		if errors.Is(err, link.ErrProtocol) {
			return protocol(worker, err)
		}
		return broken(err)
	}
	return nil
}

// protocol is the failure for an answer that no worker of ours gives.
func protocol(worker string, err error) error {
	return task.Fail(task.InfraInternal, fmt.Sprintf("worker %s gave an answer that can't be right", worker), err)
}

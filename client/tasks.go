package client

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/api"
)

// UploadBundle sends a git bundle; size is its length in bytes, or -1 when
// unknown. When r is an io.Seeker the upload is repeated if the server went
// away meanwhile.
func (c *Client) UploadBundle(ctx context.Context, r io.Reader, size int64) (api.Blob, error) {
	seeker, seekable := r.(io.Seeker)
	var start int64
	if seekable {
		var err error
		if start, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			return api.Blob{}, fmt.Errorf("bundle: %w", err)
		}
	}
	k := call{method: http.MethodPost, path: pathf("bundles"), kind: "application/x-git-bundle", size: size, once: !seekable}
	k.body = func() (io.Reader, error) {
		if seekable {
			if _, err := seeker.Seek(start, io.SeekStart); err != nil {
				return nil, fmt.Errorf("bundle: %w", err)
			}
		}
		// Buffered and without Close, so that the transport leaves r to its owner.
		return bufio.NewReaderSize(r, 256<<10), nil
	}
	var blob api.Blob
	_, err := c.json(ctx, k, nil, &blob)
	return blob, err
}

// CreateTask asks for a task. The same key with the same request gives the
// task made first, and created is false; with another request it is a problem
// with code input.conflict. An empty key is replaced by a random one.
func (c *Client) CreateTask(ctx context.Context, req api.TaskRequest, key string) (t api.Task, created bool, err error) {
	if key == "" {
		key = "auto-" + newName(26)
	}
	k := call{method: http.MethodPost, path: pathf("tasks"), header: http.Header{"Idempotency-Key": {key}}}
	status, err := c.json(ctx, k, req, &t)
	return t, status == http.StatusCreated, err
}

// Task returns one task.
func (c *Client) Task(ctx context.Context, id string) (api.Task, error) {
	var t api.Task
	err := c.get(ctx, pathf("tasks", id), nil, &t)
	return t, err
}

// Tasks returns a page of at most limit tasks, newest first; 0 is the server's
// default. before is empty for the first page and the page before's Next for
// the following.
func (c *Client) Tasks(ctx context.Context, limit int, before string) (api.TaskList, error) {
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if before != "" {
		q.Set("before", before)
	}
	var l api.TaskList
	err := c.get(ctx, pathf("tasks"), q, &l)
	return l, err
}

// CancelTask asks for the task's end. It returns before the task has ended;
// cancelling a task that has ended changes nothing.
func (c *Client) CancelTask(ctx context.Context, id string) error {
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("tasks", id, "cancel")}, nil, nil)
	return err
}

// Outputs lists what a task left.
func (c *Client) Outputs(ctx context.Context, id string) ([]api.Output, error) {
	var l api.OutputList
	err := c.get(ctx, pathf("tasks", id, "outputs"), nil, &l)
	return l.Outputs, err
}

// RemoveTask removes a task that has ended and all that it left. Its records in
// the audit and its receipt stay. Removing it again changes nothing.
func (c *Client) RemoveTask(ctx context.Context, id string) (api.TaskRemoval, error) {
	var r api.TaskRemoval
	_, err := c.json(ctx, call{method: http.MethodDelete, path: pathf("tasks", id)}, nil, &r)
	return r, err
}

// Output opens one output of a task. Reading to the end fails when the bytes
// are not those of the digest.
func (c *Client) Output(ctx context.Context, id, name string) (io.ReadCloser, api.Blob, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: pathf("tasks", id, "outputs", name)}) //nolint:bodyclose // the caller closes what it reads
	if err != nil {
		return nil, api.Blob{}, err
	}
	blob := api.Blob{Digest: resp.Header.Get("Cofferdam-Digest"), Size: resp.ContentLength}
	return &checked{body: resp.Body, hash: sha256.New(), want: blob.Digest}, blob, nil
}

// Receipt returns the signed receipt of a task that has ended.
func (c *Client) Receipt(ctx context.Context, id string) ([]byte, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: pathf("tasks", id, "receipt")})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("receipt of %s: %w", id, err)
	}
	return data, nil
}

// Egress returns what the gateway decided for the task's sandboxes.
func (c *Client) Egress(ctx context.Context, id string) ([]api.EgressRecord, error) {
	var l api.EgressList
	err := c.get(ctx, pathf("tasks", id, "egress"), nil, &l)
	return l.Records, err
}

// AgentEvents returns a page of what the task's agent said and did, of the
// task's events numbered higher than after.
func (c *Client) AgentEvents(ctx context.Context, id string, after int64) (api.AgentEventList, error) {
	var l api.AgentEventList
	err := c.get(ctx, pathf("tasks", id, "agent"), url.Values{"after": {strconv.FormatInt(after, 10)}}, &l)
	return l, err
}

// checked compares what was read with the digest that was announced.
type checked struct {
	body io.ReadCloser
	hash hash.Hash
	want string
}

func (r *checked) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	r.hash.Write(p[:n])
	if err == io.EOF {
		if got := "sha256:" + hex.EncodeToString(r.hash.Sum(nil)); got != r.want {
			return n, fmt.Errorf("output: the bytes are %s, not %s", got, r.want)
		}
	}
	return n, err
}

func (r *checked) Close() error { return r.body.Close() }

// newName returns n random characters of lowercase base32.
func newName(n int) string {
	b := make([]byte, (n*5+7)/8)
	_, _ = rand.Read(b) // never fails (crypto/rand since Go 1.24)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))[:n]
}

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/task"
)

// tarType is the media type of tar bodies.
const tarType = "application/x-tar"

// Put unpacks a tar stream beneath dir. When the worker goes away meanwhile, the
// stream is sent again if it is an io.Seeker or was not read yet; else Put
// fails with infra.worker_lost.
func (f *Fleet) Put(ctx context.Context, id, dir string, tar io.Reader) error {
	return f.upload(ctx, id, tar, func(ctx context.Context, c *conn, body io.Reader) error {
		return c.put(ctx, sandboxPath(id)+"/put?dir="+url.QueryEscape(dir), body)
	})
}

// upload lends tar to send for one request, and again when the worker went away
// and it can be read again.
func (f *Fleet) upload(ctx context.Context, id string, tar io.Reader, send func(context.Context, *conn, io.Reader) error) error {
	worker, err := f.where(ctx, id)
	if err != nil {
		return err
	}
	start, seekable := int64(0), false
	seeker, ok := tar.(io.Seeker)
	if ok {
		if at, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			start, seekable = at, true
		}
	}
	used := false
	return f.call(ctx, worker, func(ctx context.Context, c *conn) error {
		if used && seekable {
			if _, err := seeker.Seek(start, io.SeekStart); err != nil {
				return task.Fail(task.InfraInternal, "the files to send can't be read again", err)
			}
		}
		source := &source{r: tar}
		err := send(ctx, c, source)
		n, serr := source.detach()
		used = used || n > 0
		if err == nil {
			return nil
		}
		if serr != nil {
			return sourceFailure(serr)
		}
		var b *brokenError
		if errors.As(err, &b) && used && !seekable && ctx.Err() == nil {
			return f.lost(worker, fmt.Errorf("after %d bytes of a stream that can't be read twice: %w", n, b.err))
		}
		return err
	})
}

func sourceFailure(err error) error {
	if failure, ok := errors.AsType[*task.Failure](err); ok {
		return failure
	}
	return task.Fail(task.InputInvalid, "the files to send can't be read", err)
}

func (c *conn) put(ctx context.Context, path string, body io.Reader) error {
	resp, err := c.send(ctx, http.MethodPost, path, body, tarType)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 4096)); err != nil {
		return broken(err)
	}
	return nil
}

// source lends a reader to one request. The HTTP client may go on reading after
// it gave an answer; detach ends that before the reader is used again.
type source struct {
	mu   sync.Mutex
	r    io.Reader
	n    int64
	err  error
	over bool
}

var errDetached = errors.New("the request is over")

func (s *source) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, errDetached
	}
	n, err := s.r.Read(b)
	s.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func (s *source) detach() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.n, s.err
}

// Get packs path as a tar stream. A worker that goes away before the first byte
// is waited for; after that the stream ends with infra.worker_lost.
func (f *Fleet) Get(ctx context.Context, id, path string, exclude []string) (io.ReadCloser, error) {
	text, err := json.Marshal(link.Get{Path: path, Exclude: exclude})
	if err != nil {
		return nil, task.Fail(task.InfraInternal, "the request to the worker can't be made", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var resp *http.Response
	var worker string
	err = f.at(ctx, id, func(ctx context.Context, c *conn) (err error) {
		worker = c.worker
		resp, err = c.send(ctx, http.MethodPost, sandboxPath(id)+"/get", bytes.NewReader(text), "application/json") //nolint:bodyclose // the download closes it
		return err
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return &download{f: f, ctx: ctx, cancel: cancel, worker: worker, resp: resp, left: link.MaxTar}, nil
}

// download is a tar stream from a worker. Its end counts only when the worker
// says in the trailer that it is complete.
type download struct {
	f      *Fleet
	ctx    context.Context
	cancel context.CancelFunc
	worker string
	resp   *http.Response
	left   int64
	err    error
}

func (d *download) Read(b []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	n, err := d.resp.Body.Read(b)
	if d.left -= int64(n); d.left < 0 {
		d.err = task.Fail(task.LimitSize, "the worker sent more than a tar stream may hold", nil)
		return 0, d.err
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		d.err = d.verdict()
	case d.ctx.Err() != nil:
		d.err = d.f.ended(d.ctx, err)
	default:
		d.err = task.Fail(task.InfraWorkerLost, fmt.Sprintf("worker %s went away while files were read", d.worker), err)
	}
	return n, d.err
}

// verdict reads the trailer.
func (d *download) verdict() error {
	text := d.resp.Trailer.Get(link.TrailerOutcome)
	if text == link.OutcomeComplete {
		return io.EOF
	}
	p, err := link.ParseOutcome(text)
	if err != nil {
		return protocol(d.worker, err)
	}
	return p.Failure()
}

func (d *download) Close() error {
	d.cancel()
	return d.resp.Body.Close()
}

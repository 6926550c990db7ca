package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

var _ sandbox.Files = (*Fleet)(nil)

// DoFile carries one operation on a file out. What changes something is given a
// key when it has none, so that it has its effect once however often the worker
// comes back meanwhile.
func (f *Fleet) DoFile(ctx context.Context, id string, op sandbox.FileOp) (sandbox.FileResult, error) {
	if op.Key == "" && op.Kind != sandbox.FileStat && op.Kind != sandbox.FileList {
		op.Key = rand.Text()
	}
	var result sandbox.FileResult
	var worker string
	err := f.at(ctx, id, func(ctx context.Context, c *conn) error {
		worker, result = c.worker, sandbox.FileResult{}
		return c.exchange(ctx, http.MethodPost, sandboxPath(id)+"/files/do", op, &result)
	})
	if err != nil {
		return sandbox.FileResult{}, err
	}
	if len(result.Next) > 0 && bytes.Compare(result.Next, op.After) <= 0 {
		return sandbox.FileResult{}, protocol(worker, errors.New("a list that goes backwards"))
	}
	if (op.Kind == sandbox.FileList || op.Kind == sandbox.FileRemove) != (result.Info == nil) || len(result.Entries) > sandbox.MaxFilePage {
		return sandbox.FileResult{}, protocol(worker, fmt.Errorf("%s of a file: another operation's answer", op.Kind))
	}
	return result, nil
}

// ReadFile gives bytes of a file. A worker that goes away before the first byte
// is waited for; after that the bytes end with infra.worker_lost.
func (f *Fleet) ReadFile(ctx context.Context, id string, r sandbox.FileRead) (sandbox.FileHeader, io.ReadCloser, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return sandbox.FileHeader{}, nil, task.Fail(task.InfraInternal, "the request to the worker can't be made", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &download{f: f, ctx: ctx, cancel: cancel}
	err = f.at(ctx, id, func(ctx context.Context, c *conn) (err error) {
		d.worker = c.worker
		d.resp, err = c.send(ctx, http.MethodPost, sandboxPath(id)+"/files/read", bytes.NewReader(text), "application/json") //nolint:bodyclose // the download closes it
		return err
	})
	if err != nil {
		cancel()
		return sandbox.FileHeader{}, nil, err
	}
	head, err := link.ParseFile[sandbox.FileHeader](d.resp.Header.Get(link.HeaderFile))
	if err == nil && (head.Length < 0 || head.Length > sandbox.MaxFile || head.Offset < 0) {
		err = fmt.Errorf("a file of %d bytes at %d", head.Length, head.Offset)
	}
	if err != nil {
		d.Close()
		return sandbox.FileHeader{}, nil, protocol(d.worker, err)
	}
	d.left = head.Length
	return head, &exactly{download: d}, nil
}

// exactly ends well only after all bytes that were announced.
type exactly struct{ *download }

// Read implements io.Reader.
func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.download.Read(p)
	if errors.Is(err, io.EOF) && e.left > 0 {
		e.err = protocol(e.worker, fmt.Errorf("%d bytes of a file are missing", e.left))
		return n, e.err
	}
	return n, err
}

// WriteFile gives a name the announced bytes, whole or not at all. When the worker
// goes away meanwhile the data is sent again if it is an io.Seeker or was not read
// yet; else WriteFile fails with infra.worker_lost, and the file may have been
// written: the same key asks again.
func (f *Fleet) WriteFile(ctx context.Context, id string, w sandbox.FileWrite, data io.Reader) (sandbox.FileInfo, error) {
	if w.Key == "" {
		w.Key = rand.Text()
	}
	text, err := link.FormatFile(w)
	if err != nil {
		return sandbox.FileInfo{}, task.Fail(task.InfraInternal, "the request to the worker can't be made", err)
	}
	var info sandbox.FileInfo
	err = f.upload(ctx, id, data, func(ctx context.Context, c *conn, body io.Reader) error {
		info = sandbox.FileInfo{}
		resp, err := c.send(ctx, http.MethodPost, sandboxPath(id)+"/files/write?file="+url.QueryEscape(text), body, "application/octet-stream")
		if err != nil {
			return err
		}
		if err := decode(c.worker, resp, &info); err != nil {
			return err
		}
		if info.Size != w.Size || info.SHA256 != w.SHA256 {
			return protocol(c.worker, errors.New("another file was written than was announced"))
		}
		return nil
	})
	return info, err
}

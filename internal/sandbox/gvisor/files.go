package gvisor

import (
	"context"
	"fmt"
	"io"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

var _ sandbox.Files = (*Driver)(nil)

// DoFile implements sandbox.Files.
func (d *Driver) DoFile(ctx context.Context, id string, op sandbox.FileOp) (sandbox.FileResult, error) {
	b, err := d.alive(id)
	if err != nil {
		return sandbox.FileResult{}, err
	}
	r, err := b.conn.FileDo(ctx, guest.FileOp{
		Kind: string(op.Kind), Key: op.Key, Path: op.Path, To: op.To, User: op.User, Follow: op.Follow, Digest: op.Digest,
		NoReplace: op.NoReplace, Recursive: op.Recursive, Mode: op.Mode, After: op.After, Limit: op.Limit,
	})
	if err != nil {
		return sandbox.FileResult{}, b.failure(err)
	}
	out := sandbox.FileResult{Next: r.Next}
	if r.Info != nil {
		info := sandbox.FileInfo(*r.Info)
		out.Info = &info
	}
	for _, e := range r.Entries {
		out.Entries = append(out.Entries, sandbox.FileInfo(e))
	}
	return out, nil
}

// ReadFile implements sandbox.Files.
func (d *Driver) ReadFile(ctx context.Context, id string, r sandbox.FileRead) (sandbox.FileHeader, io.ReadCloser, error) {
	b, err := d.alive(id)
	if err != nil {
		return sandbox.FileHeader{}, nil, err
	}
	head, body, err := b.conn.FileRead(ctx, guest.FileReadRequest(r))
	if err != nil {
		return sandbox.FileHeader{}, nil, b.failure(err)
	}
	if head.Length > sandbox.MaxFile {
		body.Close()
		return sandbox.FileHeader{}, nil, task.Fail(task.LimitSize, fmt.Sprintf("length: the file has %d bytes; at most %d are read at once, so give offset and length",
			head.Length, int64(sandbox.MaxFile)), nil)
	}
	return sandbox.FileHeader{Info: sandbox.FileInfo(head.Info), Offset: head.Offset, Length: head.Length}, download{box: b, ReadCloser: body}, nil
}

// WriteFile implements sandbox.Files.
func (d *Driver) WriteFile(ctx context.Context, id string, w sandbox.FileWrite, data io.Reader) (sandbox.FileInfo, error) {
	b, err := d.alive(id)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	if w.Size > sandbox.MaxFile {
		return sandbox.FileInfo{}, task.Fail(task.LimitSize, fmt.Sprintf("size %d: the most is %d", w.Size, int64(sandbox.MaxFile)), nil)
	}
	info, err := b.conn.FileWrite(ctx, guest.FileWriteRequest(w), data)
	return sandbox.FileInfo(info), b.failure(err)
}

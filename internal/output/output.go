// Package output keeps what sandboxes left, and what requesters sent, by its
// hash: bytes in, a digest out, and the same bytes back or an error.
//
// Words. A blob is a sequence of bytes whose name is its digest, "sha256:" and
// 64 hex digits. The spool is where a blob is collected before its name is
// known; a spool file has no name of its own, so a crash leaves none behind.
//
// Everything that comes in is hostile: it is never interpreted here, its size is
// limited while it comes, and memory does not grow with it. What is read is
// hashed again, so a blob that changed on disk ends in an error instead of an
// end of file.
//
// When Put returns, file and folders were flushed to disk. Not promised: that a
// reader which stops before the end has seen unchanged bytes.
//
// A blob is removed when nothing refers to it (Remove). Who refers to it is not
// known here; so that one which was just stored is not removed before its
// reference is on record, Put pins it until Settle, or for a day.
package output

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/gcerrors"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Blobs is a folder of blobs. It is safe for concurrent use, but belongs to one
// program.
type Blobs struct {
	dir    string
	bucket *blob.Bucket

	mu   sync.Mutex
	pins map[task.Digest]pin
	now  func() time.Time
}

// Open opens the folder, or makes it. Half-written files of a program that was
// killed are removed.
func Open(dir string) (*Blobs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, storage(dir, "can't be opened", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storage(dir, "can't be made", err)
	}
	if err := sweep(dir); err != nil {
		return nil, storage(dir, "can't be cleaned", err)
	}
	bucket, err := fileblob.OpenBucket(dir, &fileblob.Options{
		DirFileMode: 0o700, NoTempDir: true, Metadata: fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, storage(dir, "can't be opened", err)
	}
	return &Blobs{dir: dir, bucket: bucket, pins: map[task.Digest]pin{}, now: time.Now}, nil
}

// sweep removes temporary files; their names end so, and a blob's never does.
func sweep(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".tmp") {
			return err
		}
		return os.Remove(path)
	})
}

// Close closes the folder.
func (b *Blobs) Close() error { return b.bucket.Close() }

// ParseDigest says whether text is a digest, and returns it as one.
func ParseDigest(text string) (task.Digest, error) {
	if _, ok := hexOf(task.Digest(text)); !ok {
		return "", task.Fail(task.InputInvalid, `a digest is "sha256:" and 64 lowercase hex digits`, nil)
	}
	return task.Digest(text), nil
}

func hexOf(d task.Digest) (string, bool) {
	h, ok := strings.CutPrefix(string(d), "sha256:")
	if !ok || len(h) != 2*sha256.Size || strings.Trim(h, "0123456789abcdef") != "" {
		return "", false
	}
	return h, true
}

// key is where a blob stands in the bucket.
func key(d task.Digest) (string, error) {
	h, ok := hexOf(d)
	if !ok {
		_, err := ParseDigest(string(d))
		return "", err
	}
	return "sha256/" + h[:2] + "/" + h, nil
}

// Put stores at most limit bytes of r and returns their digest and size. More is a
// *task.Failure with task.LimitSize, and nothing is kept. The same bytes again
// are kept once. An error of r is returned wrapped.
func (b *Blobs) Put(ctx context.Context, r io.Reader, limit int64) (task.Digest, int64, error) {
	spool, err := newSpool(b.dir)
	if err != nil {
		return "", 0, b.failure(err)
	}
	defer spool.Close()
	sum := sha256.New()
	in := io.LimitReader(cancellable{ctx, r}, maxRead(limit))
	size, err := io.Copy(io.MultiWriter(spoolWriter{spool}, sum), in)
	var own *spoolError
	switch {
	case errors.As(err, &own):
		return "", 0, b.failure(own.err)
	case err != nil:
		return "", 0, fmt.Errorf("what is to be stored: %w", err)
	case size > limit:
		return "", 0, task.Fail(task.LimitSize, fmt.Sprintf("it is larger than the %d bytes that are allowed", limit), nil)
	}
	d := task.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil)))
	b.pin(d)
	if b.whole(ctx, d, size) {
		return d, size, nil
	}
	_, err = spool.Seek(0, io.SeekStart)
	if err == nil {
		err = b.keep(ctx, d, spool)
	}
	if err != nil {
		b.Settle(d)
		return "", 0, b.failure(err)
	}
	return d, size, nil
}

// maxRead is one byte more than may come, to see that more came.
func maxRead(limit int64) int64 {
	if limit < 0 {
		return 1
	}
	if limit == 1<<63-1 {
		return limit
	}
	return limit + 1
}

// whole says whether the blob is there and unchanged; one that is not is
// written anew.
func (b *Blobs) whole(ctx context.Context, d task.Digest, size int64) bool {
	have, err := b.Stat(ctx, d)
	if err != nil || have != size {
		return false
	}
	r, err := b.Open(ctx, d)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close()) == nil
}

// keep copies the spool under the blob's name and returns when it is on disk.
func (b *Blobs) keep(ctx context.Context, d task.Digest, from io.Reader) error {
	name, err := key(d)
	if err != nil {
		return err
	}
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	var file *os.File
	w, err := b.bucket.NewWriter(ctx, name, &blob.WriterOptions{
		ContentType:                 "application/octet-stream",
		DisableContentTypeDetection: true,
		BeforeWrite: func(as func(any) bool) error {
			if !as(&file) {
				return errors.New("not a bucket of files")
			}
			return file.Chmod(0o600)
		},
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, from)
	if err == nil && file != nil {
		err = file.Sync()
	}
	if err != nil {
		abort()
		_ = w.Close() // removes what was written, and says only that it was aborted
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	path := filepath.Join(b.dir, filepath.FromSlash(name))
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path)), b.dir} {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Stat returns the blob's size; a *task.Failure with task.InputNotFound when
// there is none.
func (b *Blobs) Stat(ctx context.Context, d task.Digest) (int64, error) {
	name, err := key(d)
	if err != nil {
		return 0, err
	}
	a, err := b.bucket.Attributes(ctx, name)
	if err != nil {
		return 0, b.lookFailure(d, err)
	}
	return a.Size, nil
}

// Open reads the blob. Where its bytes are not those that were stored, the last
// Read returns a *task.Failure with task.InfraStorage instead of io.EOF.
func (b *Blobs) Open(ctx context.Context, d task.Digest) (io.ReadCloser, error) {
	name, err := key(d)
	if err != nil {
		return nil, err
	}
	r, err := b.bucket.NewReader(ctx, name, nil)
	if err != nil {
		return nil, b.lookFailure(d, err)
	}
	return &reader{from: r, digest: d, sum: sha256.New()}, nil
}

func (b *Blobs) lookFailure(d task.Digest, err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return task.Fail(task.InputNotFound, "no blob "+string(d), nil)
	}
	return b.failure(err)
}

// failure gives an error of the disk a reason code. Failures and ends of
// contexts pass as they are.
func (b *Blobs) failure(err error) error {
	var f *task.Failure
	switch {
	case err == nil, errors.As(err, &f), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return task.Fail(task.InfraStorage, "the disk that holds "+b.dir+" is full; make room there. Nothing half-written was kept", err)
	}
	return storage(b.dir, "failed", err)
}

func storage(dir, what string, err error) error {
	return task.Fail(task.InfraStorage, "the folder of blobs "+dir+" "+what, err)
}

// reader hashes what it reads.
type reader struct {
	from   io.ReadCloser
	digest task.Digest
	sum    hash.Hash
}

// Read fails at the end of bytes that are not the blob's.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.sum.Write(p[:n])
	if err == nil || !errors.Is(err, io.EOF) {
		return n, err
	}
	if have := "sha256:" + hex.EncodeToString(r.sum.Sum(nil)); have != string(r.digest) {
		return n, task.Fail(task.InfraStorage, "the blob "+string(r.digest)+" was changed on disk; restore it from a backup", errors.New("its hash is "+have))
	}
	return n, io.EOF
}

// Close ends the reading.
func (r *reader) Close() error { return r.from.Close() }

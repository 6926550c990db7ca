package output

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/cofferdam/cofferdam/internal/task"
)

// pinLife is how long a pin holds that nobody settles, such as that of a bundle
// which was uploaded and never used.
const pinLife = 24 * time.Hour

// pin keeps a blob that may have no reference on record yet.
type pin struct {
	count int
	until time.Time
}

func (b *Blobs) pin(d task.Digest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for old, p := range b.pins {
		if !b.now().Before(p.until) {
			delete(b.pins, old)
		}
	}
	b.pins[d] = pin{b.pins[d].count + 1, b.now().Add(pinLife)}
}

// Settle takes one pin away: the reference to the blob is on record, or there
// will be none.
func (b *Blobs) Settle(d task.Digest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pins[d]; p.count > 1 {
		b.pins[d] = pin{p.count - 1, p.until}
		return
	}
	delete(b.pins, d)
}

// Hold pins a blob that is there, so that a reference to it can be written down;
// a *task.Failure with task.InputNotFound when it is not. Settle ends it.
func (b *Blobs) Hold(ctx context.Context, d task.Digest) error {
	b.pin(d)
	if _, err := b.Stat(ctx, d); err != nil {
		b.Settle(d)
		return err
	}
	return nil
}

// Outcome says what became of a blob that was to be removed. The zero Outcome is
// that it stays for now.
type Outcome uint8

// The outcomes.
const (
	Pinned     Outcome = iota // it was just stored; ask again
	Referenced                // it stays, since something refers to it
	Gone                      // it is not there
)

// Remove removes the blob unless it is pinned or referenced says that something
// refers to it. size is what was freed. A blob that is not there is Gone.
func (b *Blobs) Remove(ctx context.Context, d task.Digest, referenced func(context.Context) (bool, error)) (o Outcome, size int64, err error) {
	name, err := key(d)
	if err != nil {
		return Pinned, 0, err
	}
	b.mu.Lock() // Put pins before it looks whether the blob is there
	defer b.mu.Unlock()
	if p, ok := b.pins[d]; ok && b.now().Before(p.until) {
		return Pinned, 0, nil
	}
	if used, err := referenced(ctx); err != nil {
		return Pinned, 0, err
	} else if used {
		return Referenced, 0, nil
	}
	a, err := b.bucket.Attributes(ctx, name)
	if err == nil {
		size = a.Size
		err = b.bucket.Delete(ctx, name)
	}
	if err != nil && gcerrors.Code(err) == gcerrors.NotFound {
		return Gone, 0, nil
	}
	if err == nil {
		err = syncDir(filepath.Dir(filepath.Join(b.dir, filepath.FromSlash(name))))
	}
	if err != nil {
		return Pinned, 0, b.failure(err)
	}
	return Gone, size, nil
}

// Aged lists the blobs that were stored before a moment.
func (b *Blobs) Aged(ctx context.Context, before time.Time, yield func(task.Digest) error) error {
	list := b.bucket.List(&blob.ListOptions{Prefix: "sha256/"})
	for {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return b.failure(err)
		}
		d := task.Digest("sha256:" + o.Key[strings.LastIndexByte(o.Key, '/')+1:])
		if _, ok := hexOf(d); !ok || !o.ModTime.Before(before) {
			continue
		}
		if err := yield(d); err != nil {
			return err
		}
	}
}

package steps

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/cofferdam/cofferdam/internal/stage/steps/tree"
	"github.com/cofferdam/cofferdam/internal/task"
)

// inbox is where files are put for our own scripts. A script moves it away as
// its first act, so that a repeated put never meets a script that reads.
const inbox = "/tmp/cofferdam-in"

// putBlob puts the stored bytes into the run's inbox under name.
func (r *run) putBlob(ctx context.Context, digest task.Digest, name string) error {
	// The tar header wants the size first, which only reading tells.
	size, err := r.blobSize(ctx, digest)
	if err != nil {
		return err
	}
	from, err := r.Blobs.Open(ctx, digest)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	return r.put(ctx, func(w *tar.Writer) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(w, from)
		return err
	})
}

func (r *run) blobSize(ctx context.Context, digest task.Digest) (int64, error) {
	from, err := r.Blobs.Open(ctx, digest)
	if err != nil {
		return 0, err
	}
	size, err := io.Copy(io.Discard, from)
	return size, errors.Join(err, from.Close())
}

// put streams what fill writes into the run's inbox.
func (r *run) put(ctx context.Context, fill func(*tar.Writer) error) error {
	pr, pw := io.Pipe()
	filled := make(chan error, 1)
	go func() {
		// Headers are small, and each write is a trip.
		buffered := bufio.NewWriterSize(pw, 64<<10)
		w := tar.NewWriter(buffered)
		err := fill(w)
		if err == nil {
			err = w.Close()
		}
		if err == nil {
			err = buffered.Flush()
		}
		pw.CloseWithError(err)
		filled <- err
	}()
	err := r.Sandboxes.Put(ctx, r.row.Sandbox, inbox, pr)
	pr.CloseWithError(errors.New("the sandbox took no more"))
	fillErr := <-filled
	if err != nil {
		// The filler's failure names the cause when it was first.
		if failure := new(task.Failure); errors.As(fillErr, &failure) {
			return fillErr
		}
		return err
	}
	return fillErr
}

// getFile gives the bytes of one regular file of the run's sandbox to take.
func (r *run) getFile(ctx context.Context, file string, take func(io.Reader) error) error {
	return tree.File(ctx, r.Sandboxes, r.row.Sandbox, file, take)
}

package output

import (
	"context"
	"errors"
	"io"
	"os"
)

// newSpool makes a file without a name beside the blobs.
func newSpool(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "spool-*.tmp")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// spoolError is an error of our disk, apart from one of what is read.
type spoolError struct{ err error }

func (e *spoolError) Error() string { return e.err.Error() }
func (e *spoolError) Unwrap() error { return e.err }

// spoolWriter marks errors as the spool's.
type spoolWriter struct{ to io.Writer }

func (w spoolWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err != nil {
		return n, &spoolError{err}
	}
	return n, nil
}

// cancellable stops reading when the context ends.
type cancellable struct {
	ctx  context.Context //nolint:containedctx // of the one call that reads
	from io.Reader
}

func (c cancellable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.from.Read(p)
}

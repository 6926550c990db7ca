package worker

import (
	"io"
	"net/http"
	"path"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (d *Door) put(w http.ResponseWriter, r *http.Request) error {
	dir := r.URL.Query().Get("dir")
	if !path.IsAbs(dir) {
		return task.Fail(task.InputInvalid, "the folder is not an absolute path", nil)
	}
	body := http.MaxBytesReader(w, r.Body, link.MaxTar)
	if err := d.opts.Driver.Put(r.Context(), r.PathValue("id"), dir, body); err != nil {
		// The rest is read, so that the other end sees the answer and not a broken
		// connection.
		if _, derr := io.Copy(io.Discard, body); derr != nil && r.Context().Err() == nil {
			d.opts.Log.Debug("rest of an upload", "error", derr)
		}
		return err
	}
	// The archive's end comes before the stream's: without reading that too, the
	// stream could not be used again.
	if _, err := io.Copy(io.Discard, body); err != nil {
		return task.Fail(task.InputInvalid, "the tar stream broke off", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *Door) get(w http.ResponseWriter, r *http.Request) error {
	var req link.Get
	if err := read(r, &req); err != nil {
		return err
	}
	if !path.IsAbs(req.Path) {
		return task.Fail(task.InputInvalid, "the path is not absolute", nil)
	}
	tar, err := d.opts.Driver.Get(r.Context(), r.PathValue("id"), req.Path, req.Exclude)
	if err != nil {
		return err
	}
	defer tar.Close()
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Trailer", link.TrailerOutcome)
	w.WriteHeader(http.StatusOK)
	outcome := link.OutcomeComplete
	// onlyWriter keeps io.Copy from asking the response to read for itself in
	// small pieces.
	if _, err := io.CopyBuffer(onlyWriter{w}, onlyReader{tar}, make([]byte, 64<<10)); err != nil {
		if r.Context().Err() != nil {
			return err
		}
		outcome = link.FormatOutcome(link.ProblemOf(err))
	}
	w.Header().Set(link.TrailerOutcome, outcome)
	return nil
}

type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

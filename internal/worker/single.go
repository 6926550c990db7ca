package worker

import (
	"io"
	"net/http"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// files is the driver as far as it works on single files.
func (d *Door) files() (sandbox.Files, error) {
	f, ok := d.opts.Driver.(sandbox.Files)
	if !ok {
		return nil, task.Fail(task.InfraMachine, "this machine's sandboxes give no single files", nil)
	}
	return f, nil
}

// doFile carries one operation on a file out.
func (d *Door) doFile(w http.ResponseWriter, r *http.Request) error {
	var op sandbox.FileOp
	if err := read(r, &op); err != nil {
		return err
	}
	f, err := d.files()
	if err != nil {
		return err
	}
	result, err := f.DoFile(r.Context(), r.PathValue("id"), op)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, result)
}

// readFile sends bytes of a file.
func (d *Door) readFile(w http.ResponseWriter, r *http.Request) error {
	var req sandbox.FileRead
	if err := read(r, &req); err != nil {
		return err
	}
	f, err := d.files()
	if err != nil {
		return err
	}
	head, body, err := f.ReadFile(r.Context(), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := link.FormatFile(head)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(link.HeaderFile, text)
	w.Header().Set("Trailer", link.TrailerOutcome)
	w.WriteHeader(http.StatusOK)
	outcome := link.OutcomeComplete
	if _, err := io.CopyBuffer(onlyWriter{w}, onlyReader{body}, make([]byte, 64<<10)); err != nil {
		if r.Context().Err() != nil {
			return err
		}
		outcome = link.FormatOutcome(link.ProblemOf(err))
	}
	w.Header().Set(link.TrailerOutcome, outcome)
	return nil
}

// writeFile takes a file.
func (d *Door) writeFile(w http.ResponseWriter, r *http.Request) error {
	req, err := link.ParseFile[sandbox.FileWrite](r.URL.Query().Get("file"))
	if err != nil {
		return task.Fail(task.InputInvalid, "the announcement of the file can't be read", err)
	}
	f, err := d.files()
	if err != nil {
		return err
	}
	body := http.MaxBytesReader(w, r.Body, sandbox.MaxFile)
	info, err := f.WriteFile(r.Context(), r.PathValue("id"), req, body)
	// The rest is read, so that the other end sees the answer and not a broken
	// connection.
	if _, derr := io.Copy(io.Discard, body); derr != nil && err == nil {
		return task.Fail(task.InputInvalid, "the file broke off", derr)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, info)
}

package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/output/glob"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/paced"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/server/translate"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Removal removes tasks that have ended, and remembers which it did. Implemented
// by output/retention and store.
type Removal interface {
	Remove(ctx context.Context, id, by string) (task.Removal, error)
	Removed(ctx context.Context, id string) (task.Removed, error)
}

func (s *Server) describeOutputs() {
	register(s, operation.Operation{
		ID: "list-outputs", Method: http.MethodGet, Path: "/v1/tasks/{id}/outputs", Access: operation.Users,
		Summary: "What a task left",
	}, s.listOutputs)
	register(s, operation.Operation{
		ID: "get-output", Method: http.MethodGet, Path: "/v1/tasks/{id}/outputs/{name}", Access: operation.Users, Kind: "application/octet-stream",
		Summary: "The bytes of one output, or a range of them",
	}, s.getOutput)
	register(s, operation.Operation{
		ID: "remove-task", Method: http.MethodDelete, Path: "/v1/tasks/{id}", Access: operation.Users, Status: http.StatusOK,
		Summary: "Remove a task that has ended and all that it left; its records in the audit and its receipt stay",
	}, s.removeTask)
}

type outputListOutput struct{ Body api.OutputList }

func (s *Server) listOutputs(ctx context.Context, in *taskPath) (*outputListOutput, error) {
	t, err := s.task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &outputListOutput{api.OutputList{Task: t.ID, Outputs: translate.Task(t).Outputs}}, nil
}

type outputPath struct {
	ID    string `path:"id" maxLength:"64"`
	Name  string `path:"name" maxLength:"512"`
	Range string `header:"Range" maxLength:"128" doc:"One range, bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT."`
}

func (s *Server) getOutput(ctx context.Context, in *outputPath) (*raw, error) {
	t, err := s.task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(t.Outputs, func(o task.Output) bool { return o.Name == in.Name })
	if at < 0 {
		return nil, problem.NotFound("output", in.Name)
	}
	o := t.Outputs[at]
	if o.Removed != nil {
		return nil, task.Fail(task.InputNotFound, "the bytes of output "+problem.Quote(o.Name)+" were removed on "+o.Removed.UTC().Format(time.DateOnly)+"; outputs are kept for a time that the operator sets", nil)
	}
	first, length, part, err := byteRange(in.Range, o.Size)
	if err != nil {
		return nil, err
	}
	blob, err := s.need.Blobs.Open(ctx, o.Digest)
	if err != nil {
		return nil, err
	}
	header := map[string]string{
		"Accept-Ranges":       "bytes",
		"Content-Length":      strconv.FormatInt(length, 10),
		"Content-Disposition": attachment(t.ID + "-" + o.Name),
		"Cofferdam-Digest":    string(o.Digest), // of all of it
	}
	status := http.StatusOK
	if part {
		status = http.StatusPartialContent
		header["Content-Range"] = fmt.Sprintf("bytes %d-%d/%d", first, first+length-1, o.Size)
	} else {
		header["Digest"] = digestHeader(o.Digest)
	}
	return s.streamAs(status, "application/octet-stream", header, func(_ context.Context, w *paced.Answer) error {
		defer blob.Close()
		if _, err := io.CopyN(io.Discard, blob, first); err != nil {
			return err
		}
		n, err := io.Copy(w, io.LimitReader(blob, length))
		if err == nil && n != length {
			err = fmt.Errorf("output %s of %s: %d bytes, expected %d", o.Name, t.ID, n, length)
		}
		if err == nil && !part { // the end of the blob is where a change on disk is told
			_, err = io.Copy(io.Discard, blob)
		}
		return err
	}), nil
}

// byteRange reads a Range header of one range (RFC 9110 §14.2). None is all.
func byteRange(text string, size int64) (first, length int64, part bool, err error) {
	if text == "" {
		return 0, size, false, nil
	}
	bad := func(why string) (int64, int64, bool, error) {
		return 0, 0, false, problem.Invalid("header.Range", why)
	}
	spec, ok := strings.CutPrefix(text, "bytes=")
	from, to, dash := strings.Cut(spec, "-")
	if !ok || !dash || strings.Trim(from+to, "0123456789") != "" || from == "" && to == "" {
		return bad("must be one range of bytes, such as bytes=0-99")
	}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 1<<63 - 1
		}
		return n
	}
	last := size - 1
	switch {
	case from == "":
		first = max(0, size-number(to))
	default:
		first = number(from)
		if to != "" {
			last = min(last, number(to))
		}
	}
	if first > last {
		return bad(fmt.Sprintf("has no byte of the output, which has %d", size))
	}
	return first, last - first + 1, true, nil
}

type removalOutput struct{ Body api.TaskRemoval }

func (s *Server) removeTask(ctx context.Context, in *taskPath) (*removalOutput, error) {
	id := in.ID
	t, err := s.task(ctx, id)
	if err != nil {
		// Removed before: what a crash left is done now, and the answer is the first.
		was, removedErr := s.removed(ctx, id)
		if removedErr != nil {
			return nil, err
		}
		id = was.Task
	} else if !t.State.Ended() {
		return nil, task.Fail(task.InputConflict, "task "+t.ID+" has not ended; cancel it first (cofferdam task rm --force does)", nil)
	}
	r, err := s.need.Removal.Remove(ctx, id, who(ctx).User)
	if err != nil {
		return nil, err
	}
	return &removalOutput{api.TaskRemoval{
		Task: r.Task, RemovedBy: r.By, RemovedAt: r.At, Freed: r.Freed, FreedBytes: r.FreedBytes, Shared: r.Shared, Later: r.Later,
		Stays: []string{
			"the records of the task in the audit: who asked, which repository and commit, what was reachable and lent, digests and names of outputs",
			"its receipt, which verifies as before (cofferdam task receipt " + r.Task + ")",
			"its id, owner and the digest of its idempotency key, which makes no other task",
		},
	}}, nil
}

// removed tells of a removed task that the principal might have seen.
func (s *Server) removed(ctx context.Context, id string) (task.Removed, error) {
	if !taskID.MatchString(id) {
		return task.Removed{}, problem.NotFound("task", id)
	}
	r, err := s.need.Removal.Removed(ctx, id)
	if isNotFound(err) || err == nil && !who(ctx).May(r.Owner) {
		return task.Removed{}, problem.NotFound("task", id)
	}
	return r, err
}

// gone says of an unknown task that it was removed, to whom it concerned.
func (s *Server) gone(ctx context.Context, id string, err error) error {
	r, removedErr := s.removed(ctx, id)
	if removedErr != nil {
		return err
	}
	return task.Fail(task.InputNotFound, fmt.Sprintf("task %s was removed by %s on %s; its receipt stays (cofferdam task receipt %s)", id, problem.Quote(r.By), r.At.UTC().Format(time.DateOnly), id), nil)
}

// checkOutputs refuses what can't be kept, by field.
func checkOutputs(spec task.Spec) error {
	p := spec.Report
	switch {
	case p == "":
	case strings.HasPrefix(p, "/") || path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return problem.Invalid("body.report", "must be a path within the workspace, clean and relative, such as build/report.xml")
	case spec.Verify == "" && !mayBeFilled(spec):
		return problem.Invalid("body.report", "is what the verify command writes; give one")
	}
	if _, err := glob.Compile(spec.Files); err != nil {
		return problem.Invalid("body.files", err.Error())
	}
	return nil
}

// mayBeFilled says whether a repository may say what the request leaves out.
func mayBeFilled(spec task.Spec) bool { return spec.Project != "" }

package steps

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/cofferdam/cofferdam/internal/output/evidence"
	"github.com/cofferdam/cofferdam/internal/output/report"
	"github.com/cofferdam/cofferdam/internal/stage/steps/tree"
	"github.com/cofferdam/cofferdam/internal/stage/steps/verified"
	"github.com/cofferdam/cofferdam/internal/task"
)

// testReport reads the report that the task names, where the verify command wrote
// it. A report that is missing, too large or no report is told and no failure:
// the exit code stands for it.
func (r *run) testReport(ctx context.Context, t *evidence.Run) error {
	if t.Path == "" {
		return nil
	}
	digest, size, err := r.reportFile(ctx, t.Path)
	switch {
	case hasReason(err, task.LimitSize):
		t.Problem = string(task.LimitSize) + ": " + report.ErrSize.Error()
		return nil
	case err != nil:
		return err
	case digest == "":
		t.Problem = "the verify command left no file of this name"
		return nil
	}
	from, err := r.Blobs.Open(ctx, digest)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	name, flags := verified.Report(t, from)
	if size == 0 {
		return nil
	}
	return r.addOutput(ctx, task.Output{Name: name, Kind: "report", Digest: digest, Size: size, Flags: flags})
}

// reportFile keeps the bytes of the file of the report. A file that is not there, or
// is none, is told from a sandbox that is gone: its digest is empty.
func (r *run) reportFile(ctx context.Context, path string) (digest task.Digest, size int64, err error) {
	argv := []string{"sh", "-c", `test -f "$1" && ! test -L "$1"`, "report", "/workspace/" + path}
	code := r.row.ExitCode
	res, err := r.exec(ctx, command{id: "verify-report", argv: argv, env: []string{"LC_ALL=C"}, timeout: time.Minute}, 0, nil)
	r.row.ExitCode = code
	if err != nil || res.ExitCode != 0 {
		return "", 0, err
	}
	// What the tests left running may take it away again: the sandbox was there a
	// moment ago, so what is missing is the file.
	fleet := r.Sandboxes
	if outer, ok := fleet.(present); ok {
		fleet = outer.Sandboxes
	}
	err = tree.File(ctx, fleet, r.row.Sandbox, "/workspace/"+path, func(from io.Reader) (err error) {
		digest, size, err = r.Blobs.Put(ctx, from, report.MaxSize)
		return err
	})
	var failure *task.Failure
	if errors.As(err, &failure) && slices.Contains([]task.Reason{task.InputNotFound, task.InputInvalid, task.ExportFailed}, failure.Reason) {
		return "", 0, nil
	}
	return digest, size, err
}

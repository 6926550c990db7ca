package steps

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/cofferdam/cofferdam/internal/output/junit"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Flags of a test report.
const (
	flagFailing   = "failing"   // it has failures or errors
	flagDisagrees = "disagrees" // it has some although the verify command ended well
	flagUnread    = "unread"    // it is kept, and can't be understood
)

// junitReport is what the verify command's own report says. The exit code is
// the judge; this is what it says beside.
type junitReport struct {
	Path string `json:"path"`
	junit.Report
	Problem string `json:"problem,omitempty"` // why there are no counts
}

// testReport keeps the report that the task names, where the verify command
// wrote it. A report that is missing, too large or no report is told and no
// failure: the exit code stands for it.
func (r *run) testReport(ctx context.Context, exit int) (*junitReport, error) {
	path := r.task.Spec.Report
	if path == "" {
		return nil, nil
	}
	out := &junitReport{Path: path}
	text, there, err := r.reportFile(ctx, path)
	if err != nil {
		return nil, err
	}
	if !there {
		out.Problem = "the verify command left no file of this name"
	}
	var flags []string
	if out.Problem == "" {
		out.Report, err = junit.Parse(bytes.NewReader(text))
		switch {
		case errors.Is(err, junit.ErrSize):
			out.Problem = string(task.LimitSize) + ": " + err.Error()
		case err != nil:
			out.Problem = err.Error()
			flags = append(flags, flagUnread)
		case out.Failures+out.Errors > 0:
			flags = append(flags, flagFailing)
			if exit == 0 {
				flags = append(flags, flagDisagrees)
				r.note("the verify command ended with 0, and its report has failures")
			}
		}
	}
	if out.Problem != "" {
		r.note("the report " + listed([]string{path}) + ": " + out.Problem + "; the exit code stands for it")
	}
	if len(text) == 0 || len(text) > junit.MaxSize {
		return out, nil
	}
	_, err = r.keep(ctx, "report.junit", "report", bytes.NewReader(text), junit.MaxSize, flags...)
	return out, err
}

// reportFile reads the file of the report as far as one may be long. A file that
// is not there, or is none, is told from a sandbox that is gone.
func (r *run) reportFile(ctx context.Context, path string) (text []byte, there bool, err error) {
	argv := []string{"sh", "-c", `test -f "$1" && ! test -L "$1"`, "report", "/workspace/" + path}
	res, err := r.exec(ctx, command{id: "verify-report", argv: argv, env: []string{"LC_ALL=C"}, timeout: time.Minute}, 0, nil)
	if err != nil || res.ExitCode != 0 {
		return nil, false, err
	}
	// What the tests left running may take it away again: the sandbox was there a
	// moment ago, so what is missing is the file.
	fleet := r.Sandboxes
	if outer, ok := fleet.(present); ok {
		fleet = outer.Sandboxes
	}
	err = fileOf(ctx, fleet, r.row.Sandbox, "/workspace/"+path, func(from io.Reader) (err error) {
		text, err = io.ReadAll(io.LimitReader(from, junit.MaxSize+1))
		return err
	})
	var failure *task.Failure
	if errors.As(err, &failure) && slices.Contains([]task.Reason{task.InputNotFound, task.InputInvalid, task.ExportFailed}, failure.Reason) {
		return nil, false, nil
	}
	return text, err == nil, err
}

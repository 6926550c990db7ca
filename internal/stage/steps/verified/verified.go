// Package verified has the documents that the verify stage keeps, and how they are
// read back: each run of the verify command, the report, the evidence. It reaches
// nothing but the bytes that it is given.
//
// Words. The runs are those of package evidence: patch, again and base. Each is kept
// whole as output tests.RUN as soon as it has ended, so that a stage which is repeated
// after a crash does not run it again.
package verified

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cofferdam/cofferdam/internal/output/evidence"
	"github.com/cofferdam/cofferdam/internal/output/report"
	"github.com/cofferdam/cofferdam/internal/output/report/form"
	"github.com/cofferdam/cofferdam/internal/output/report/junit"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/fact"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The limits of the documents, in bytes.
const (
	MaxRun      = 256 << 20
	MaxEvidence = 4 << 20
	maxFailed   = 20 // names of tests in the report
)

// Stdout is the name of a report that is no file but the verify command's own
// output.
const Stdout = "-"

// Flags of a test report.
const (
	FlagFailing   = "failing"   // it has failures or errors
	FlagDisagrees = "disagrees" // it has some although the verify command ended well
	FlagUnread    = "unread"    // it is kept, and can't be understood
)

// Output is the name of the output that has a run whole.
func Output(run string) string { return "tests." + run }

// Log is the name of the output that has a run's log.
func Log(run string) string {
	if run == evidence.Patch {
		return "log.verify"
	}
	return "log.verify." + run
}

// Role tells the sandboxes of the runs of one round apart.
func Role(role, run string) string {
	if run == evidence.Patch {
		return role
	}
	return role + "." + run
}

// Round numbers the log of a run, of which each has its own: 1 and on for patch.
func Round(run string, round int) int {
	switch run {
	case evidence.Again:
		return round + 10
	case evidence.Base:
		return round + 20
	default:
		return round
	}
}

// Read reads back a run that was kept. It is nil when it is of another attempt or
// round, or of another commit: a run of the base counts for all rounds of a task.
func Read(from io.Reader, run, commit string, attempt, round int) (*evidence.Run, error) {
	var r evidence.Run
	if err := json.NewDecoder(io.LimitReader(from, MaxRun)).Decode(&r); err != nil {
		return nil, fmt.Errorf("output %s can't be read back: %w", Output(run), err)
	}
	if r.Run != run || r.Commit != commit || run != evidence.Base && (r.Attempt != attempt || r.Round != round) {
		return nil, nil
	}
	return &r, nil
}

// Report reads a report into the run, and says what follows: the name and the flags
// of the output that keeps its bytes.
func Report(r *evidence.Run, from io.Reader) (name string, flags []string) {
	flags = []string{}
	found, of, err := form.Read(from)
	switch {
	case report.IsLimit(err):
		r.Problem = string(task.LimitSize) + ": " + err.Error()
	case err != nil:
		r.Problem = report.Plain(err.Error(), report.MaxMessage)
		flags = append(flags, FlagUnread)
	default:
		r.Tests = &found
		if found.Failures+found.Errors > 0 {
			flags = append(flags, FlagFailing)
			if r.Reason == "" {
				flags = append(flags, FlagDisagrees)
			}
		}
	}
	if of == "" {
		of = junit.Form
	}
	name = "report." + strings.ReplaceAll(strings.TrimSuffix(of, " -json"), " ", "")
	if r.Run != evidence.Patch {
		name += "." + r.Run
	}
	return name, flags
}

// Sink reads a report from what a command writes while it runs. What it can't read
// it takes all the same: no command waits for it.
type Sink struct {
	log  io.Writer
	to   *io.PipeWriter
	done chan struct{}
}

// NewSink passes what it takes on to log, and has read read it where that is wanted.
func NewSink(log io.Writer, wanted bool, read func(io.Reader)) *Sink {
	s := &Sink{log: log}
	if !wanted {
		return s
	}
	from, to := io.Pipe()
	s.to, s.done = to, make(chan struct{})
	go func() {
		defer close(s.done)
		read(from)
		_, _ = io.Copy(io.Discard, from) // a pipe in memory, until End
	}()
	return s
}

// Write gives the log all of it.
func (s *Sink) Write(b []byte) (int, error) {
	n, err := s.log.Write(b)
	if s.to == nil {
		return n, err
	}
	if _, sinkErr := s.to.Write(b[:n]); sinkErr != nil {
		err = errors.Join(err, sinkErr)
	}
	return n, err
}

// End returns when what was written has been read.
func (s *Sink) End() {
	if s.to != nil {
		_ = s.to.Close() // never fails
		<-s.done
	}
}

// Document is output "report".
type Document struct {
	Command          string      `json:"command"`
	ExitCode         int         `json:"exitCode"`
	Reason           task.Reason `json:"reason,omitempty"` // of a command that was ended
	DurationMS       int64       `json:"durationMs"`
	Commit           string      `json:"commit"`
	Log              task.Digest `json:"log"`
	ManifestsTouched bool        `json:"manifestsTouched"`

	Tests    *Tests      `json:"tests,omitempty"` // of the report that the task names
	Outcome  string      `json:"outcome"`         // as the evidence says
	Evidence task.Digest `json:"evidence"`
}

// Tests is what the verify command's own report says. The exit code is the
// judge; this is what it says beside.
type Tests struct {
	Path string `json:"path"`
	Form string `json:"form,omitempty"`
	report.Counts
	Failed  []string `json:"failed,omitempty"`  // the first of those that failed or had an error
	Problem string   `json:"problem,omitempty"` // why there are no counts
}

// NewDocument is the report of a run that judged.
func NewDocument(r evidence.Run, command string, manifests bool) Document {
	d := Document{
		Command: command, ExitCode: -1, DurationMS: r.DurationMS, Commit: r.Commit, Log: r.Log, ManifestsTouched: manifests,
	}
	if r.ExitCode != nil {
		d.ExitCode = *r.ExitCode
	}
	if r.Reason != task.VerifyFailed {
		d.Reason = r.Reason
	}
	if r.Path == "" {
		return d
	}
	d.Tests = &Tests{Path: r.Path, Problem: r.Problem}
	if r.Tests == nil {
		return d
	}
	d.Tests.Form, d.Tests.Counts = r.Tests.Form, r.Tests.Counts
	for _, t := range r.Tests.List {
		if t.Outcome.Bad() && len(d.Tests.Failed) < maxFailed {
			d.Tests.Failed = append(d.Tests.Failed, t.Title())
		}
	}
	return d
}

// Judged is the fact of a verification.
func Judged(in stage.Input, digest task.Digest, e evidence.Evidence) fact.VerifyJudged {
	f := fact.VerifyJudged{
		Task: in.Task, Attempt: in.Attempt, Round: in.Round, Evidence: digest, Base: e.Base, Patch: e.Patch, Command: fact.LayerDigest(e.Command), Setup: fact.LayerDigest(e.Setup),
		Outcome: e.Outcome, Passes: e.Passes, Reason: e.Reason, ExitCodes: map[string]int{}, Compared: e.Comparison != nil, Findings: len(e.Findings) + e.More, Flags: e.Flags,
	}
	for _, r := range e.Runs {
		if r.ExitCode != nil {
			f.ExitCodes[r.Run] = *r.ExitCode
		}
		if r.Tests != nil && r.Run == evidence.Patch {
			f.Tests, f.Failures, f.Errors, f.Skipped = r.Tests.Tests, r.Tests.Failures, r.Tests.Errors, r.Tests.Skipped
		}
	}
	if c := e.Comparison; c != nil {
		f.NewlyFailing, f.NewlyPassing, f.Removed, f.NewlySkipped = c.NewlyFailing.Count, c.NewlyPassing.Count, c.Removed.Count, c.NewlySkipped.Count
	}
	return f
}

// Verdict is the failure that a run which judged, or the evidence over it, comes to.
func Verdict(e evidence.Evidence, judge evidence.Run) error {
	if e.Passes {
		return nil
	}
	text := judge.Text
	if e.Outcome == "flaky" {
		text += "; run again in another fresh sandbox it ended well, so it is flaky, and the policy (verify.flaky) does not count that"
	}
	return task.Fail(cmp.Or(e.Reason, task.VerifyFailed), text, nil)
}

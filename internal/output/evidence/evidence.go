// Package evidence says what was verified of a patch, in bytes that have a digest: an
// approval that covers the digest covers the evidence.
//
// Words. A run is one run of the verify command in a fresh sandbox: patch (the base
// commit and the patch; it is the judge), again (the same once more, after patch
// failed) and base (the base commit alone). What patch and again say differently
// is flaky. What patch and base say differently is the comparison. A finding is what
// the patch does to files of tests that may weaken them.
//
// The exit code judges, and nothing here changes that: lists and findings are told and
// flagged, for policy and people.
//
// Not promised: that a test which a report names was run, that a finding is a
// fault, or that a patch without findings weakened nothing. Reports were written by
// tests that ran beside the patch, and findings are rules about lines (see Findings).
package evidence

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/cofferdam/cofferdam/internal/output/report"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Version names the form of the document. It changes with the meaning of a field.
const Version = "cofferdam.evidence/1"

// The runs.
const (
	Patch = "patch"
	Again = "again"
	Base  = "base"
)

// maxListed bounds how many tests a list names.
const maxListed = 100

// The flags of evidence.
const (
	FlagNewlyFailing = "newly-failing"
	FlagNewlySkipped = "newly-skipped"
	FlagRemoved      = "removed-tests"  // tests that the base has and the patch has not
	FlagWeakened     = "weakened-tests" // the patch has findings
	FlagFlaky        = "flaky"
	FlagDisagrees    = "disagrees"  // the command ended well, and its report has failures
	FlagUncompared   = "uncompared" // a comparison was asked for, and there is none
	FlagUnreadable   = "unreadable" // the patch's lines can't be read for findings
)

// Run is one run of the verify command, as it is kept whole.
type Run struct {
	Run        string      `json:"run"`
	Attempt    int         `json:"attempt"`
	Round      int         `json:"round"`
	Commit     string      `json:"commit"`
	ExitCode   *int        `json:"exitCode,omitempty"` // none: the command did not come to an end of its own
	Reason     task.Reason `json:"reason,omitempty"`   // empty: it ended well
	Text       string      `json:"text,omitempty"`
	DurationMS int64       `json:"durationMs"`
	Log        task.Digest `json:"log,omitempty"`

	Path    string         `json:"path,omitempty"` // of the report
	Tests   *report.Report `json:"tests,omitempty"`
	Problem string         `json:"problem,omitempty"` // why there are no tests
}

// Summary is a run as the evidence has it.
type Summary struct {
	Run      string         `json:"run"`
	ExitCode *int           `json:"exitCode,omitempty"`
	Reason   task.Reason    `json:"reason,omitempty"`
	Text     string         `json:"text,omitempty"`
	Form     string         `json:"form,omitempty"` // of the report
	Tests    *report.Counts `json:"tests,omitempty"`
	Foreign  int            `json:"foreign,omitempty"`
	Problem  string         `json:"problem,omitempty"`
	Whole    task.Digest    `json:"whole"` // of output tests.RUN, which has every test
}

// Test names a test of a list.
type Test struct {
	Suite   string `json:"suite,omitempty"`
	Name    string `json:"name,omitempty"`
	Message string `json:"message,omitempty"`
}

// List is some tests: how many there are, and the first of them by suite and name.
type List struct {
	Count int    `json:"count"`
	First []Test `json:"first,omitempty"`
}

func (l *List) add(t report.Test) {
	if l.Count++; l.Count <= maxListed {
		l.First = append(l.First, Test{Suite: t.Suite, Name: t.Name, Message: t.Message})
	}
}

// Evidence is the document. Its bytes say the same of the same: they hold no time
// and no duration.
type Evidence struct {
	Version string      `json:"version"`
	Base    string      `json:"base"` // commit
	Patch   task.Digest `json:"patch"`
	Setup   string      `json:"setup,omitempty"`
	Command string      `json:"command"`
	Report  string      `json:"report,omitempty"`

	Outcome string      `json:"outcome"` // passed, failed or flaky
	Passes  bool        `json:"passes"`  // flaky passes where policy says so
	Reason  task.Reason `json:"reason,omitempty"`
	Runs    []Summary   `json:"runs"`

	Flaky      *List       `json:"flaky,omitempty"` // tests that patch and again say differently
	Comparison *Comparison `json:"comparison,omitempty"`
	Uncompared string      `json:"uncompared,omitempty"` // why there is no comparison

	Findings   []Finding `json:"findings,omitempty"`
	More       int       `json:"more,omitempty"`       // findings that are not listed
	Unreadable string    `json:"unreadable,omitempty"` // why there are no findings
	Flags      []string  `json:"flags"`
}

// Input is what evidence is made from.
type Input struct {
	Base    string
	Patch   task.Digest
	Setup   string
	Command string
	Report  string

	Judge  Run
	Again  *Run
	Before *Run // base
	// Whole are the digests of the runs, by name.
	Whole map[string]task.Digest

	Compares    bool   // a comparison was asked for
	Uncompared  string // why there was no run of the base, where there is none
	FlakyPasses bool

	Findings Findings
}

// New makes the document.
func New(in Input) Evidence {
	e := Evidence{
		Version: Version, Base: in.Base, Patch: in.Patch, Setup: in.Setup, Command: in.Command, Report: in.Report,
		Findings: in.Findings.List, More: in.Findings.More, Unreadable: in.Findings.Problem, Flags: []string{},
	}
	flaky := map[[2]string]bool{}
	e.Outcome, e.Reason = "passed", in.Judge.Reason
	switch {
	case in.Judge.Reason == "":
	case in.Again != nil && in.Again.Reason == "":
		e.Outcome = "flaky"
		e.Flags = append(e.Flags, FlagFlaky)
		if in.FlakyPasses {
			e.Reason = ""
		}
	default:
		e.Outcome = "failed"
	}
	e.Passes = e.Reason == ""
	if in.Again != nil && in.Judge.Tests != nil && in.Again.Tests != nil {
		e.Flaky, flaky = differing(*in.Judge.Tests, *in.Again.Tests)
	}
	for _, r := range []*Run{&in.Judge, in.Again, in.Before} {
		if r != nil {
			e.Runs = append(e.Runs, r.summary(in.Whole[r.Run]))
		}
	}
	if in.Compares {
		e.compare(in, flaky)
	}
	if t := in.Judge.Tests; t != nil && in.Judge.Reason == "" && t.Failures+t.Errors > 0 {
		e.Flags = append(e.Flags, FlagDisagrees)
	}
	if len(e.Findings) > 0 {
		e.Flags = append(e.Flags, FlagWeakened)
	}
	if e.Unreadable != "" {
		e.Flags = append(e.Flags, FlagUnreadable)
	}
	slices.Sort(e.Flags)
	return e
}

func (e *Evidence) compare(in Input, flaky map[[2]string]bool) {
	switch {
	case in.Before == nil:
		e.Uncompared = in.Uncompared
	case in.Before.Reason != "" && in.Before.ExitCode == nil:
		e.Uncompared = "the base commit by itself could not be verified: " + in.Before.Text
	case in.Judge.Tests == nil && in.Report != "":
		e.Uncompared = "the run with the patch has no report: " + in.Judge.Problem
	case in.Before.Tests == nil && in.Report != "":
		e.Uncompared = "the run of the base has no report: " + in.Before.Problem
	}
	if e.Uncompared != "" {
		e.Flags = append(e.Flags, FlagUncompared)
		return
	}
	c := Comparison{BasePassed: in.Before.Reason == ""}
	if in.Judge.Tests != nil {
		c.tests(*in.Before.Tests, *in.Judge.Tests, in.Judge.Reason.Class() == "limit", flaky)
	}
	e.Comparison = &c
	for _, f := range []struct {
		flag string
		list List
	}{{FlagNewlyFailing, c.NewlyFailing}, {FlagNewlySkipped, c.NewlySkipped}, {FlagRemoved, c.Removed}} {
		if f.list.Count > 0 {
			e.Flags = append(e.Flags, f.flag)
		}
	}
}

func (r *Run) summary(whole task.Digest) Summary {
	s := Summary{Run: r.Run, ExitCode: r.ExitCode, Reason: r.Reason, Text: r.Text, Problem: r.Problem, Whole: whole}
	if r.Tests != nil {
		s.Form, s.Tests, s.Foreign = r.Tests.Form, &r.Tests.Counts, r.Tests.Foreign
	}
	return s
}

// differing are the tests that are bad in one of two reports and not in the other.
func differing(one, two report.Report) (*List, map[[2]string]bool) {
	list, names := &List{}, map[[2]string]bool{}
	other := index(two)
	for _, t := range one.List {
		if o, there := other[key(t)]; there && o.Outcome.Bad() != t.Outcome.Bad() {
			if t.Message == "" {
				t.Message = o.Message
			}
			list.add(t)
			names[key(t)] = true
		}
	}
	return list, names
}

func key(t report.Test) [2]string { return [2]string{t.Suite, t.Name} }

func index(r report.Report) map[[2]string]report.Test {
	m := make(map[[2]string]report.Test, len(r.List))
	for _, t := range r.List {
		m[key(t)] = t
	}
	return m
}

// Canonical are the bytes whose digest names the evidence: its fields in their order,
// without line breaks, and characters of markup as they are.
func (e Evidence) Canonical() ([]byte, error) {
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	if err := to.Encode(e); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

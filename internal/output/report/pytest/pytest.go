// Package pytest reads what pytest prints, as hostile bytes: the line a test of -v
// and the summary of -rA. (pytest --junitxml writes JUnit's XML, which says more and
// is read by package junit.)
//
// Words. A test is a node id: its file is the suite, the rest its name. The progress
// is what stands before the first heading of failures, errors or captured output;
// the summary is what stands after the last "short test summary info". Lines between
// them are what tests printed, and say nothing. The totals are in the last line.
//
// Tests that only the totals tell of (a skipped one without -v) are counted and have
// no name. Totals that say more bad tests than were named make a test without a
// name that could not say.
package pytest

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/output/report"
)

// Form is what the form is called.
const Form = "pytest"

const words = `PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS`

var (
	session  = regexp.MustCompile(`^=+ test session starts =+$`)
	summary  = regexp.MustCompile(`^=+ short test summary info =+$`)
	heading  = regexp.MustCompile(`^=+ (?:FAILURES|ERRORS|PASSES|XFAILURES|XPASSES|warnings summary.*) =+$`)
	totals   = regexp.MustCompile(`^(?:=+ )?(\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun)\b.*|no tests ran) in [0-9.]+s\b.*$`)
	total    = regexp.MustCompile(`(\d{1,9}) (passed|failed|errors?|skipped|xfailed|xpassed)\b`)
	progress = regexp.MustCompile(`^([^\s:]\S*?\.py::\S.*?) (` + words + `)(?: \((.*)\))?(?:\s+\[\s*\d+%\])?$`)
	worker   = regexp.MustCompile(`^\[gw\d+\] \[\s*\d+%\] (` + words + `) (\S+?\.py::.*)$`)
	told     = regexp.MustCompile(`^(` + words + `) (\S+?\.py(?:::.*)?)$`)
)

// Is says whether a line is one that this form begins with.
func Is(line []byte) bool { return session.Match(line) || summary.Match(line) }

type place uint8

const (
	before place = iota
	inProgress
	inSections
	inSummary
)

type parser struct {
	where    place
	progress map[string]report.Test // by node id
	summary  map[string]report.Test // of the last summary
	totals   map[string]int
	seen     bool
	foreign  int
}

// Parse reads a whole output.
func Parse(from io.Reader) (report.Report, error) {
	p := parser{progress: map[string]report.Test{}}
	err := report.Lines(from, p.line)
	if err == nil && !p.seen {
		err = errors.New("there is no session of pytest")
	}
	if err != nil {
		return report.Report{}, err
	}
	return p.report()
}

func (p *parser) line(raw []byte, long bool) error {
	if long {
		p.foreign++
		return nil
	}
	text := strings.TrimRight(string(raw), " \t")
	switch {
	case session.MatchString(text):
		p.where, p.seen = inProgress, true
	case heading.MatchString(text):
		p.where = inSections
	case summary.MatchString(text):
		// A test may print this, too: the last one is pytest's own.
		p.where, p.seen, p.summary, p.totals = inSummary, true, map[string]report.Test{}, nil
	case p.where == inProgress || p.where == inSummary || p.where == inSections:
		if m := totals.FindStringSubmatch(text); m != nil {
			p.totals = map[string]int{}
			for _, part := range total.FindAllStringSubmatch(m[1], -1) {
				n, _ := strconv.Atoi(part[1]) // nine digits at most
				p.totals[strings.TrimSuffix(part[2], "s")] = n
			}
			return nil
		}
		return p.test(text)
	}
	return nil
}

func (p *parser) test(text string) error {
	switch p.where {
	case inProgress:
		if m := progress.FindStringSubmatch(text); m != nil {
			return p.take(p.progress, m[1], m[2], m[3])
		}
		if m := worker.FindStringSubmatch(text); m != nil {
			return p.take(p.progress, m[2], m[1], "")
		}
	case inSummary:
		if m := told.FindStringSubmatch(text); m != nil {
			id, message := m[2], ""
			if m[1] != "PASSED" {
				id, message = p.split(id)
			}
			return p.take(p.summary, id, m[1], message)
		}
	case before, inSections:
	}
	return nil
}

// split takes a message off a node id. What the progress calls so is one;
// otherwise parameters stand in brackets and may hold what else begins a message.
func (p *parser) split(text string) (id, message string) {
	for i, from := 0, 0; i < 16; i++ {
		dash := strings.Index(text[from:], " - ")
		if dash < 0 {
			break
		}
		if _, known := p.progress[text[:from+dash]]; known {
			return text[:from+dash], text[from+dash+3:]
		}
		from += dash + 3
	}
	if _, known := p.progress[text]; known {
		return text, ""
	}
	from := 0
	if open := strings.IndexByte(text, '['); open >= 0 {
		if dash := strings.Index(text, " - "); dash < 0 || dash > open {
			if end := strings.Index(text[open:], "] - "); end >= 0 {
				from = open + end + 1
			} else if strings.HasSuffix(text, "]") {
				return text, ""
			}
		}
	}
	if dash := strings.Index(text[from:], " - "); dash >= 0 {
		return text[:from+dash], text[from+dash+3:]
	}
	return text, ""
}

func (p *parser) take(to map[string]report.Test, id, word, message string) error {
	outcome := map[string]report.Outcome{
		"PASSED": report.Passed, "XPASS": report.Passed, "FAILED": report.Failed, "ERROR": report.Erred, "SKIPPED": report.Skipped, "XFAIL": report.Skipped,
	}[word]
	have, known := to[id]
	switch {
	case !known && len(to) >= report.MaxTests:
		return report.ErrTests
	case known && (have.Outcome == report.Erred || have.Outcome == report.Failed && outcome != report.Erred):
		return nil
	}
	suite, name, _ := strings.Cut(id, "::")
	to[id] = report.Test{Suite: suite, Name: name, Outcome: outcome, Message: report.Message(message)}
	return nil
}

func (p *parser) report() (report.Report, error) {
	b := report.Builder{Foreign: p.foreign}
	named := map[report.Outcome]int{}
	for id, t := range p.summary {
		if have, known := p.progress[id]; !known || t.Outcome.Bad() && have.Outcome != report.Erred || have.Outcome == t.Outcome {
			p.progress[id] = t
		}
	}
	for _, t := range p.progress {
		if err := b.Take(t); err != nil {
			return report.Report{}, err
		}
		named[t.Outcome]++
	}
	b.Count(report.Skipped, max(0, p.totals["skipped"]+p.totals["xfailed"]-named[report.Skipped]))
	b.Count(report.Passed, max(0, p.totals["passed"]+p.totals["xpassed"]-named[report.Passed]))
	told, have := p.totals["failed"]+p.totals["error"], named[report.Failed]+named[report.Erred]
	var err error
	switch {
	case p.totals == nil:
		err = b.Take(report.Test{Outcome: report.Erred, Message: "there are no totals: the output is cut"})
	case told > have:
		err = b.Take(report.Test{Outcome: report.Erred, Message: fmt.Sprintf("the totals say %d failed, and %d are named", told, have)})
	}
	return b.Report(Form), err
}

// Package gotest reads what `go test -json` writes (test2json's events, a JSON
// object a line), as hostile bytes.
//
// Words. A suite is a package. A test that began and was never told to have ended
// has outcome error: the program that ran it was ended. A package that failed
// without a test that failed (it did not build, it ended early) is a test without a
// name.
//
// Other lines may stand between the events, since commands write to one output;
// they are counted as foreign. What a test prints is a field of an event, and so
// can't pass for one.
package gotest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/output/report"
)

// Form is what the form is called.
const Form = "go test -json"

// maxBuild bounds how many packages' build output is remembered.
const maxBuild = 1000

// event is one line.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	Elapsed     float64
	ImportPath  string
	FailedBuild string
}

// actions are all that a line may tell.
func actions() []string {
	return []string{"start", "run", "pause", "cont", "pass", "bench", "fail", "output", "skip", "attr", "artifacts", "build-output", "build-fail"}
}

type test struct{ pkg, name string }

type parser struct {
	found   report.Builder
	actions []string
	events  int
	running map[test]string   // what each said, its first line
	failed  map[string]bool   // packages that had a bad test
	open    map[string]string // packages that began and did not end, and what they said
	build   map[string]string // by import path
}

// Parse reads a whole output.
func Parse(from io.Reader) (report.Report, error) {
	p := parser{actions: actions(), running: map[test]string{}, failed: map[string]bool{}, open: map[string]string{}, build: map[string]string{}}
	err := report.Lines(from, func(line []byte, long bool) error {
		e, ok := read(line, long)
		if !ok || !slices.Contains(p.actions, e.Action) {
			if len(bytes.TrimSpace(line)) > 0 {
				p.found.Foreign++
			}
			return nil
		}
		p.events++
		return p.take(e)
	})
	if err == nil {
		err = p.unended()
	}
	if err != nil {
		return report.Report{}, err
	}
	if p.events == 0 {
		return report.Report{}, errors.New("there is no event of go test")
	}
	return p.found.Report(Form), nil
}

func read(line []byte, long bool) (e event, ok bool) {
	if long || len(line) == 0 || line[0] != '{' {
		return e, false
	}
	return e, json.Unmarshal(line, &e) == nil
}

// Is says whether a line is one of this form.
func Is(line []byte) bool {
	e, ok := read(line, false)
	return ok && slices.Contains(actions(), e.Action) && (e.Package != "" || e.ImportPath != "")
}

func (p *parser) take(e event) error {
	switch e.Action {
	case "build-output":
		if _, known := p.build[e.ImportPath]; known || len(p.build) < maxBuild {
			p.build[e.ImportPath] = said(p.build[e.ImportPath], e.Output)
		}
		return nil
	case "build-fail":
		return nil
	}
	if e.Test == "" {
		return p.suite(e)
	}
	id := test{e.Package, e.Test}
	outcome := map[string]report.Outcome{"pass": report.Passed, "bench": report.Passed, "fail": report.Failed, "skip": report.Skipped}[e.Action]
	switch {
	case e.Action == "output":
		if text, runs := p.running[id]; runs {
			p.running[id] = said(text, e.Output)
		}
		return nil
	case outcome == "":
		if _, runs := p.running[id]; !runs {
			if len(p.running)+p.found.Len() >= report.MaxTests {
				return report.ErrTests
			}
			p.running[id] = ""
		}
		return nil
	}
	message := p.running[id]
	delete(p.running, id)
	if outcome.Bad() {
		p.failed[e.Package] = true
	}
	return p.found.Take(report.Test{Suite: e.Package, Name: e.Test, Outcome: outcome, DurationMS: report.Millis(e.Elapsed), Message: message})
}

// suite takes an event about a package.
func (p *parser) suite(e event) error {
	switch e.Action {
	case "output":
		if _, known := p.open[e.Package]; known || len(p.open) < maxBuild {
			p.open[e.Package] = said(p.open[e.Package], e.Output)
		}
		return nil
	case "pass", "skip", "fail":
		message := p.open[e.Package]
		delete(p.open, e.Package)
		if e.Action != "fail" {
			return nil
		}
		if e.FailedBuild != "" {
			message = "it does not build"
			if text := p.build[e.FailedBuild]; text != "" {
				message += ": " + text
			}
		} else if p.failed[e.Package] {
			return nil
		}
		p.failed[e.Package] = true
		return p.found.Take(report.Test{Suite: e.Package, Outcome: report.Erred, Message: message})
	default:
		if len(p.open) < report.MaxTests {
			p.open[e.Package] = p.open[e.Package] + ""
		}
		return nil
	}
}

// unended takes what began and did not end.
func (p *parser) unended() error {
	for id, message := range p.running {
		text := "it did not end"
		if message != "" {
			text += ": " + message
		}
		if err := p.found.Take(report.Test{Suite: id.pkg, Name: id.name, Outcome: report.Erred, Message: text}); err != nil {
			return err
		}
		p.failed[id.pkg] = true
	}
	for pkg := range p.open {
		if p.failed[pkg] || pkg == "" {
			continue
		}
		if err := p.found.Take(report.Test{Suite: pkg, Outcome: report.Erred, Message: "it did not end"}); err != nil {
			return err
		}
	}
	return nil
}

// said is the first line that says something: what go test itself writes around
// a test's own lines doesn't.
func said(have, line string) string {
	line = strings.TrimSpace(line)
	if have != "" || line == "" || line == "FAIL" || line == "PASS" {
		return have
	}
	for _, own := range []string{"=== ", "--- ", "# ", "FAIL\t", "ok  \t", "exit status "} {
		if strings.HasPrefix(line, own) {
			return have
		}
	}
	return report.Message(line)
}

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

// line is what a package or a test took.
type line struct {
	name string
	took time.Duration
	bad  bool
}

// report is what a run of `go test` did.
type report struct {
	packages []line
	tests    []line                      // of the top level
	held     map[string]*strings.Builder // output of tests that have not ended
}

func newReport() *report { return &report{held: map[string]*strings.Builder{}} }

// read takes the events and prints what `go test` would have printed: the lines
// of packages, and the output of tests that failed.
func (r *report) read(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for {
		text, err := lines.ReadString('\n')
		if text != "" {
			r.take(text, out)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(text string, out io.Writer) {
	var e event
	if json.Unmarshal([]byte(text), &e) != nil || e.Action == "" {
		fmt.Fprint(out, text) // not an event: a message of the go command
		return
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "output":
		switch {
		case e.Test != "":
			if r.held[key] == nil {
				r.held[key] = &strings.Builder{}
			}
			r.held[key].WriteString(e.Output)
		case e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]"):
			fmt.Fprint(out, e.Output)
		}
	case "pass", "fail", "skip":
		l := line{name: e.Package, took: time.Duration(e.Elapsed * float64(time.Second)), bad: e.Action == "fail"}
		if e.Test == "" {
			r.packages = append(r.packages, l)
			if l.bad {
				r.rest(e.Package, out) // of tests that a panic or a time limit cut off
			}
			return
		}
		if l.bad && r.held[key] != nil {
			fmt.Fprint(out, r.held[key].String())
		}
		delete(r.held, key)
		if !strings.Contains(e.Test, "/") {
			l.name = e.Test + " in " + e.Package
			r.tests = append(r.tests, l)
		}
	}
}

// rest prints what tests of the package said that never ended.
func (r *report) rest(pkg string, out io.Writer) {
	for key, text := range r.held {
		if strings.HasPrefix(key, pkg+" ") {
			fmt.Fprint(out, text.String())
			delete(r.held, key)
		}
	}
}

// table prints what took long against its budget.
func (r *report) table(out io.Writer, name string, s suite, wall time.Duration) {
	fmt.Fprintf(out, "\nsuite %s: %s of %s%s\n", name, short(wall), short(s.total), over(wall, s.total))
	longest := func(a, b line) int { return int(b.took - a.took) }
	slices.SortStableFunc(r.packages, longest)
	for _, l := range r.packages {
		budget := s.of(l.name)
		if l.took >= 2*time.Second || l.took > budget {
			fmt.Fprintf(out, "  %8s of %-8s %s%s\n", short(l.took), short(budget), l.name, over(l.took, budget))
		}
	}
	slices.SortStableFunc(r.tests, longest)
	for i, l := range r.tests {
		if i == 0 && l.took >= 2*time.Second {
			fmt.Fprintln(out, "  the slowest tests:")
		}
		if i < 12 && l.took >= 2*time.Second {
			fmt.Fprintf(out, "  %8s             %s\n", short(l.took), l.name)
		}
	}
}

func over(took, budget time.Duration) string {
	if took <= budget {
		return ""
	}
	return fmt.Sprintf("  OVER by %s", short(took-budget))
}

func short(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

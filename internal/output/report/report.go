// Package report is the one form that every test report is read into. A report was
// written by tests that ran beside a stranger's patch, so each reader beneath this
// package (junit, gotest, tap, pytest) takes hostile bytes; package form tells the
// forms apart.
//
// Words. A test is a suite and a name, and has one outcome. A test without a name
// stands for what went wrong with the whole suite: it did not build, it never
// ended. A report that has a test of one name more than once has it once in its
// list, with the worst outcome, and as often as it was in its counts. Foreign lines
// are those that a reader of lines could not understand.
//
// Names and messages are cut and made harmless to show here and nowhere else. A name
// that was cut ends with a digest of the whole, so that two tests stay two.
//
// Not promised: that a test which a report calls passed was ever run.
package report

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of a report.
const (
	MaxSize    = 16 << 20 // bytes
	MaxTests   = 100_000  // tests of different names
	MaxName    = 256      // bytes of a suite or a name
	MaxMessage = 512      // bytes of a message
	MaxLine    = 1 << 20  // bytes of a line, in forms that have lines; a longer one is foreign
)

// Outcome is how a test ended.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"  // it said no
	Erred   Outcome = "error"   // it could not say
	Skipped Outcome = "skipped" // it was not run, or its failure was expected
)

// Bad says whether the outcome speaks against what was tested.
func (o Outcome) Bad() bool { return o == Failed || o == Erred }

// rank orders outcomes by how bad they are.
func (o Outcome) rank() int {
	return slices.Index([]Outcome{Skipped, Passed, Failed, Erred}, o)
}

// Test is one test of a report.
type Test struct {
	Suite      string  `json:"suite,omitempty"`
	Name       string  `json:"name,omitempty"` // empty: the suite as a whole
	Outcome    Outcome `json:"outcome"`
	DurationMS int64   `json:"durationMs,omitempty"`
	Message    string  `json:"message,omitempty"` // of one that did not pass
	Times      int     `json:"times,omitempty"`   // where the report has it more than once
}

// Counts are how many tests ended how.
type Counts struct {
	Tests    int `json:"tests"`
	Failures int `json:"failures"`
	Errors   int `json:"errors"`
	Skipped  int `json:"skipped"`
}

// Report is what a document says. The zero Report has no test.
type Report struct {
	Form string `json:"form"`
	Counts
	Foreign int    `json:"foreign,omitempty"` // lines that were not understood
	List    []Test `json:"list"`              // by suite and name
}

// Errors that say that a report is more than is taken.
var (
	ErrSize  = fmt.Errorf("the report is larger than %d bytes", MaxSize)
	ErrTests = fmt.Errorf("the report has more than %d tests", MaxTests)
)

// IsLimit says whether err says that a report is more than is taken.
func IsLimit(err error) bool { return errors.Is(err, ErrSize) || errors.Is(err, ErrTests) }

// Builder collects the tests of one report. The zero Builder is ready.
type Builder struct {
	Foreign int
	counts  Counts
	tests   map[[2]string]Test
}

// Add takes a test as the document tells of it.
func (b *Builder) Add(t Test) error {
	t.Suite, t.Name, t.Message = Plain(t.Suite, MaxName), Plain(t.Name, MaxName), Message(t.Message)
	if t.Outcome == Passed {
		t.Message = ""
	}
	t.Times = 1
	key := [2]string{t.Suite, t.Name}
	have, again := b.tests[key]
	switch {
	case again:
		if t.Outcome.rank() < have.Outcome.rank() {
			t.Outcome, t.Message = have.Outcome, have.Message
		}
		t.Times, t.DurationMS = have.Times+1, max(t.DurationMS, have.DurationMS)
	case len(b.tests) >= MaxTests:
		return ErrTests
	case b.tests == nil:
		b.tests = map[[2]string]Test{}
	}
	b.tests[key] = t
	return nil
}

// Count counts n tests of an outcome that have no names.
func (b *Builder) Count(o Outcome, n int) {
	b.counts.Tests += n
	switch o {
	case Failed:
		b.counts.Failures += n
	case Erred:
		b.counts.Errors += n
	case Skipped:
		b.counts.Skipped += n
	case Passed:
	}
}

// Take adds and counts a test.
func (b *Builder) Take(t Test) error {
	if err := b.Add(t); err != nil {
		return err
	}
	b.Count(t.Outcome, 1)
	return nil
}

// Len is how many tests of different names there are.
func (b *Builder) Len() int { return len(b.tests) }

// Report is what was taken.
func (b *Builder) Report(form string) Report {
	r := Report{Form: form, Counts: b.counts, Foreign: b.Foreign, List: make([]Test, 0, len(b.tests))}
	for _, t := range b.tests {
		if t.Times == 1 {
			t.Times = 0
		}
		r.List = append(r.List, t)
	}
	slices.SortFunc(r.List, func(x, y Test) int { return cmp.Or(cmp.Compare(x.Suite, y.Suite), cmp.Compare(x.Name, y.Name)) })
	return r
}

// Title is what a test is called in one text.
func (t Test) Title() string {
	switch {
	case t.Suite == "" && t.Name == "":
		return "(the run as a whole)"
	case t.Name == "":
		return t.Suite + " (as a whole)"
	case t.Suite == "":
		return t.Name
	default:
		return t.Suite + "." + t.Name
	}
}

// Millis is a number of seconds that a report says, as far as it can be one.
func Millis(seconds float64) int64 {
	if math.IsNaN(seconds) || seconds < 0 {
		return 0
	}
	return int64(min(seconds, 1e9) * 1000)
}

// Message is the first line of a text that says something, made harmless.
func Message(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return Plain(line, MaxMessage)
		}
	}
	return ""
}

// Plain writes what is no printable character as an escape and cuts what is
// longer than most bytes.
func Plain(text string, most int) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
		if b.Len() > most {
			break
		}
	}
	plain := b.String()
	if len(plain) <= most {
		return plain
	}
	end := fmt.Sprintf("…%x", sha256.Sum256([]byte(text)))[:len("…")+8]
	cut := most - len(end)
	for !utf8.RuneStart(plain[cut]) {
		cut--
	}
	return plain[:cut] + end
}

// Bounded reads at most MaxSize bytes of from; more is ErrSize.
func Bounded(from io.Reader) io.Reader { return &bounded{from: from, left: MaxSize} }

type bounded struct {
	from io.Reader
	left int64
}

// Read ends with an error where too much came.
func (b *bounded) Read(to []byte) (int, error) {
	if b.left <= 0 {
		var one [1]byte
		n, err := io.ReadFull(b.from, one[:])
		if n > 0 {
			return 0, ErrSize
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		return 0, err
	}
	n, err := b.from.Read(to[:min(int64(len(to)), b.left)])
	b.left -= int64(n)
	return n, err
}

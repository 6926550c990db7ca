package tap

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/output/report"
)

func TestHostileTAP(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		want    report.Counts
		foreign int
	}{
		"plain":             {"TAP version 14\n1..2\nok 1 - a\nnot ok 2 - b\n", report.Counts{Tests: 2, Failures: 1}, 0},
		"none":              {"1..0 # SKIP nothing to do\n", report.Counts{}, 0},
		"no plan":           {"ok 1\n", report.Counts{Tests: 2, Errors: 1}, 0},
		"too few":           {"1..3\nok 1\n", report.Counts{Tests: 2, Errors: 1}, 0},
		"too many":          {"1..1\nok 1\nok 2\n", report.Counts{Tests: 3, Errors: 1}, 0},
		"bail":              {"1..9\nok 1\nBail out! no database\n", report.Counts{Tests: 2, Errors: 1}, 0},
		"noise":             {"\xff\x00\nhello\nokay\nok: no\n1..1\nok\n", report.Counts{Tests: 1}, 4},
		"same name":         {"1..2\nok 1 - a\nnot ok 2 - a\n", report.Counts{Tests: 2, Failures: 1}, 0},
		"todo":              {"1..2\nnot ok 1 a # TODO x\nok 2 b # todo\n", report.Counts{Tests: 2, Skipped: 1}, 0},
		"no directive":      {"1..1\nnot ok 1 - a \\# SKIP\n", report.Counts{Tests: 1, Failures: 1}, 0},
		"directive twice":   {"1..1\nnot ok 1 - a # SKIP # TODO\n", report.Counts{Tests: 1, Skipped: 1}, 0},
		"in a block":        {"1..1\nok 1\n  ---\n  x: |\nnot ok 2 - hidden\n  ...\n", report.Counts{Tests: 1}, 0},
		"endless block":     {"1..1\nok 1\n  ---\nnot ok 2\n", report.Counts{Tests: 2, Errors: 1}, 0},
		"cut within":        {"1..1\n    ok 1 - inner\n", report.Counts{Tests: 3, Errors: 2}, 0},
		"within, too few":   {"    1..2\n    ok 1 - inner\nok 1 - outer\n1..1\n", report.Counts{Tests: 3, Errors: 1}, 0},
		"block of none":     {"1..0\n  ---\n  error: x\n  ...\n", report.Counts{}, 0},
		"block of a deeper": {"1..1\nok 1\n      ---\n      duration_ms: 1e400\n      ...\n", report.Counts{Tests: 1}, 0},
		"huge numbers":      {"1..99999999999\nok 99999999999\n1..1\n", report.Counts{Tests: 1}, 1},
		"long line":         {"1..1\nok 1\nnot ok 2 " + strings.Repeat("x", report.MaxLine) + "\n", report.Counts{Tests: 1}, 1},
	} {
		r, err := Parse(strings.NewReader(c.text))
		if err != nil || r.Counts != c.want || r.Foreign != c.foreign {
			t.Errorf("%s: %+v, %d foreign, %v: %+v", name, r.Counts, r.Foreign, err, r.List)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"none": {"hello\n", "no line of TAP"},
		"deep": {strings.Repeat(" ", 400) + "ok 1\n", "within each other"},
		"many": {strings.Repeat("ok\n", report.MaxTests+1), "more than"},
		"held": {strings.Repeat("    ok - a\n", report.MaxTests+1), "more than"},
	} {
		if _, err := Parse(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Points that wait for the one they belong to cost little, however many and deep.
func TestManyWithin(t *testing.T) {
	var b strings.Builder
	n := report.MaxTests - maxDepth
	for i := range n {
		fmt.Fprintf(&b, "%sok %d - %s %d\n", strings.Repeat("    ", maxDepth), i+1, strings.Repeat("n", 40), i)
	}
	for depth := maxDepth - 1; depth >= 0; depth-- {
		fmt.Fprintf(&b, "%sok 1 - %s\n", strings.Repeat("    ", depth), strings.Repeat("p", 200))
	}
	b.WriteString("1..1\n")
	r, err := Parse(strings.NewReader(b.String()))
	if err != nil || r.Tests != n+maxDepth || r.Errors != 0 {
		t.Errorf("%+v, %v", r.Counts, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("TAP version 14\n1..2\n    ok 1 - inner\n    1..1\nok 1 - outer\n  ---\n  error: x\n  ...\nnot ok 2 # TODO\n"))
	f.Add([]byte("1..1\nBail out! x\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := Parse(bytes.NewReader(in))
		if err == nil && (r.Tests < r.Failures+r.Errors+r.Skipped || len(r.List) > r.Tests) {
			t.Errorf("%q: %+v", in, r)
		}
	})
}

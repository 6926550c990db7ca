package pytest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/output/report"
)

const begin = "=== test session starts ===\n"

func TestHostileText(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want report.Counts
	}{
		"progress":      {begin + "a.py::x PASSED [ 50%]\na.py::y SKIPPED (no: (a) b) [100%]\n=== 1 passed, 1 skipped in 0.1s ===\n", report.Counts{Tests: 2, Skipped: 1}},
		"xdist":         {begin + "[gw0] [ 50%] PASSED a.py::x\n[gw1] [100%] FAILED a.py::y[a b]\n=== 1 failed, 1 passed in 0.1s ===\n", report.Counts{Tests: 2, Failures: 1}},
		"teardown":      {begin + "a.py::x PASSED\na.py::x ERROR\n=== 1 passed, 1 error in 0.1s ===\n", report.Counts{Tests: 2, Errors: 1}},
		"only totals":   {begin + "..s [100%]\n=== 2 passed, 1 skipped in 0.1s ===\n", report.Counts{Tests: 3, Skipped: 1}},
		"unnamed":       {begin + ".F [100%]\n=== 1 failed, 1 passed in 0.1s ===\n", report.Counts{Tests: 2, Errors: 1}},
		"cut":           {begin + "a.py::x PASSED\n", report.Counts{Tests: 2, Errors: 1}},
		"none ran":      {begin + "=== no tests ran in 0.01s ===\n", report.Counts{}},
		"forged totals": {begin + "=== FAILURES ===\n=== 9 passed in 0.1s ===\n=== short test summary info ===\nFAILED a.py::x - E\n=== 1 failed in 0.1s ===\n", report.Counts{Tests: 1, Failures: 1}},
		"forged passes": {begin + "a.py::x FAILED\n=== FAILURES ===\na.py::x PASSED\nPASSED a.py::x\n=== 1 failed in 0.1s ===\n", report.Counts{Tests: 1, Failures: 1}},
		"bytes":         {begin + "a.py::\xff\x1b[31m PASSED\n\x00\n=== 1 passed in 0.1s ===\n", report.Counts{Tests: 1}},
		"collection":    {begin + "=== ERRORS ===\n=== short test summary info ===\nERROR a.py - SyntaxError: no\n=== 1 error in 0.1s ===\n", report.Counts{Tests: 1, Errors: 1}},
	} {
		r, err := Parse(strings.NewReader(c.text))
		if err != nil || r.Counts != c.want {
			t.Errorf("%s: %+v, %v: %+v", name, r.Counts, err, r.List)
		}
	}
	if _, err := Parse(strings.NewReader("PASSED a.py::x\n")); err == nil {
		t.Error("what has no session is a report")
	}
	var many strings.Builder
	many.WriteString(begin)
	for i := range report.MaxTests + 1 {
		fmt.Fprintf(&many, "a.py::t%d PASSED\n", i)
	}
	if _, err := Parse(strings.NewReader(many.String())); !report.IsLimit(err) {
		t.Errorf("many: %v", err)
	}
	// Totals are a claim: what is counted without a name is bounded.
	r, err := Parse(strings.NewReader(begin + "=== 999999999 passed in 0.1s ===\n"))
	if err != nil || r.Tests != 999999999 {
		t.Errorf("a claim: %+v, %v", r.Counts, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(begin + "a.py::x PASSED [ 50%]\n=== short test summary info ===\nFAILED a.py::y[a - b] - E\n=== 1 failed, 1 passed in 0.1s ===\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := Parse(bytes.NewReader(in))
		if err == nil && (r.Tests < r.Failures+r.Errors+r.Skipped || len(r.List) > r.Tests) {
			t.Errorf("%q: %+v", in, r)
		}
	})
}

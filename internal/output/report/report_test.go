package report

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"":              "",
		"TestA/b c":     "TestA/b c",
		"a\nb\tc":       `a\u{a}b\u{9}c`,
		"x\xff\xfe":     `x\xff\xfe`,
		"\u202eevil":    `\u{202e}evil`,
		"a\u200bb":      `a\u{200b}b`,
		"real \ufffd":   "real \ufffd",
		"\x1b[31mred":   `\u{1b}[31mred`,
		"no\u00a0break": `no\u{a0}break`,
		"日本":            "日本",
	} {
		if got := Plain(in, MaxName); got != want || Plain(got, MaxName) != got {
			t.Errorf("%q became %q", in, got)
		}
	}
	long := strings.Repeat("ü", 500)
	one, two := Plain(long+"1", MaxName), Plain(long+"2", MaxName)
	if one == two || len(one) > MaxName || !strings.Contains(one, "…") {
		t.Errorf("long names became %q and %q", one, two)
	}
	exact := strings.Repeat("x", MaxName)
	if Plain(exact, MaxName) != exact {
		t.Error("what is as long as it may be was cut")
	}
}

func TestBuilder(t *testing.T) {
	var b Builder
	for _, o := range []Outcome{Skipped, Passed, Failed, Passed} {
		if err := b.Take(Test{Suite: "s", Name: "n", Outcome: o, Message: string(o), DurationMS: 5}); err != nil {
			t.Fatal(err)
		}
	}
	r := b.Report("x")
	if len(r.List) != 1 || r.List[0] != (Test{Suite: "s", Name: "n", Outcome: Failed, Message: "failed", Times: 4, DurationMS: 5}) || r.Counts != (Counts{Tests: 4, Failures: 1, Skipped: 1}) {
		t.Errorf("report %+v", r)
	}
	for i := range MaxTests {
		if err := b.Take(Test{Name: fmt.Sprint(i), Outcome: Passed}); (err != nil) != (i == MaxTests-1) || err != nil && !IsLimit(err) {
			t.Fatalf("test %d: %v", i, err)
		}
	}
}

func TestMillis(t *testing.T) {
	for in, want := range map[float64]int64{0: 0, -1: 0, 1.5: 1500, math.Inf(1): 1e12, math.Inf(-1): 0, 1e300: 1e12} {
		if got := Millis(in); got != want {
			t.Errorf("%v became %d", in, got)
		}
	}
	if Millis(math.NaN()) != 0 {
		t.Error("no number became one")
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 3*MaxLine)
	var got []string
	err := Lines(strings.NewReader("a\r\n\n"+long+"\nb"), func(line []byte, long bool) error {
		got = append(got, fmt.Sprintf("%d%v", len(line), long))
		return nil
	})
	if err != nil || strings.Join(got, " ") != fmt.Sprintf("1false 0false %dtrue 1false", MaxLine) {
		t.Errorf("lines %v, %v", got, err)
	}
	broken := errors.New("broken")
	if err := Lines(io.MultiReader(strings.NewReader("a\nb"), failing{broken}), func([]byte, bool) error { return nil }); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	if err := Lines(strings.NewReader("a\n"), func([]byte, bool) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a taker that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

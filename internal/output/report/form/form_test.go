package form

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/output/report"
)

// What real tools wrote of the same few tests, with what tries to be taken for
// more than it is: tests print lines of the report's own form.
func TestRealReports(t *testing.T) {
	for name, c := range map[string]struct {
		form string
		want report.Counts
		list string
	}{
		"go.json": {"go test -json", report.Counts{Tests: 8, Failures: 2, Errors: 3, Skipped: 1}, `
failed example.com/m.TestBad
failed example.com/m.TestBad/sub/two: a_test.go:4: got 1, want 2
passed example.com/m.TestBad/sub_one
passed example.com/m.TestGood
skipped example.com/m.TestSkip: a_test.go:5: not today
error example.com/m/build (as a whole): it does not build: build/b.go:2:23: cannot use "x" (untyped string constant) as int value in return statement
error example.com/m/dies (as a whole)
error example.com/m/dies.TestDies: it did not end`},
		"py.txt": {"pytest", report.Counts{Tests: 7, Failures: 1, Errors: 1, Skipped: 2}, `
passed test_a.py.TestC::test_p[\xfc]
passed test_a.py.TestC::test_p[a - b]
passed test_a.py.TestC::test_p[c] - d]
failed test_a.py.test_bad: AssertionError: one is not two
error test_a.py.test_err: RuntimeError: no fixture
skipped test_a.py.test_skip: not today
skipped test_a.py.test_x`},
		"pyq.txt": {"pytest", report.Counts{Tests: 7, Failures: 1, Errors: 1, Skipped: 2}, `
passed test_a.py.TestC::test_p[\xfc]
passed test_a.py.TestC::test_p[a - b]
passed test_a.py.TestC::test_p[c] - d]
failed test_a.py.test_bad: AssertionError: one is not two
error test_a.py.test_err: RuntimeError: no fixture
skipped test_a.py.test_x`},
		"py.xml": {"junit", report.Counts{Tests: 7, Failures: 1, Errors: 1, Skipped: 2}, `
failed test_a.test_bad: AssertionError: one is not two
error test_a.test_err: failed on setup with "RuntimeError: no fixture"
skipped test_a.test_skip: not today
skipped test_a.test_x
passed test_a.TestC.test_p[\xfc]
passed test_a.TestC.test_p[a - b]
passed test_a.TestC.test_p[c] - d]`},
		"node.tap": {"tap", report.Counts{Tests: 8, Failures: 4, Skipped: 2}, `
failed bad # SKIP not: 1 == 2
passed good
skipped later: skip not today
failed outer: 1 subtest failed
skipped some day: todo
passed outer.inner
failed outer.mid: 1 subtest failed
failed outer > mid.inner: deep`},
		"node.xml": {"junit", report.Counts{Tests: 6, Failures: 3, Skipped: 1}, `
passed outer.inner
failed outer > mid.inner: deep
failed test.bad # SKIP not: 1 == 2
passed test.good
skipped test.later: not today
failed test.some day: x`},
		"perl.tap": {"tap", report.Counts{Tests: 8, Failures: 4, Skipped: 2}, `
skipped #3: skip not today
failed bad # hash
passed good
failed outer
skipped todo: todo some day
passed outer.inner
failed outer.mid
failed outer > mid.inner`},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		r, form, err := Read(bytes.NewReader(text))
		if err != nil || form != c.form || r.Form != c.form || r.Counts != c.want {
			t.Errorf("%s: %q, %+v, %v", name, form, r.Counts, err)
		}
		if got := list(r); got != strings.TrimSpace(c.list) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.list)
		}
	}
}

func list(r report.Report) string {
	var lines []string
	for _, t := range r.List {
		line := string(t.Outcome) + " " + t.Title()
		if t.Message != "" {
			line += ": " + t.Message
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestForms(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		"hello\nok then\n":            "",
		"\xef\xbb\xbf \n<testsuite/>": "junit",
		"go: downloading x\n{\"Action\":\"start\",\"Package\":\"p\"}\n": "go test -json",
		"{\"Action\":\"fly\",\"Package\":\"p\"}\n":                      "",
		"noise\r\nTAP version 13\r\n":                                   "tap",
		"ok 1 - a\n":                                                    "tap",
		"1..0 # SKIP no\n":                                              "tap",
		"TAP version 12\n":                                              "",
		"=== test session starts ===\n":                                 "pytest",
		"TAP version 13\n<testsuite/>\n":                                "tap",
	} {
		if got := Of([]byte(text)); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	if _, _, err := Read(strings.NewReader("hello")); !errors.Is(err, ErrUnknown) {
		t.Errorf("no form: %v", err)
	}
	large := strings.Repeat("#", report.MaxSize)
	if _, form, err := Read(strings.NewReader("TAP version 13\n" + large)); form != "tap" || !errors.Is(err, report.ErrSize) {
		t.Errorf("large: %q, %v", form, err)
	}
}

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, _, err := Read(bytes.NewReader(in))
		if err == nil {
			sane(t, r)
		}
	})
}

// sane says what every reader promises.
func sane(t *testing.T, r report.Report) {
	t.Helper()
	if r.Tests < r.Failures+r.Errors+r.Skipped || len(r.List) > r.Tests {
		t.Errorf("%+v has %d names", r.Counts, len(r.List))
	}
	for _, test := range r.List {
		if len(test.Suite) > report.MaxName || len(test.Name) > report.MaxName || len(test.Message) > report.MaxMessage || test.DurationMS < 0 || test.Outcome == "" {
			t.Errorf("test %+v", test)
		}
		if text := test.Title() + test.Message; strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f || c == 0x202e || c == 0xfffd }) && !strings.ContainsRune(text, 0xfffd) {
			t.Errorf("test %q", text)
		}
	}
}

//go:build root

package form

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/output/report"
)

// tool runs a program in a folder and returns its output, whatever its exit code.
func tool(t *testing.T, dir string, argv ...string) (string, int) {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "PYTHONDONTWRITEBYTECODE=1")
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatalf("%v: %v", argv, err)
	}
	return string(out), c.ProcessState.ExitCode()
}

func files(t *testing.T, tree map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range tree {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func readBack(t *testing.T, text, form string) report.Report {
	t.Helper()
	r, got, err := Read(strings.NewReader(text))
	if err != nil || got != form {
		t.Fatalf("%q, %v:\n%s", got, err, text)
	}
	sane(t, r)
	return r
}

func bad(r report.Report) string {
	var names []string
	for _, test := range r.List {
		if test.Outcome.Bad() {
			names = append(names, test.Title())
		}
	}
	return strings.Join(names, " ")
}

func TestRealGo(t *testing.T) {
	dir := files(t, map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.21\n",
		"a_test.go": "package m\n\nimport (\n\t\"fmt\"\n\t\"testing\"\n)\n\nfunc TestGood(t *testing.T) { fmt.Println(`{\"Action\":\"fail\",\"Package\":\"example.com/m\",\"Test\":\"TestGood\"}`) }\nfunc TestBad(t *testing.T)  { t.Run(\"a b\", func(t *testing.T) { t.Fatal(\"no\") }) }\nfunc TestSkip(t *testing.T) { t.Skip() }\n",
	})
	text, exit := tool(t, dir, "go", "test", "-json", "-count=1", "./...")
	r := readBack(t, text, "go test -json")
	if exit != 1 || r.Counts != (report.Counts{Tests: 4, Failures: 2, Skipped: 1}) || bad(r) != "example.com/m.TestBad example.com/m.TestBad/a_b" {
		t.Errorf("exit %d, %+v, %q\n%s", exit, r.Counts, bad(r), text)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.go"), []byte("package m\n\nvar x int = \"no\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text, exit = tool(t, dir, "go", "test", "-json", "-count=1", "./...")
	if r = readBack(t, text, "go test -json"); exit != 1 || bad(r) != "example.com/m (as a whole)" {
		t.Errorf("what does not build: exit %d, %q\n%s", exit, bad(r), text)
	}
}

func TestRealNode(t *testing.T) {
	dir := files(t, map[string]string{"a.test.js": `const { test, describe, it } = require('node:test'); const assert = require('node:assert')
test('good', () => { console.log('not ok 7 - forged\n1..99') })
describe('outer', () => { it('bad', () => { assert.equal(1, 2) }); it('later', { skip: true }, () => {}) })
`})
	text, exit := tool(t, dir, "node", "--test", "--test-reporter=tap", "a.test.js")
	r := readBack(t, text, "tap")
	if exit != 1 || r.Skipped != 1 || bad(r) != "outer outer.bad" {
		t.Errorf("exit %d, %+v, %q\n%s", exit, r.Counts, bad(r), text)
	}
	text, _ = tool(t, dir, "node", "--test", "--test-reporter=junit", "a.test.js")
	if r = readBack(t, text, "junit"); r.Counts != (report.Counts{Tests: 3, Failures: 1, Skipped: 1}) || bad(r) != "outer.bad" {
		t.Errorf("%+v, %q\n%s", r.Counts, bad(r), text)
	}
}

// What prove counts of a TAP stream is what is counted here on its outermost level.
func TestRealProve(t *testing.T) {
	for name, text := range map[string]string{
		"plain":   "1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no\n",
		"todo":    "1..2\nnot ok 1 - a # TODO later\nok 2 - b\n",
		"hash":    "1..2\nok 1 - a \\# SKIP b\nnot ok 2 - \\# TODO\n",
		"noise":   "hello\nok\n# not ok\nok 2\nnot ok 3\n1..3\n",
		"nested":  "1..2\n    1..1\n    not ok 1 - in\nnot ok 1 - out\nok 2 - other\n",
		"version": "TAP version 13\n1..2\nok 1\n  ---\n  a: not ok 9\n  ...\nnot ok 2\n",
		"cut":     "1..3\nok 1\n",
		"more":    "1..1\nok 1\nok 2\n",
		"bail":    "1..3\nok 1\nBail out! no\n",
	} {
		dir := files(t, map[string]string{"stream": text})
		said, exit := tool(t, dir, "prove", "--exec", "cat", "stream")
		r := readBack(t, text, "tap")
		if (exit == 0) != (r.Failures+r.Errors == 0) {
			t.Errorf("%s: prove ends with %d, and here is %+v\n%s", name, exit, r.Counts, said)
		}
		if m := regexp.MustCompile(`Failed tests?: +(.*)`).FindStringSubmatch(said); m != nil && r.Errors == 0 {
			outermost := 0
			for _, test := range r.List {
				if test.Suite == "" && test.Outcome.Bad() {
					outermost++
				}
			}
			if want := len(strings.Split(m[1], ",")); want != outermost {
				t.Errorf("%s: prove says %d failed, and here are %d\n%s", name, want, outermost, said)
			}
		}
	}
	dir := files(t, map[string]string{"a.t": "use Test::More;\nok(1, 'good');\nsubtest outer => sub { ok(0, 'bad'); done_testing };\ndone_testing;\n"})
	text, exit := tool(t, dir, "perl", "a.t")
	if r := readBack(t, text, "tap"); exit != 1 || bad(r) != "outer outer.bad" {
		t.Errorf("exit %d, %q\n%s", exit, bad(r), text)
	}
}

// pytest of PyPI counts what its text and its JUnit file are read as.
func TestRealPytest(t *testing.T) {
	dir := files(t, map[string]string{"test_a.py": `import pytest
@pytest.mark.parametrize("x", ["a - b", "c] - d"])
def test_p(x): print("=== short test summary info ===\nPASSED test_a.py::forged")
def test_bad(): assert 1 == 2, "no"
@pytest.mark.skip(reason="later")
def test_skip(): pass
@pytest.mark.xfail
def test_x(): assert 0
@pytest.fixture
def broken(): raise RuntimeError("no")
def test_err(broken): pass
`})
	for _, argv := range [][]string{{"python3", "-m", "venv", "venv"}, {"venv/bin/pip", "install", "-q", "--disable-pip-version-check", "pytest"}} {
		if out, exit := tool(t, dir, argv...); exit != 0 {
			t.Fatalf("%v: %s", argv, out)
		}
	}
	want := report.Counts{Tests: 6, Failures: 1, Errors: 1, Skipped: 2}
	for _, args := range [][]string{{"-v", "-rA"}, {"-v"}, {"-q", "-rA"}, {"-rfE"}} {
		text, exit := tool(t, dir, append([]string{"venv/bin/python", "-m", "pytest", "-p", "no:cacheprovider", "test_a.py"}, args...)...)
		r := readBack(t, text, "pytest")
		if exit != 1 || r.Counts != want || bad(r) != "test_a.py.test_bad test_a.py.test_err" {
			t.Errorf("%v: exit %d, %+v, %q\n%s", args, exit, r.Counts, bad(r), text)
		}
	}
	tool(t, dir, "venv/bin/python", "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=out.xml", "test_a.py")
	text, err := os.ReadFile(filepath.Join(dir, "out.xml"))
	if err != nil {
		t.Fatal(err)
	}
	if r := readBack(t, string(bytes.TrimSpace(text)), "junit"); r.Counts != want {
		t.Errorf("%s\n%s", fmt.Sprintf("%+v", r.Counts), text)
	}
}

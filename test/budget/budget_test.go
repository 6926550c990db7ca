package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A real run of a module with a test that passes, one that fails and a package
// that does not build: the output is as `go test` has it, the exit code is its
// own, and the table follows.
func TestRunsGoTest(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module example.com/m\n\ngo 1.24\n",
		"good/a_test.go":  "package good\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) { t.Log(\"quiet\") }\n",
		"bad/b_test.go":   "package bad\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Fatal(\"loud\") }) }\n",
		"wrong/c_test.go": "package wrong\n\nvar x int = \"no\"\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out, errs strings.Builder
	code, err := run([]string{"unit", "go", "test", "./..."}, &out, &errs)
	if err != nil || code != 1 {
		t.Fatalf("code %d, %v\n%s\n%s", code, err, &out, &errs)
	}
	for _, want := range []string{"ok  \texample.com/m/good", "loud", "FAIL\texample.com/m/bad", "example.com/m/wrong", "suite unit: ", " of 5m0s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s\n%s", want, &out, &errs)
		}
	}
	if strings.Contains(out.String(), "quiet") {
		t.Errorf("a test that passed is heard:\n%s", &out)
	}
	for _, args := range [][]string{nil, {"unit"}, {"none", "go", "test", "./..."}, {"unit", "rm", "-r"}} {
		if _, err := run(args, &out, &errs); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

func TestTableMarksWhatIsOver(t *testing.T) {
	r := newReport()
	events := `{"Action":"pass","Package":"m/test/e2e","Test":"TestLong","Elapsed":61}
{"Action":"pass","Package":"m/test/e2e","Test":"TestLong/part","Elapsed":60}
{"Action":"pass","Package":"m/test/e2e","Elapsed":62}
{"Action":"pass","Package":"m/small","Elapsed":0.1}
{"Action":"output","Package":"m/cut","Test":"TestCut","Output":"panic here\n"}
{"Action":"fail","Package":"m/cut","Elapsed":3}
no event
`
	var out strings.Builder
	if err := r.read(strings.NewReader(events), &out); err != nil || out.String() != "panic here\nno event\n" {
		t.Fatalf("%v\n%s", err, &out)
	}
	out.Reset()
	r.table(&out, "x", suite{total: time.Minute, each: 10 * time.Second, packages: map[string]time.Duration{"test/e2e": time.Minute}}, 65*time.Second)
	want := `
suite x: 1m5s of 1m0s  OVER by 5.0s
      1m2s of 1m0s     m/test/e2e  OVER by 2.0s
      3.0s of 10.0s    m/cut
  the slowest tests:
      1m1s             TestLong in m/test/e2e
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

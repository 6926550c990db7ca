package verification

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
)

func TestPrint(t *testing.T) {
	zero, one := 0, 1
	many := api.TestNames{Count: 120}
	for i := range 100 {
		many.First = append(many.First, api.TestName{Suite: "s", Name: fmt.Sprintf("T%d", i)})
	}
	task := api.Task{Verification: &api.Verification{
		Digest: "sha256:e", Outcome: "flaky", Flags: []string{"flaky", "removed-tests"},
		Runs: []api.VerifyRun{
			{Run: "patch", ExitCode: &one, Text: "the verify command exited with 1", Tests: &api.TestCounts{Tests: 5, Failures: 1, Errors: 1, Skipped: 1}},
			{Run: "again", ExitCode: &zero}, {Run: "base", Problem: "no file"},
		},
		Flaky:      &api.TestNames{Count: 1, First: []api.TestName{{Suite: "p", Name: "TestF"}}},
		Comparison: &api.TestComparison{NewlyPassing: api.TestNames{Count: 1, First: []api.TestName{{Suite: "p", Message: "\x1b[2Jevil"}}}, Removed: many},
		Findings:   []api.TestFinding{{Kind: "file-removed", Path: "a_test.go", Removed: 9}}, More: 3,
	}}
	var out bytes.Buffer
	if err := Print(&out, task); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"flaky: flaky, 1 newly passing, 120 removed compared with the base, 4 findings about tests", "sha256:e", "flaky removed-tests",
		"(as a whole)", `\x1b[2Jevil`, "T19", "(100 more;", "file-removed", "-9 +0", "3 more", "no file",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "T20") || strings.Contains(text, "\x1b[2J") {
		t.Errorf("has too much:\n%s", text)
	}
	out.Reset()
	if err := Print(&out, api.Task{}); err != nil || out.Len() > 0 || Brief(api.Task{}) != "" {
		t.Errorf("nothing verified is %q, %v", out.String(), err)
	}
	if got := Brief(api.Task{Verification: &api.Verification{Comparison: &api.TestComparison{}}}); got != ": no test differs compared with the base" {
		t.Errorf("nothing differs is %q", got)
	}
}

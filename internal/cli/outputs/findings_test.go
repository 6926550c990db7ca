package outputs

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
)

// What a server says of findings is shown escaped, like all that may come from
// inside.
func TestFindingsAreShownEscaped(t *testing.T) {
	var out strings.Builder
	if err := Findings(&out, []api.Output{{Name: "log"}}); err != nil || out.Len() != 0 {
		t.Errorf("%v %q", err, out.String())
	}
	list := []api.Output{{Name: "patch", Findings: []api.Finding{
		{ID: "workflow.github", Verdict: "approve", Severity: "high", Path: ".github/workflows/a.yml", Why: "It runs in CI."},
		{ID: "secret.x", Verdict: "refuse", Severity: "high", Path: "a\x1b[2J\u202eb", Line: 7, Why: "w"},
		{ID: "bulk.lines", Verdict: "allow", Severity: "low", Why: "much"},
	}}}
	if err := Findings(&out, list); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"FOUND", "workflow.github", "approve", "It runs in CI.", `a\x1b[2J\u202eb:7`, "bulk.lines"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("%q", text)
	}
}

//go:build root

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	suite "github.com/cofferdam/cofferdam/internal/attack"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// assault runs the attack suite and returns its report and its exit code.
func assault(t *testing.T, e *testenv.Env, args ...string) (suite.Report, int) {
	t.Helper()
	cmd := e.Command(append([]string{"doctor", "--attack", "--json"}, args...)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	var rep suite.Report
	if jerr := json.Unmarshal(out, &rep); jerr != nil {
		t.Fatalf("prints %q, %q: %v", out, complaint.String(), jerr)
	}
	return rep, testenv.ExitCode(err)
}

// On a platform as it is, every check is tried and holds, and nothing is left.
func TestAttackHolds(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	page := filepath.Join(t.TempDir(), "report.html")
	before, _ := filepath.Glob("/var/tmp/cofferdam-a*-*") // canaries, and platforms apart
	// On a busy machine the usual time may be too short; what is then untried is
	// another test's.
	rep, code := assault(t, e, "--page", page, "--within", "10m", "--bin", testenv.Bin(t))
	if code != 0 || !rep.OK || rep.Held != len(rep.Checks) || rep.Held < 280 {
		t.Errorf("ends with %d: %d held, %d fell, %d untried", code, rep.Held, rep.Fell, rep.Untried)
	}
	for _, c := range rep.Checks {
		if c.Outcome != suite.Held || c.Tried == "" || c.Happened == "" {
			t.Errorf("%+v", c)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), `<td class="held">`); n != rep.Held || strings.Contains(string(text), "<script") {
		t.Errorf("the page tells of %d checks", n)
	}
	left, err := e.Client.Sandboxes(t.Context())
	if err != nil || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
	after, _ := filepath.Glob("/var/tmp/cofferdam-a*-*")
	if left, _ := testenv.Diff(before, after); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// When the time is used up the run ends, says of each check that was not reached
// that it is untried, and leaves nothing.
func TestAttackIsCut(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	before, _ := filepath.Glob("/var/tmp/cofferdam-a*-*")
	rep, code := assault(t, e, "--within", "1s", "--allow-untried")
	if code == 0 || rep.OK || !rep.Cut || rep.Untried == 0 || rep.Fell > 0 {
		t.Errorf("ends with %d: %d held, %d fell, %d untried", code, rep.Held, rep.Fell, rep.Untried)
	}
	for _, c := range rep.Checks {
		if strings.HasPrefix(c.ID, "credential.") && (c.Outcome != suite.Untried || !strings.Contains(c.Happened, "time")) {
			t.Errorf("%+v", c)
		}
	}
	left, err := e.Client.Sandboxes(t.Context())
	if err != nil || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
	after, _ := filepath.Glob("/var/tmp/cofferdam-a*-*")
	if left, _ := testenv.Diff(before, after); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

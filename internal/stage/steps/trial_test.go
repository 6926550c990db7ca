package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/output/evidence"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// suite is a project whose tests are the lines of one_test.py: a name, and what
// answer must hold. Its verify command writes TAP.
const (
	suiteRepo = `printf 'broken\n' > answer; printf 'a fixed\nb broken|fixed\nc .\n' > one_test.py; git add .; git commit -qm one`
	suiteRun  = `n=0 bad=0; while read -r name want; do n=$((n+1))
if grep -qE "^($want)" answer; then echo "ok $n - $name"; else echo "not ok $n - $name"; bad=1; fi; done < one_test.py; echo "1..$n"; exit $bad`
)

func suite(t *testing.T, agent, verify string) *house {
	t.Helper()
	h := newHouse(t, task.Spec{Agent: shell(agent), Verify: verify, Report: "-"})
	h.task.Spec.Repo.Bundle = h.repository(suiteRepo)
	return h
}

func (h *house) evidence() evidence.Evidence {
	h.t.Helper()
	var e evidence.Evidence
	if err := json.Unmarshal([]byte(h.bytes("evidence")), &e); err != nil {
		h.t.Fatal(err)
	}
	return e
}

func listOf(l evidence.List) string {
	var names []string
	for _, t := range l.First {
		names = append(names, t.Name)
	}
	return strings.Join(names, " ")
}

func TestComparedWithTheBase(t *testing.T) {
	for name, c := range map[string]struct {
		agent            string
		want             task.Reason
		failing, passing string
		still, removed   string
		flags            []string
	}{
		"fixed":    {agent: "echo fixed > answer", passing: "a", flags: []string{}},
		"broken":   {agent: "echo worse > answer", want: task.VerifyFailed, failing: "b", still: "a", flags: []string{"newly-failing"}},
		"deleted":  {agent: "sed -i /^a/d one_test.py", removed: "a", flags: []string{"removed-tests"}},
		"nothing":  {agent: "true", want: task.VerifyFailed, still: "a", flags: []string{}},
		"weakened": {agent: "echo 'a .' > one_test.py", removed: "b c", passing: "a", flags: []string{"removed-tests"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := suite(t, c.agent, suiteRun)
			o := h.through(task.Verify, 1)
			if o.Reason != c.want {
				t.Fatalf("outcome %+v", o)
			}
			e := h.evidence()
			if e.Comparison == nil {
				t.Fatalf("uncompared: %s", e.Uncompared)
			}
			if f, p, s, r := listOf(e.Comparison.NewlyFailing), listOf(e.Comparison.NewlyPassing), listOf(e.Comparison.StillFailing), listOf(e.Comparison.Removed); f != c.failing || p != c.passing || s != c.still || r != c.removed {
				t.Errorf("failing %q, passing %q, still %q, removed %q", f, p, s, r)
			}
			if !slices.Equal(e.Flags, c.flags) || e.Base != h.task.Commit || e.Patch != h.outputOf("patch").Digest || e.Command != suiteRun {
				t.Errorf("evidence %+v", e)
			}
			if h.audit["verify.judged/"+string(h.outputOf("evidence").Digest)] != "verify.judged" {
				t.Errorf("the account has %v", h.audit)
			}
			for _, run := range e.Runs {
				if run.Whole == "" || run.Whole != h.outputOf("tests."+run.Run).Digest {
					t.Errorf("run %+v", run)
				}
			}
			if got := h.machine.alive(); len(got) != 1 {
				t.Errorf("sandboxes are left: %v", got)
			}
			if text := h.bytes("log.verify.base"); !strings.Contains(text, "not ok 1 - a") {
				t.Errorf("the base's log is %q", text)
			}
		})
	}
}

func TestAFlakyCommandRunsOnceMore(t *testing.T) {
	for name, c := range map[string]struct {
		plan task.Verifying
		bad  int // the first so many runs with the patch fail
		want task.Reason
		runs int
		out  string
	}{
		"flaky fails":    {task.Verifying{}, 1, task.VerifyFailed, 2, "flaky"},
		"flaky passes":   {task.Verifying{Flaky: "passes"}, 1, "", 2, "flaky"},
		"fails twice":    {task.Verifying{Flaky: "passes"}, 2, task.VerifyFailed, 2, "failed"},
		"no rerun":       {task.Verifying{Rerun: "none", Flaky: "passes"}, 1, task.VerifyFailed, 1, "failed"},
		"passes at once": {task.Verifying{}, 0, "", 1, "passed"},
	} {
		t.Run(name, func(t *testing.T) {
			// Outside of every sandbox: the machine maps what begins with /tmp/.
			count := strings.Replace(filepath.Join(t.TempDir(), "count"), "/tmp/", "/t''mp/", 1)
			verify := fmt.Sprintf("echo x >> %[1]s; if [ $(wc -l < %[1]s) -le %[2]d ]; then echo 'not ok 1 - f'; echo 1..1; exit 1; fi; echo 'ok 1 - f'; echo 1..1", count, c.bad)
			h := suite(t, "echo fixed > answer", verify)
			c.plan.Compare = "none"
			h.plan.plan.Verifying = c.plan
			o := h.through(task.Verify, 1)
			e := h.evidence()
			if o.Reason != c.want || e.Outcome != c.out || e.Passes != (c.want == "") || len(e.Runs) != c.runs || e.Comparison != nil || e.Uncompared != "" {
				t.Fatalf("outcome %+v, evidence %+v", o, e)
			}
			if flaky := c.out == "flaky"; flaky && (e.Flaky == nil || listOf(*e.Flaky) != "f") || flaky != slices.Contains(h.outputOf("evidence").Flags, "flaky") {
				t.Errorf("evidence %+v", e)
			}
			if c.out == "flaky" && c.want != "" && !strings.Contains(o.Text, "verify.flaky") {
				t.Errorf("the stage says %q", o.Text)
			}
		})
	}
}

// A base that can't be verified is said, and nothing fails for it.
func TestBaseThatCannotBeVerified(t *testing.T) {
	h := suite(t, "echo fixed > answer", suiteRun)
	h.machine.onRun = func(id, command string) error {
		if command == "verify-checkout" && id == stage.RoundSandboxID(taskID, 1, "verify.base", 1) {
			return task.Fail(task.LimitSize, "no room", nil)
		}
		return nil
	}
	succeeds(t, h.through(task.Verify, 1))
	if e := h.evidence(); e.Comparison != nil || !strings.Contains(e.Uncompared, "no room") || !slices.Equal(e.Flags, []string{"uncompared"}) {
		t.Errorf("evidence %+v", e)
	}
	// A fault of the infrastructure runs the stage again, and what was run is not.
	h = suite(t, "echo fixed > answer", suiteRun)
	succeeds(t, h.through(task.Export, 1))
	h.machine.onRun = func(id, command string) error {
		if command == "verify" && strings.HasPrefix(id, "sb-") && id != stage.RoundSandboxID(taskID, 1, "verify", 1) && id != stage.RoundSandboxID(taskID, 1, "verify", 2) && id != stage.RoundSandboxID(taskID, 1, "verify", 3) {
			return task.Fail(task.InfraWorkerLost, "gone", nil)
		}
		return nil
	}
	for round := 1; round <= stage.MaxRounds; round++ {
		o, err := h.work.Do(t.Context(), task.Verify, stage.Input{Task: taskID, Attempt: 1, Round: round})
		if err != nil || (o.State == task.StageSucceeded) != (round == stage.MaxRounds) {
			t.Fatalf("round %d: %+v, %v", round, o, err)
		}
	}
	if e := h.evidence(); !e.Passes || e.Comparison != nil || !strings.Contains(e.Uncompared, "gone") {
		t.Errorf("evidence %+v", e)
	}
}

// However often the stage is cut off, each run is made once, and kept once.
func TestRunsOfTheVerifyCommandSurviveCuts(t *testing.T) {
	h := suite(t, "echo worse > answer", "echo said; "+suiteRun)
	succeeds(t, h.through(task.Export, 1))
	in := stage.Input{Task: taskID, Attempt: 1, Round: 1}
	for cut := 1; cut < 20; cut++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		h.machine.onRun = func(string, string) error {
			if calls++; calls >= cut {
				cancel(ErrStopping)
				return ctx.Err()
			}
			return nil
		}
		_, err := h.work.Do(ctx, task.Verify, in)
		cancel(nil)
		if err == nil {
			break
		}
	}
	h.machine.onRun = nil
	first := h.do(task.Verify, 1)
	fails(t, first, task.VerifyFailed, "exited with 1")
	for _, run := range []string{"verify", "verify.again", "verify.base"} {
		if n := h.machine.starts[stage.RoundSandboxID(taskID, 1, run, 1)+"/verify"]; n != 1 {
			t.Errorf("%s was started %d times", run, n)
		}
	}
	for _, log := range []string{"log.verify", "log.verify.again", "log.verify.base"} {
		if text := h.bytes(log); strings.Count(text, "said\n") != 1 || strings.Count(text, "1..3\n") != 1 {
			t.Errorf("%s is %q", log, text)
		}
	}
	judged := 0
	for _, kind := range h.audit {
		if kind == "verify.judged" {
			judged++
		}
	}
	if e := h.evidence(); judged != 1 || len(e.Runs) != 3 || listOf(e.Comparison.NewlyFailing) != "b" {
		t.Errorf("judged %d times: %+v", judged, e)
	}
}

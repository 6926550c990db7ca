//go:build root

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// waitsForBudget waits until the task waits for its budget.
func waitsForBudget(t *testing.T, e *testenv.Env, id string) api.Task {
	t.Helper()
	var got api.Task
	testenv.Until(t, patience, "the task to wait for its budget", func() bool {
		have, err := e.Client.Task(context.Background(), id)
		if err != nil {
			return false
		}
		if have.Ended() {
			t.Fatalf("the task ended: %s %s %s\n%s", have.State, have.Reason, have.Text, e.Logs())
		}
		got = have
		return have.State == api.Waiting
	})
	if got.Reason != "limit.spend" || !strings.Contains(got.Text, "cofferdam task budget "+id) {
		t.Errorf("the task waits for %s: %s", got.Reason, got.Text)
	}
	return got
}

// checkSpent looks at what is told and on record of a task whose budget was
// raised once.
func checkSpent(t *testing.T, e *testenv.Env, got api.Task, requests int64) {
	t.Helper()
	if len(got.Usage.Models) != 1 || got.Usage.Models[0].Requests < requests || !got.Usage.Models[0].Priced || got.Usage.USD <= 0 || got.Usage.Models[0].Input < 100*requests {
		t.Errorf("usage %+v", got.Usage)
	}
	if out, err := e.CLI("task", "show", got.ID); err != nil || !strings.Contains(out, "claude-") || !strings.Contains(out, "BUDGET") {
		t.Errorf("task show: %v\n%s", err, out)
	}
	export, err := e.CLI("audit", "export")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"budget.met", "budget.set", "budget.over", "model.used"} {
		if !strings.Contains(export, `"`+kind+`"`) {
			t.Errorf("no record %s", kind)
		}
	}
}

// The loop meets its budget of tokens, waits, also while cofferdamd is killed,
// and goes on where it was once the budget is raised.
func TestBudgetOfTheLoop(t *testing.T) {
	s := startScripted(t, modeltest.Options{Key: modelKey, Steps: []modeltest.Step{
		{Calls: []modeltest.ToolCall{{Name: "shell", Input: `{"command":"echo ran >> ran"}`}}},
		{Calls: []modeltest.ToolCall{{Name: "edit", Input: `{"path":"answer.txt","old":"41","new":"42"}`}}},
		{Text: "Done."},
	}})
	e := s.env
	before := e.Census()
	id := submit(t, e, api.TaskRequest{
		Policy: "version: 1\nlimits: {tokens: 300}\n", Prompt: "mend it", Repo: bundle(t, e, small(t)), Agent: s.loop(),
		Verify: "./check.sh && test \"$(cat ran)\" = ran",
	}).ID
	got := waitsForBudget(t, e, id)
	if n := s.Asked(); n != 2 { // 160 tokens each
		t.Errorf("the model was asked %d times", n)
	}
	if len(got.Budgets) != 1 || got.Budgets[0].Tokens != 300 || got.Budgets[0].UsedTokens != 320 {
		t.Errorf("budgets %+v", got.Budgets)
	}
	old := e.Kill("cofferdamd")
	e.Reborn("cofferdamd", old)
	waitsForBudget(t, e, id)
	if out, err := e.CLI("task", "budget", id, "--tokens", "400"); err != nil || !strings.Contains(out, "320 of 400") {
		t.Errorf("task budget: %v\n%s", err, out)
	}
	got = e.WaitTask(id, patience)
	must(t, e, got, api.Succeeded, "")
	if n := s.Asked(); n != 3 {
		t.Errorf("the model was asked %d times", n)
	}
	if m := got.Usage.Models; len(m) != 1 || m[0].Input != 300 || m[0].CacheRead != 120 || m[0].Output != 60 {
		t.Errorf("usage %+v", m)
	}
	checkSpent(t, e, got, 3)
	e.Unchanged(before)
}

// What asks a model from inside meets a budget of money: its request is held and
// its processes are stopped, also while the gateway and cofferdamd are killed;
// it goes on once the budget is raised.
func TestBudgetOfASandbox(t *testing.T) {
	s := startScripted(t, modeltest.Options{Key: modelKey, Steps: []modeltest.Step{{Text: "Yes."}}})
	e := s.env
	cmd := e.Command("credential", "add", "inside", "--header", "X-Api-Key", "--env", "MODEL_KEY", "--host", "model.test", "--port", fmt.Sprint(s.port))
	cmd.Stdin = strings.NewReader(modelKey)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
	before := e.Census()
	script := strings.NewReplacer("PORT", fmt.Sprint(s.port), "SIGNAL", fmt.Sprint(s.signal.port)).Replace(`
(while :; do curl -s http://signal.test:SIGNAL/began; sleep 0.2; done) &
n=0
while [ $n -lt 4 ]; do
	code=$(curl -sS -o out -w '%{http_code}' -H "X-Api-Key: $MODEL_KEY" -H 'Content-Type: application/json' -d '{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[]}' https://model.test:PORT/v1/messages 2>err)
	cat err; echo "answered $code"
	case $code in 200) n=$((n+1));; 403) cat out; exit 1;; *) sleep 0.2;; esac
done
rm out err; echo 42 > answer.txt`)
	id := submit(t, e, api.TaskRequest{
		// 612 millionths of a dollar each.
		Policy: fmt.Sprintf("version: 1\nlimits: {usd: 0.001}\nagent: {network: {allow: [{host: model.test, ports: [%d], credential: inside}, {host: signal.test, ports: [%d]}]}}\n", s.port, s.signal.port),
		Prompt: "mend it", Repo: bundle(t, e, small(t)), Agent: api.Agent{Name: "command", Argv: []string{"sh", "-c", script}}, Verify: "./check.sh",
	}).ID
	got := waitsForBudget(t, e, id)
	asked := len(s.Seen())
	if asked < 2 || asked > 3 { // one more may be under way when it is met
		out, err := e.CLI("task", "egress", id)
		t.Errorf("the model was asked %d times: %v\n%s", asked, err, out)
	}
	stopped := func() bool { // nothing of it asks any more
		before := s.signal.began.Load()
		<-time.After(2 * time.Second)
		return s.signal.began.Load() == before
	}
	testenv.Until(t, patience, "its processes to be stopped", stopped)
	for _, daemon := range []string{"gateway", "cofferdamd"} {
		old := e.Kill(daemon)
		e.Reborn(daemon, old)
	}
	got = waitsForBudget(t, e, id)
	testenv.Until(t, patience, "its processes to be stopped still", stopped)
	if len(s.Seen()) != asked {
		t.Error("a model was asked beyond the budget")
	}
	if out, err := e.CLI("task", "budget", id, "--usd", "1"); err != nil || !strings.Contains(out, "of 1.00") {
		t.Errorf("task budget: %v\n%s", err, out)
	}
	got = e.WaitTask(id, patience)
	must(t, e, got, api.Succeeded, "")
	checkSpent(t, e, got, 4)
	e.Unchanged(before)
}

// A real harness meets its budget, is stopped, and mends the repository once the
// budget is raised.
func TestBudgetOfAHarness(t *testing.T) {
	c := harnessCases()[0]
	s := startAgents(t, modeltest.Options{Key: realKey, Steps: mend()}, c)
	if out, err := s.env.CLI("budget", "set", "user", "admin", "--tokens", "200", "--per", "day"); err != nil {
		t.Fatalf("budget set: %v\n%s", err, out)
	}
	id := submit(t, s.env, api.TaskRequest{Prompt: "mend the answer", Repo: bundle(t, s.env, small(t)), Agent: c.agent(s), Verify: "./check.sh"}).ID
	waitsForBudget(t, s.env, id)
	if out, err := s.env.CLI("budget", "set", "user", "admin", "--tokens", "1000000"); err != nil || !strings.Contains(out, "day") {
		t.Fatalf("budget set: %v\n%s", err, out)
	}
	got := s.env.WaitTask(id, patience)
	must(t, s.env, got, api.Succeeded, "")
	if len(got.Usage.Models) == 0 || len(got.Budgets) != 1 || got.Budgets[0].UsedTokens < 3*160 {
		t.Errorf("usage %+v, budgets %+v", got.Usage.Models, got.Budgets)
	}
	sawOnlyTheRealKey(t, s)
}

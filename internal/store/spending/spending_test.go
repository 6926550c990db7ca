package spending_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/spending"
	"github.com/cofferdam/cofferdam/internal/task"
)

const victimVariable = "COFFERDAM_SPENDING_TEST_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVariable); dir != "" {
		if err := victim(dir, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type rig struct {
	t     *testing.T
	store *store.Store
	rows  *spending.Rows
	now   time.Time
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, now: time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)}
	var err error
	if r.store, err = store.Open(t.Context(), store.Options{Dir: t.TempDir(), Now: func() time.Time { return r.now }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	r.rows = spending.New(r.store.Base())
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) task(who, project string) string {
	r.t.Helper()
	t, _, err := r.store.CreateTask(r.t.Context(), task.Task{RequestedBy: who, Spec: task.Spec{Project: project}}, "")
	r.must(err)
	return t.ID
}

func record(seq int64, box string, t *task.ModelTokens) task.EgressRecord {
	return task.EgressRecord{Seq: seq, Sandbox: box, Verdict: "allowed", Done: true, Request: 1, Tokens: t}
}

func (r *rig) spent(scope task.BudgetScope, name string, since time.Time) string {
	r.t.Helper()
	list, err := r.rows.Spent(r.t.Context(), scope, name, since)
	r.must(err)
	var text []string
	for _, m := range list {
		text = append(text, fmt.Sprintf("%s %d/%d: %d %d %d %d", m.Model, m.Requests, m.Estimates, m.Input, m.Output, m.CacheRead, m.CacheWrite))
	}
	return strings.Join(text, ", ")
}

// What records say is summed by task, user, project and day, and a record that
// comes twice counts once.
func TestSums(t *testing.T) {
	r := newRig(t)
	a, b := r.task("alice", "web"), r.task("alice", "")
	c := r.task("bob", "web")
	ctx := t.Context()
	big := &task.ModelTokens{Model: "big", Input: 10, Output: 2, CacheRead: 3, CacheWrite: 4}
	guess := &task.ModelTokens{Model: "small", Input: 1, Output: 1, Estimated: true}
	for range 2 {
		r.must(r.store.AddEgress(ctx, a, []task.EgressRecord{record(1, "sb-a", big), record(2, "sb-a", nil), record(3, "sb-a", big)}))
		r.must(r.store.AddEgress(ctx, a, []task.EgressRecord{record(3, "sb-a", big), record(4, "sb-a", guess)}))
	}
	r.must(r.store.AddEgress(ctx, a, []task.EgressRecord{record(1, "sb-a/loop", big)}))
	r.now = r.now.Add(2 * time.Hour) // the next day, and month
	r.must(r.store.AddEgress(ctx, b, []task.EgressRecord{record(1, "sb-b", guess)}))
	r.must(r.store.AddEgress(ctx, c, []task.EgressRecord{record(1, "sb-c", guess)}))
	for _, w := range []struct {
		scope task.BudgetScope
		name  string
		per   task.BudgetPeriod
		want  string
	}{
		{task.BudgetTask, a, task.PerTask, "big 3/0: 30 6 9 12, small 1/1: 1 1 0 0"},
		{task.BudgetUser, "alice", task.PerTask, "big 3/0: 30 6 9 12, small 2/2: 2 2 0 0"},
		{task.BudgetUser, "alice", task.PerDay, "small 1/1: 1 1 0 0"},
		{task.BudgetUser, "alice", task.PerMonth, "small 1/1: 1 1 0 0"},
		{task.BudgetProject, "web", task.PerTask, "big 3/0: 30 6 9 12, small 2/2: 2 2 0 0"},
		{task.BudgetProject, "web", task.PerDay, "small 1/1: 1 1 0 0"},
		{task.BudgetUser, "carol", task.PerDay, ""},
	} {
		if got := r.spent(w.scope, w.name, w.per.Start(r.now)); got != w.want {
			t.Errorf("%s %s per %s: %s, want %s", w.scope, w.name, w.per, got, w.want)
		}
	}
	if _, err := r.rows.Spent(ctx, "", "x", time.Time{}); err == nil {
		t.Error("the zero scope has sums")
	}
	if n, err := r.rows.LastSeq(ctx, "sb-a"); err != nil || n != 4 {
		t.Errorf("the last record is %d, %v", n, err)
	}
}

func TestBudgets(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	at := r.now
	user := task.Budget{Scope: task.BudgetUser, Name: "alice", Tokens: 5, Per: task.PerDay, By: "admin", At: at}
	project := task.Budget{Scope: task.BudgetProject, Name: "web", MicroUSD: 7, Per: task.PerMonth, By: "admin", At: at}
	own := task.Budget{Scope: task.BudgetTask, Name: "t-1", Tokens: task.NoLimit, MicroUSD: 3, Per: task.PerTask, By: "alice", At: at}
	for _, b := range []task.Budget{user, project, own} {
		r.must(r.rows.SetBudget(ctx, b))
	}
	user.Tokens = 6
	r.must(r.rows.SetBudget(ctx, user))
	if list, err := r.rows.Budgets(ctx); err != nil || len(list) != 2 || list[0] != project || list[1] != user {
		t.Errorf("%+v, %v", list, err)
	}
	if got, err := r.rows.Budget(ctx, task.BudgetTask, "t-1"); err != nil || got != own {
		t.Errorf("%+v, %v", got, err)
	}
	r.must(r.rows.SetBudget(ctx, task.Budget{Scope: task.BudgetUser, Name: "alice"}))
	if got, err := r.rows.Budget(ctx, task.BudgetUser, "alice"); err != nil || got != (task.Budget{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWaits(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	id := r.task("alice", "")
	first, err := r.rows.Begin(ctx, task.BudgetWait{Task: id, Sandbox: "sb-1", Text: "why", Since: r.now, Until: r.now.Add(time.Hour)})
	r.must(err)
	again, err := r.rows.Begin(ctx, task.BudgetWait{Task: id, Sandbox: "sb-2", Text: "other", Since: r.now.Add(1), Until: r.now})
	if err != nil || again.Number != 1 || again.Text != "why" || again.Sandbox != "sb-2" || !again.Since.Equal(first.Since) {
		t.Errorf("%+v, %v", again, err)
	}
	end := r.now.Add(time.Minute)
	again.Ended, again.Raised = &end, true
	r.must(r.rows.End(ctx, again))
	later := end.Add(time.Minute)
	r.must(r.rows.End(ctx, task.BudgetWait{Task: id, Number: 1, Ended: &later}))
	if list, err := r.rows.Of(ctx, id); err != nil || len(list) != 1 || !list[0].Raised || !list[0].Ended.Equal(end) {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := r.rows.Open(ctx); err != nil || len(list) != 1 { // the audit has neither record
		t.Errorf("%+v, %v", list, err)
	}
	r.must(r.rows.Told(ctx, id, 1, 2))
	r.must(r.rows.Told(ctx, id, 1, 1))
	if list, err := r.rows.Open(ctx); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	second, err := r.rows.Begin(ctx, task.BudgetWait{Task: id, Since: r.now, Until: r.now})
	if err != nil || second.Number != 2 {
		t.Errorf("%+v, %v", second, err)
	}
}

// A removed task's budget and waits go at once; its sums when no budget counts
// them any more.
func TestForgotten(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	id := r.task("alice", "")
	r.must(r.store.AddSandbox(ctx, id, sandbox.Spec{ID: "sb-aaaaaaaaaaaaaaaa", Task: id}))
	if got, err := r.rows.TaskOf(ctx, "sb-aaaaaaaaaaaaaaaa"); err != nil || got != id {
		t.Errorf("%q, %v", got, err)
	}
	r.must(r.store.AddEgress(ctx, id, []task.EgressRecord{record(1, "sb-a", &task.ModelTokens{Model: "m", Input: 1})}))
	r.must(r.rows.SetBudget(ctx, task.Budget{Scope: task.BudgetTask, Name: id, Tokens: 1, Per: task.PerTask, At: r.now}))
	_, err := r.rows.Begin(ctx, task.BudgetWait{Task: id, Since: r.now, Until: r.now})
	r.must(err)
	r.must(r.store.SetTask(ctx, id, stage.TaskUpdate{State: task.Failed, Reason: task.LimitSpend}))
	_, err = r.store.RemoveTask(ctx, id, "alice")
	r.must(err)
	if list, err := r.rows.Open(ctx); err != nil || len(list) != 0 {
		t.Errorf("waits are left: %v, %v", list, err)
	}
	if b, err := r.rows.Budget(ctx, task.BudgetTask, id); err != nil || b != (task.Budget{}) {
		t.Errorf("the budget is left: %v, %v", b, err)
	}
	if got := r.spent(task.BudgetUser, "alice", time.Time{}); got != "m 1/0: 1 0 0 0" {
		t.Errorf("the user's sum lost it: %s", got)
	}
	r.now = r.now.AddDate(0, 2, 0)
	other := r.task("bob", "")
	r.must(r.store.SetTask(ctx, other, stage.TaskUpdate{State: task.Failed}))
	_, err = r.store.RemoveTask(ctx, other, "bob")
	r.must(err)
	if got := r.spent(task.BudgetUser, "alice", time.Time{}); got != "" {
		t.Errorf("sums of a task that is gone stay for ever: %s", got)
	}
}

// victim counts one token a record until it is killed, and says which it knows
// to be kept. It repeats the last of before, as a worker does that heard no
// answer.
func victim(dir string, out io.Writer) error {
	ctx := context.Background()
	s, err := store.Open(ctx, store.Options{Dir: dir})
	if err != nil {
		return err
	}
	open, err := s.OpenTasks(ctx)
	if err != nil {
		return err
	}
	if len(open) == 0 {
		t, _, err := s.CreateTask(ctx, task.Task{RequestedBy: "victim"}, "")
		if err != nil {
			return err
		}
		open = []string{t.ID}
	}
	last, err := spending.New(s.Base()).LastSeq(ctx, "sb-1")
	if err != nil {
		return err
	}
	for n := max(last, 1); ; n++ {
		if err := s.AddEgress(ctx, open[0], []task.EgressRecord{record(n, "sb-1", &task.ModelTokens{Model: "m", Input: 1})}); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, n); err != nil {
			return err
		}
	}
}

// Whatever is killed: what was said to be counted is, and exactly once.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	var said int64
	for round := range 5 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), victimVariable+"="+dir)
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			if _, err := fmt.Sscan(lines.Text(), &said); err != nil {
				t.Fatal(err)
			}
			if i == 3+round*2 {
				_ = c.Process.Kill() // it may have failed by itself
			}
		}
		var ended *exec.ExitError
		if err := c.Wait(); !errors.As(err, &ended) || ended.ExitCode() != -1 {
			t.Fatalf("the victim was not killed: %v", err)
		}
	}
	s, err := store.Open(t.Context(), store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows := spending.New(s.Base())
	list, err := rows.Spent(t.Context(), task.BudgetUser, "victim", time.Time{})
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	last, err := rows.LastSeq(t.Context(), "sb-1")
	if err != nil || list[0].Input != last || list[0].Requests != last || last < said {
		t.Errorf("%d tokens of %d records, %d said: %v", list[0].Input, last, said, err)
	}
}

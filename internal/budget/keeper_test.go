package budget

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Every budget that binds a task is asked for each request.
func TestBudgetsThatBind(t *testing.T) {
	user := func(name string, tokens, usd int64, per task.BudgetPeriod) func(*rig) {
		return func(r *rig) {
			_, err := r.Set(r.t.Context(), task.BudgetUser, name, Change{Tokens: tokens, MicroUSD: usd, Per: per, By: "admin", Admin: true})
			r.must(err)
		}
	}
	project := func(name string, tokens int64) func(*rig) {
		return func(r *rig) {
			_, err := r.Set(r.t.Context(), task.BudgetProject, name, Change{Tokens: tokens, By: "admin", Admin: true})
			r.must(err)
		}
	}
	for name, c := range map[string]struct {
		own   task.Limits
		set   func(*rig)
		model string
		want  string // the beginning of why it waits; empty: it goes
		free  bool
	}{
		"nothing":                {free: true},
		"the policy's tokens":    {own: task.Limits{Tokens: 100}, want: "the task may use 100 tokens, and they are used up"},
		"more of them":           {own: task.Limits{Tokens: 101}},
		"the policy's money":     {own: task.Limits{MicroUSD: 100}, want: "the task may spend 0.0001 USD, and they are spent"},
		"more of it":             {own: task.Limits{MicroUSD: 101}},
		"no price":               {own: task.Limits{MicroUSD: 1e6}, model: "dear", want: "the task may spend 1.00 USD, and what the model dear costs is not known"},
		"no price, tokens alone": {own: task.Limits{Tokens: 101}, model: "dear"},
		"the user's":             {set: user("alice", 100, 0, "day"), want: "user alice may use 100 tokens a day"},
		"another user's":         {set: user("bob", 100, 0, "day"), free: true},
		"every user's":           {set: user("*", 0, 50, "month"), want: "user alice may spend 0.00005 USD a month"},
		"the project's":          {set: project("web", 99), want: "project web may use 99 tokens a month"},
		"another project's":      {set: project("app", 99), free: true},
		"the user's own over all's": {set: func(r *rig) {
			user("*", 1, 0, "")(r)
			user("alice", 1000, 0, "")(r)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.own = c.own
			id := r.runs("alice", "web").ID
			if c.set != nil {
				c.set(r)
			}
			if c.model == "" {
				c.model = "cheap"
			}
			r.uses(c.model, 100)
			a := r.asks()
			if a.Go != (c.want == "") || a.Free != c.free || !strings.HasPrefix(a.Text, c.want) || a.Waiting == a.Go {
				t.Errorf("%+v, want %q", a, c.want)
			}
			if state := r.task(id).State; (state == task.Waiting) != a.Waiting {
				t.Errorf("the task is %s", state)
			}
		})
	}
	t.Run("a model without a price is known before", func(t *testing.T) {
		r := newRig(t)
		r.own = task.Limits{MicroUSD: 1e6}
		ctx := t.Context()
		made, _, err := r.store.CreateTask(ctx, task.Task{RequestedBy: "alice", Spec: task.Spec{Agent: task.AgentSpec{Model: "dear"}}}, "")
		r.must(err)
		r.must(r.store.SetTask(ctx, made.ID, stage.TaskUpdate{State: task.Running}))
		r.must(r.store.AddSandbox(ctx, made.ID, sandbox.Spec{ID: box, Task: made.ID}))
		if a := r.asks(); !a.Waiting || !strings.Contains(a.Text, "dear") {
			t.Errorf("%+v", a)
		}
	})
}

// A task waits with its processes held, and goes on once its budget is raised.
func TestRaised(t *testing.T) {
	r := newRig(t)
	r.own = task.Limits{Tokens: 100}
	id := r.runs("alice", "").ID
	r.uses("cheap", 99)
	if a := r.asks(); !a.Go || a.Free {
		t.Fatalf("%+v", a)
	}
	r.uses("cheap", 2)
	for range 2 { // asking again is the same wait
		if a := r.asks(); !a.Waiting {
			t.Fatalf("%+v", a)
		}
	}
	have := r.task(id)
	if have.State != task.Waiting || have.Reason != task.LimitSpend || !strings.Contains(have.Text, "cofferdam task budget "+id) || !r.Waiting(t.Context(), id) {
		t.Errorf("%s %s %q", have.State, have.Reason, have.Text)
	}
	if got := r.signals(); got != "agent 19, left 19" {
		t.Errorf("held by %q", got)
	}
	r.pass(time.Hour)
	// It is killed and started again: what waits is looked after, and the request
	// that is still held asks again.
	r.restart()
	if a := r.asks(); !a.Waiting {
		t.Fatalf("%+v", a)
	}
	r.signals()
	answered := make(chan Answer)
	go func() {
		a, err := r.Ask(t.Context(), box, true, time.Minute)
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	r.looks(func() bool {
		if !r.Waiting(t.Context(), id) { // the last step but the record
			return true
		}
		if set, err := r.rows.Budget(t.Context(), task.BudgetTask, id); err == nil && set.Tokens == 0 {
			_, err := r.SetTask(t.Context(), have, Change{Tokens: 500, By: "alice"})
			r.must(err)
		}
		return false
	})
	if a := <-answered; !a.Go {
		t.Errorf("%+v", a)
	}
	have = r.task(id)
	if got := r.signals(); have.State != task.Running || have.Reason != "" || !strings.HasSuffix(got, "agent 18, left 18") || r.Waiting(t.Context(), id) {
		t.Errorf("%s %s; %q", have.State, have.Reason, got)
	}
	if got := r.Waited(t.Context(), id); got != time.Hour {
		t.Errorf("it waited %s", got)
	}
	r.looks(func() bool { return slices.Contains(r.recorded(), "budget.over raised") })
	if got := strings.Join(r.recorded(), ", "); got != "budget.met, budget.set, budget.over raised" {
		t.Errorf("on record: %s", got)
	}
}

func (r *rig) recorded() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.audit)
}

// Nobody raises it: the request is refused, and others at once; until it is
// raised.
func TestExpired(t *testing.T) {
	r := newRig(t)
	r.own = task.Limits{Tokens: 100}
	id := r.runs("alice", "").ID
	r.uses("cheap", 100)
	if a := r.asks(); !a.Waiting {
		t.Fatalf("%+v", a)
	}
	r.pass(DefaultWait)
	r.looks(func() bool { return r.task(id).State == task.Running && !r.Waiting(t.Context(), id) })
	for range 2 {
		if a := r.asks(); a.Go || a.Waiting || a.Reason != task.LimitSpend {
			t.Fatalf("%+v", a)
		}
	}
	wantReason(t, r.Await(t.Context(), id, box), task.LimitSpend)
	if !r.Vain(t.Context(), id) {
		t.Error("it did not wait in vain")
	}
	if got := r.signals(); !strings.HasSuffix(got, "agent 18, left 18") {
		t.Errorf("it does not go on: %q", got)
	}
	_, err := r.SetTask(t.Context(), r.task(id), Change{Tokens: 101, By: "alice"})
	r.must(err)
	if a := r.asks(); !a.Go {
		t.Errorf("%+v", a)
	}
	r.must(r.Await(t.Context(), id, box))
	// A stage can't wait for ever: what was waited is used up.
	r.uses("cheap", 100)
	if a := r.asks(); !a.Waiting {
		t.Errorf("%+v", a)
	}
	r.looks(func() bool { return !r.Waiting(t.Context(), id) })
	if a := r.asks(); a.Waiting || a.Go {
		t.Errorf("%+v", a)
	}
}

// A day or a month begins anew.
func TestPeriods(t *testing.T) {
	r := newRig(t)
	id := r.runs("alice", "").ID
	_, err := r.Set(t.Context(), task.BudgetUser, "alice", Change{Tokens: 100, Per: task.PerDay, By: "admin", Admin: true})
	r.must(err)
	r.uses("cheap", 100)
	if a := r.asks(); !a.Waiting {
		t.Fatalf("%+v", a)
	}
	r.pass(11*time.Hour + 59*time.Minute)
	if a := r.asks(); !a.Waiting {
		t.Fatalf("%+v", a)
	}
	r.pass(time.Minute)
	r.looks(func() bool { return r.task(id).State == task.Running })
	if a := r.asks(); !a.Go {
		t.Errorf("%+v", a)
	}
}

// What can't be counted, or is not known to be, does not go.
func TestNotCounted(t *testing.T) {
	r := newRig(t)
	r.runs("alice", "")
	ctx := t.Context()
	if a, err := r.Ask(ctx, box, false, 0); err != nil || !a.Free {
		t.Errorf("%+v %v", a, err)
	}
	if a, err := r.Ask(ctx, "sb-bbbbbbbbbbbbbbbb", false, 0); err != nil || !a.Free {
		t.Errorf("of no task: %+v %v", a, err)
	}
	r.own = task.Limits{Tokens: 1000}
	if a, err := r.Ask(ctx, box, false, 0); err != nil || a.Go || a.Waiting || a.Reason != task.LimitSpend {
		t.Errorf("%+v %v", a, err)
	}
	r.away = true
	a, err := r.Ask(ctx, box, true, 0)
	if wantReason(t, err, task.InfraWorkerLost); a.Go {
		t.Errorf("%+v", a)
	}
}

// A machine that is away keeps its task waiting until it can be told.
func TestMachineAway(t *testing.T) {
	r := newRig(t)
	r.own = task.Limits{Tokens: 100}
	id := r.runs("alice", "").ID
	r.uses("cheap", 100)
	r.asks()
	r.mu.Lock()
	r.away = true
	r.mu.Unlock()
	_, err := r.SetTask(t.Context(), r.task(id), Change{Tokens: 500, By: "alice"})
	r.must(err)
	if err := r.look(t.Context()); err == nil || r.task(id).State != task.Waiting {
		t.Errorf("%v, and the task is %s", err, r.task(id).State)
	}
	r.mu.Lock()
	r.away = false
	r.mu.Unlock()
	if err := r.look(t.Context()); err != nil || r.task(id).State != task.Running {
		t.Errorf("%v, and the task is %s", err, r.task(id).State)
	}
}

// Who asked for a task raises its budget as far as the layers above allow.
func TestCeiling(t *testing.T) {
	r := newRig(t)
	r.own, r.above = task.Limits{Tokens: 10, MicroUSD: 10}, task.Limits{Tokens: 100}
	made := r.runs("alice", "")
	for _, c := range []struct {
		change Change
		reason task.Reason
	}{
		{Change{Tokens: 100}, ""},
		{Change{Tokens: 101}, task.PolicyCeiling},
		{Change{Tokens: task.NoLimit}, task.PolicyCeiling},
		{Change{Tokens: task.NoLimit, Admin: true}, ""},
		{Change{MicroUSD: task.NoLimit}, ""},
		{Change{}, task.InputInvalid},
		{Change{Tokens: -2}, task.InputInvalid},
		{Change{Tokens: 1, Per: task.PerDay}, task.InputInvalid},
	} {
		if _, err := r.SetTask(t.Context(), made, c.change); c.reason == "" {
			r.must(err)
		} else {
			wantReason(t, err, c.reason)
		}
	}
	if a := r.asks(); !a.Free { // nothing limits it any more
		t.Errorf("%+v", a)
	}
	for _, c := range []struct {
		scope task.BudgetScope
		name  string
	}{{"", "x"}, {task.BudgetTask, "x"}, {task.BudgetUser, ""}, {task.BudgetProject, "a b"}} {
		_, err := r.Set(t.Context(), c.scope, c.name, Change{Tokens: 1, Admin: true})
		wantReason(t, err, task.InputInvalid)
	}
	_, err := r.Set(t.Context(), task.BudgetUser, "alice", Change{Per: task.PerDay, Admin: true})
	wantReason(t, err, task.InputInvalid)
	wantReason(t, r.Remove(t.Context(), task.BudgetUser, "alice", "admin"), task.InputNotFound)
}

// Before a task ends its wait does, and what it used is on record, once.
func TestSettled(t *testing.T) {
	r := newRig(t)
	r.own = task.Limits{Tokens: 100}
	id := r.runs("alice", "").ID
	r.uses("cheap", 100)
	r.asks()
	for range 2 {
		r.must(r.Settle(t.Context(), id))
	}
	if got := strings.Join(r.recorded(), ", "); got != "budget.met, budget.over task ended, model.used" || r.Vain(t.Context(), id) {
		t.Errorf("on record: %s", got)
	}
	r.must(r.store.SetTask(t.Context(), id, stage.TaskUpdate{State: task.StateCancelled, Reason: task.Cancelled}))
	r.must(r.look(t.Context()))
	if a := r.asks(); a.Go || a.Waiting {
		t.Errorf("a task that ended asks: %+v", a)
	}
	if _, err := r.SetTask(t.Context(), r.task(id), Change{Tokens: 500, By: "alice"}); err == nil {
		t.Error("the budget of a task that ended was changed")
	}
	s, standings, err := r.Of(t.Context(), r.task(id))
	if err != nil || s.Tokens() != 100 || s.MicroUSD() != 100 || len(standings) != 1 || standings[0].Tokens != 100 {
		t.Errorf("%+v %+v %v", s, standings, err)
	}
}

package approvals_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/approval"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/approvals"
	"github.com/cofferdam/cofferdam/internal/task"
)

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

// bench is an inbox over a real database, with an account and machines that
// remember what they are told.
type bench struct {
	t     *testing.T
	store *store.Store
	inbox *approval.Inbox

	mu      sync.Mutex
	now     time.Time
	records []string // kinds and keys, in order
	facts   map[string]string
	grants  []string
}

const who = "alice"

func newBench(t *testing.T, dir string) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC), facts: map[string]string{}}
	var err error
	if b.store, err = store.Open(t.Context(), store.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.store.Close(); err != nil {
			t.Error(err)
		}
	})
	b.inbox = approval.New(approval.Options{Rows: approvals.New(b.store.Base()), Audit: b, Grants: b, Now: b.clock})
	return b
}

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// Record keeps each key once, as the audit does.
func (b *bench) Record(_ context.Context, _, key, kind, _ string, facts any) error {
	text, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.facts[key]; !known {
		b.records, b.facts[key] = append(b.records, key), string(text)
	}
	_ = kind
	return nil
}

func (b *bench) Extend(_ context.Context, sandbox string, stage task.StageName, rule task.Rule) error {
	return b.grant(fmt.Sprintf("+%s %s %s %s:%d", sandbox, stage, rule.ID[:5], rule.Host, rule.Ports[0]))
}

func (b *bench) Retract(_ context.Context, _, sandbox, rule string) error {
	return b.grant(fmt.Sprintf("-%s %s", sandbox, rule))
}

func (b *bench) grant(s string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grants = append(b.grants, s)
	return nil
}

func (b *bench) told(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.records, key)
}

func (b *bench) task(project string) task.Task {
	b.t.Helper()
	made, _, err := b.store.CreateTask(b.t.Context(), task.Task{RequestedBy: who, Spec: task.Spec{Project: project}}, "")
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

func connection(t task.Task, host, sandbox string) task.Question {
	what, _ := task.Canonical(task.EgressAsk{Name: host, Port: 443, Protocol: "tls", Seen: "tls"})
	return task.Question{
		Key: "egress/" + sandbox + "/" + host, Kind: task.AskEgress, Task: t.ID, Project: t.Spec.Project, Stage: task.Agent, Attempt: 1,
		Sandbox: sandbox, Requester: t.RequestedBy, What: what, Wait: 2 * time.Minute,
	}
}

func tool(t task.Task, key, command string) task.Question {
	what, _ := task.Canonical(task.ToolAsk{Agent: "claude", Tool: "Bash", Argv: []string{"sh", "-c", command}})
	return task.Question{
		Key: "tool/" + key, Kind: task.AskTool, Task: t.ID, Stage: task.Agent, Attempt: 1, Sandbox: "sb-t", Requester: t.RequestedBy, What: what, Wait: time.Hour,
	}
}

// ask is one turn that does not wait.
func (b *bench) ask(q task.Question, use, id string) approval.Answer {
	b.t.Helper()
	a, err := b.inbox.Poll(b.t.Context(), q, use, id, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *bench) decide(id string, answer task.ApprovalAnswer) task.Approval {
	b.t.Helper()
	a, err := b.inbox.Decide(b.t.Context(), id, answer)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func allow(scope task.ApprovalScope) task.ApprovalAnswer {
	return task.ApprovalAnswer{Allow: true, Scope: scope, By: who}
}

func TestOnce(t *testing.T) {
	b := newBench(t, t.TempDir())
	q := connection(b.task(""), "a.test", "sb-1")
	first := b.ask(q, "c1", "")
	again := b.ask(q, "c2", "")
	if !first.Waiting || again.Approval.ID != first.Approval.ID || again.Approval.Count != 2 {
		t.Fatalf("%+v %+v", first, again)
	}
	if !b.told("approval.asked/" + first.Approval.ID) {
		t.Error("not on record")
	}
	id := first.Approval.ID
	b.decide(id, allow(""))
	got := b.ask(q, "c2", id)
	if !got.Allow || !got.Once || got.ID != id || !b.told("approval.decided/"+id) {
		t.Errorf("%+v", got)
	}
	// The same use again is the same; another use is another question.
	if again := b.ask(q, "c2", id); !again.Allow {
		t.Errorf("%+v", again)
	}
	other := b.ask(q, "c1", id)
	if !other.Waiting || other.Approval.ID == id {
		t.Errorf("%+v", other)
	}
	// An answer that nobody took is taken by the next of the same question, in time.
	b.decide(other.Approval.ID, allow(task.ScopeOnce))
	if got := b.ask(q, "c9", ""); !got.Allow || !got.Once {
		t.Errorf("%+v", got)
	}
	if got := b.ask(q, "c10", ""); !got.Waiting {
		t.Errorf("%+v", got)
	}
	if len(b.grants) != 0 {
		t.Errorf("grants changed: %v", b.grants)
	}
}

func TestDecisionForTheTask(t *testing.T) {
	b := newBench(t, t.TempDir())
	tk := b.task("p")
	q := connection(tk, "a.test", "sb-1")
	id := b.ask(q, "c1", "").Approval.ID
	// Another question about the same place is answered with it.
	plain := q
	plain.Key, plain.What = "other", json.RawMessage(`{"name":"a.test","port":443,"protocol":"tls","seen":"tls","path":"/x"}`)
	otherID := b.ask(plain, "c2", "").Approval.ID
	if otherID == id {
		t.Fatal("one entry")
	}
	a := b.decide(id, allow(task.ScopeTask))
	if a.Decision == "" || a.State != task.AskedAllowed {
		t.Fatalf("%+v", a)
	}
	for _, got := range []approval.Answer{b.ask(q, "c1", id), b.ask(plain, "c2", otherID), b.ask(q, "c3", "")} {
		if !got.Allow || got.Once || got.ID != a.Decision {
			t.Errorf("%+v", got)
		}
	}
	// Not in another stage, another task, another place.
	late := q
	late.Stage = task.Verify
	for _, q := range []task.Question{late, connection(b.task("p"), "a.test", "sb-2"), connection(tk, "b.test", "sb-1")} {
		if got := b.ask(q, "c4", ""); !got.Waiting {
			t.Errorf("%+v", got)
		}
	}
	rules, err := b.inbox.Rules(t.Context(), tk.ID, "p", task.Agent, "sb-9")
	if err != nil || len(rules) != 1 || rules[0].ID != "ask/"+a.Decision || rules[0].Host != "a.test" || rules[0].Protocol != "tls" || rules[0].Private || rules[0].Credential != "" {
		t.Errorf("%+v %v", rules, err)
	}
	// Taking it back reaches every sandbox that it was given out to.
	if cut, err := b.inbox.Withdraw(t.Context(), a.Decision, who, false); err != nil || !cut {
		t.Errorf("%v %v", cut, err)
	}
	if n := len(b.grants); n < 2 || b.grants[n-2] != "-sb-1 ask/"+a.Decision || b.grants[n-1] != "-sb-9 ask/"+a.Decision || !b.told("approval.withdrawn/"+a.Decision) {
		t.Errorf("%v", b.grants)
	}
	if got := b.ask(q, "c1", id); got.Allow || got.Waiting {
		t.Errorf("%+v", got)
	}
	if got := b.ask(q, "c5", ""); !got.Waiting {
		t.Errorf("%+v", got)
	}
	if rules, _ := b.inbox.Rules(t.Context(), tk.ID, "p", task.Agent, "sb-9"); len(rules) != 0 {
		t.Errorf("%+v", rules)
	}
}

func TestDecisionForTheProject(t *testing.T) {
	b := newBench(t, t.TempDir())
	q := connection(b.task("p"), "a.test", "sb-1")
	id := b.ask(q, "c1", "").Approval.ID
	if _, err := b.inbox.Decide(t.Context(), id, allow(task.ScopeProject)); task.ReasonOf(err) != task.PolicyDenied {
		t.Errorf("%v", err)
	}
	a := b.decide(id, task.ApprovalAnswer{Allow: true, Scope: task.ScopeProject, For: time.Hour, By: "root", Admin: true})
	if got := b.ask(connection(b.task("p"), "a.test", "sb-2"), "c1", ""); !got.Allow || got.ID != a.Decision {
		t.Errorf("%+v", got)
	}
	if got := b.ask(connection(b.task("q"), "a.test", "sb-3"), "c1", ""); !got.Waiting {
		t.Errorf("%+v", got)
	}
	if _, err := b.inbox.Withdraw(t.Context(), a.Decision, who, false); task.ReasonOf(err) != task.PolicyDenied {
		t.Errorf("%v", err)
	}
	b.pass(time.Hour)
	if got := b.ask(connection(b.task("p"), "a.test", "sb-4"), "c1", ""); !got.Waiting {
		t.Errorf("%+v", got)
	}
	if list, err := b.inbox.Decisions(t.Context(), approval.Filter{Waiting: true}); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

// What was denied is not asked again, and denies before what allows.
func TestDenied(t *testing.T) {
	b := newBench(t, t.TempDir())
	q := connection(b.task(""), "a.test", "sb-1")
	id := b.ask(q, "c1", "").Approval.ID
	b.decide(id, task.ApprovalAnswer{By: who})
	for _, got := range []approval.Answer{b.ask(q, "c1", id), b.ask(q, "c2", "")} {
		if got.Allow || got.Waiting || got.Reason != task.ApprovalDenied {
			t.Errorf("%+v", got)
		}
	}
	if _, err := b.inbox.Decide(t.Context(), id, allow("")); task.ReasonOf(err) != task.InputConflict {
		t.Errorf("%v", err)
	}
}

// A question expires by itself, also while nobody looks, and after a restart.
func TestExpiry(t *testing.T) {
	dir := t.TempDir()
	b := newBench(t, dir)
	tk := b.task("")
	q := connection(tk, "a.test", "sb-1")
	id := b.ask(q, "c1", "").Approval.ID
	b.pass(2 * time.Minute)
	if _, err := b.inbox.Decide(t.Context(), id, allow("")); task.ReasonOf(err) != task.InputConflict {
		t.Errorf("decided too late: %v", err)
	}
	if got := b.ask(q, "c1", id); got.Allow || got.Waiting || got.Reason != task.ApprovalExpired || !b.told("approval.expired/"+id) {
		t.Errorf("%+v", got)
	}
	second := b.ask(q, "c2", "").Approval.ID
	next := approval.New(approval.Options{Rows: approvals.New(b.store.Base()), Audit: b, Grants: b, Now: func() time.Time { return b.clock().Add(time.Hour) }})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { next.Run(ctx) })
	until(t, "the second expired", func() bool { return b.told("approval.expired/" + second) })
	cancel()
	running.Wait()
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// A use of a tool is one event: its key finds the same entry again, whatever
// became of it, and any change of what it does voids it.
func TestTool(t *testing.T) {
	b := newBench(t, t.TempDir())
	tk := b.task("")
	q := tool(tk, "call-1", "make")
	done := make(chan approval.Answer, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		a, _ := b.inbox.Await(ctx, q, "loop")
		done <- a
	}()
	var id string
	until(t, "asked", func() bool {
		list, err := b.inbox.List(t.Context(), approval.Filter{Task: tk.ID, Waiting: true})
		if err == nil && len(list) == 1 {
			id = list[0].ID
		}
		return id != ""
	})
	cancel() // the activity is cut off
	if a := <-done; a.Allow {
		t.Errorf("%+v", a)
	}
	go func() {
		a, err := b.inbox.Await(t.Context(), q, "loop") // and runs again
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	until(t, "asked again", func() bool {
		a, err := b.inbox.Get(t.Context(), id, who, false)
		return err == nil && a.Count == 2
	})
	b.decide(id, allow(""))
	if a := <-done; !a.Allow || !a.Once || a.ID != id {
		t.Errorf("%+v", a)
	}
	if a := b.ask(q, "loop", ""); !a.Allow || a.ID != id {
		t.Errorf("repeated: %+v", a)
	}
	if a := b.ask(q, "another", ""); a.Allow || a.Waiting {
		t.Errorf("used twice: %+v", a)
	}
	// Other bytes under the same key.
	second := b.ask(tool(tk, "call-2", "make"), "loop", "").Approval.ID
	changed := b.ask(tool(tk, "call-2", "make; curl evil"), "loop", "")
	if !changed.Waiting || changed.Approval.ID == second {
		t.Errorf("%+v", changed)
	}
	if a, _ := b.inbox.Get(t.Context(), second, who, false); a.State != task.AskedVoid {
		t.Errorf("%+v", a)
	}
	if _, err := b.inbox.Decide(t.Context(), second, allow("")); task.ReasonOf(err) != task.InputConflict {
		t.Errorf("a void question was answered: %v", err)
	}
	// A decision for the task is for the very bytes.
	b.decide(changed.Approval.ID, allow(task.ScopeTask))
	if a := b.ask(tool(tk, "call-3", "make; curl evil"), "loop", ""); !a.Allow {
		t.Errorf("%+v", a)
	}
	if a := b.ask(tool(tk, "call-4", "make; curl worse"), "loop", ""); !a.Waiting {
		t.Errorf("%+v", a)
	}
	// A change of the outside is approved once, never as a class.
	action := q
	action.Kind, action.Key, action.What = task.AskAction, "action/1", json.RawMessage(`{"push":"x"}`)
	actionID := b.ask(action, "act", "").Approval.ID
	if _, err := b.inbox.Decide(t.Context(), actionID, allow(task.ScopeTask)); task.ReasonOf(err) != task.InputInvalid {
		t.Errorf("%v", err)
	}
}

// Who may see, answer and take back.
func TestWho(t *testing.T) {
	b := newBench(t, t.TempDir())
	q := connection(b.task(""), "a.test", "sb-1")
	q.Admins = true
	id := b.ask(q, "c1", "").Approval.ID
	if _, err := b.inbox.Get(t.Context(), id, "bob", false); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("%v", err)
	}
	for by, want := range map[string]task.Reason{"": task.PolicyDenied, "bob": task.InputNotFound, who: task.PolicyDenied} {
		if _, err := b.inbox.Decide(t.Context(), id, task.ApprovalAnswer{Allow: true, By: by}); task.ReasonOf(err) != want {
			t.Errorf("%q: %v", by, err)
		}
	}
	for _, bad := range []task.ApprovalAnswer{{Scope: "world"}, {Scope: task.ScopeOnce, For: time.Hour}, {Scope: task.ScopeTask, For: 10000 * time.Hour}, {Scope: task.ScopeProject}} {
		bad.Allow, bad.By, bad.Admin = true, "root", true
		if _, err := b.inbox.Decide(t.Context(), id, bad); task.ReasonOf(err) != task.InputInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	b.decide(id, task.ApprovalAnswer{Allow: true, By: "root", Admin: true})
	if got := b.ask(q, "c1", id); !got.Allow {
		t.Errorf("%+v", got)
	}
	if cut, err := b.inbox.Withdraw(t.Context(), id, who, false); err != nil || !cut || b.grants[len(b.grants)-1] != "-sb-1 ask/"+id {
		t.Errorf("%v %v %v", cut, err, b.grants)
	}
	if got := b.ask(q, "c1", id); got.Allow {
		t.Errorf("%+v", got)
	}
	// Another's entry tells nothing, whoever names it.
	other := connection(b.task(""), "a.test", "sb-7")
	if got := b.ask(other, "c1", id); !got.Waiting || got.Approval.ID == id {
		t.Errorf("%+v", got)
	}
}

// A sandbox can't wear a person down, and a task that ended asks nobody.
func TestBounds(t *testing.T) {
	b := newBench(t, t.TempDir())
	tk := b.task("")
	for i := range 64 {
		b.ask(connection(tk, fmt.Sprintf("h%d.test", i), "sb-1"), "c", "")
	}
	if _, err := b.inbox.Poll(t.Context(), connection(tk, "more.test", "sb-1"), "c", "", 0); task.ReasonOf(err) != task.LimitRequests {
		t.Errorf("%v", err)
	}
	if err := b.inbox.Abandon(t.Context(), tk.ID, "sb-1"); err != nil {
		t.Fatal(err)
	}
	if list, err := b.inbox.List(t.Context(), approval.Filter{Task: tk.ID, Waiting: true}); err != nil || len(list) != 0 {
		t.Errorf("%d wait, %v", len(list), err)
	}
	if err := b.store.SetTask(t.Context(), tk.ID, stage.TaskUpdate{State: task.Failed, Reason: task.AgentFailed}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.inbox.Poll(t.Context(), connection(tk, "x.test", "sb-1"), "c", "", 0); task.ReasonOf(err) != task.Cancelled {
		t.Errorf("%v", err)
	}
	// Removing the task removes what it asked.
	if _, err := b.store.RemoveTask(t.Context(), tk.ID, who); err != nil {
		t.Fatal(err)
	}
	if list, err := b.inbox.List(t.Context(), approval.Filter{Task: tk.ID}); err != nil || len(list) != 0 {
		t.Errorf("%d left, %v", len(list), err)
	}
}

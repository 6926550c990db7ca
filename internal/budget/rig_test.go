package budget

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/budget/price"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/spending"
	"github.com/cofferdam/cofferdam/internal/task"
)

const box = "sb-aaaaaaaaaaaaaaaa"

// rig is a keeper over a real store, with machines and an account of its own.
type rig struct {
	*Keeper
	t     *testing.T
	store *store.Store
	rows  *spending.Rows
	own   task.Limits // of the policy
	above task.Limits

	mu      sync.Mutex
	now     time.Time
	records []task.EgressRecord // at the gateway
	sent    []string            // signals
	away    bool
	audit   []string
	keys    map[string]bool
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), keys: map[string]bool{}}
	var err error
	if r.store, err = store.Open(t.Context(), store.Options{Dir: t.TempDir(), Now: r.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	r.rows = spending.New(r.store.Base())
	r.restart()
	return r
}

// restart makes the keeper anew: what it held in memory is gone.
func (r *rig) restart() {
	prices, err := price.New("cheap 1 1 - -\n")
	if err != nil {
		r.t.Fatal(err)
	}
	r.Keeper = New(Options{
		Rows: r.rows, Waits: r.rows, Tasks: tasks{r.store}, Machines: r, Audit: r, Prices: prices, Now: r.clock, Pace: time.Millisecond,
		Policy: func(context.Context, task.Task) (task.Limits, task.Limits, error) { return r.own, r.above, nil },
	})
}

type tasks struct{ *store.Store }

func (t tasks) Wait(ctx context.Context, id, text string) error {
	return t.SetTask(ctx, id, stage.TaskUpdate{State: task.Waiting, Reason: task.LimitSpend, Text: text})
}

func (t tasks) Go(ctx context.Context, id string) error {
	return t.SetTask(ctx, id, stage.TaskUpdate{State: task.Running})
}

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *rig) Egress(_ context.Context, id string, after int64) ([]task.EgressRecord, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return nil, task.Fail(task.InfraWorkerLost, "away", nil)
	}
	var out []task.EgressRecord
	for _, rec := range r.records {
		if rec.Seq > after && rec.Sandbox == id {
			out = append(out, rec)
		}
	}
	return out, nil
}

func (r *rig) Inspect(context.Context, string, string) ([]sandbox.Status, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return nil, task.Fail(task.InfraWorkerLost, "away", nil)
	}
	return []sandbox.Status{{ID: "agent", Phase: sandbox.CommandRunning}, {ID: "left", Phase: sandbox.CommandExited, Children: []int{7}}, {ID: "gone", Phase: sandbox.CommandExited}}, nil
}

func (r *rig) SignalPart(_ context.Context, _, command string, s sandbox.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, fmt.Sprintf("%s %d", command, s.Number))
	return nil
}

func (r *rig) Record(_ context.Context, taskID, key, kind, _ string, facts any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.keys[taskID+key] {
		r.keys[taskID+key] = true
		text := kind
		if over, ok := facts.(Over); ok {
			text += " " + over.How
		}
		r.audit = append(r.audit, text)
	}
	return nil
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// runs makes a task that runs in the sandbox.
func (r *rig) runs(who, project string) task.Task {
	r.t.Helper()
	ctx := r.t.Context()
	t, _, err := r.store.CreateTask(ctx, task.Task{RequestedBy: who, Spec: task.Spec{Project: project}}, "")
	r.must(err)
	r.must(r.store.SetTask(ctx, t.ID, stage.TaskUpdate{State: task.Running}))
	r.must(r.store.AddSandbox(ctx, t.ID, sandbox.Spec{ID: box, Task: t.ID}))
	return r.task(t.ID)
}

func (r *rig) task(id string) task.Task {
	r.t.Helper()
	t, err := r.store.Task(r.t.Context(), id)
	r.must(err)
	return t
}

// uses has the gateway record an answer.
func (r *rig) uses(model string, tokens int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, task.EgressRecord{
		Seq: int64(len(r.records) + 1), Sandbox: box, Done: true, Request: 1, Verdict: "allowed", Tokens: &task.ModelTokens{Model: model, Input: tokens},
	})
}

func (r *rig) asks() Answer {
	r.t.Helper()
	a, err := r.Ask(r.t.Context(), box, true, 0)
	r.must(err)
	return a
}

// looks has Run look after what waits until cond holds.
func (r *rig) looks(cond func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	deadline := time.Now().Add(30 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			r.t.Error("waited in vain")
			break
		}
		<-time.After(time.Millisecond)
	}
	cancel()
	<-done
}

func (r *rig) signals() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.sent = nil }()
	return strings.Join(r.sent, ", ")
}

func wantReason(t *testing.T, err error, reason task.Reason) {
	t.Helper()
	var f *task.Failure
	if !errors.As(err, &f) || f.Reason != reason {
		t.Errorf("%v, want %s", err, reason)
	}
}

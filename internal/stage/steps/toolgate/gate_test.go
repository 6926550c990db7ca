package toolgate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

type rules struct{ wait time.Duration }

func (rules) Decide(use task.ToolAsk) task.ToolDecision {
	v := map[string]task.ToolVerdict{"free": task.ToolAllowed, "asked": task.ToolAsked, "reads": task.ToolAsked}[use.Tool]
	return task.ToolDecision{Verdict: v, Layer: "task", Rule: "tools.x"}
}

func (rules) Harmless(use task.ToolAsk) bool { return use.Tool == "reads" }

func (r rules) Terms() task.Tools { return task.Tools{Wait: r.wait, Admins: true} }

type inbox struct {
	mu    sync.Mutex
	asked []task.Question
	err   error
}

func (*inbox) Rules(context.Context, string, string, task.StageName, string) ([]task.Rule, error) {
	return nil, nil
}

func (*inbox) Abandon(context.Context, string, string) error { return nil }

func (x *inbox) Tool(_ context.Context, q task.Question) (task.ToolAnswer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = append(x.asked, q)
	return task.ToolAnswer{Allow: x.err == nil, Approval: "ap-1"}, x.err
}

func gate(x stage.Approvals, wait, left time.Duration) stage.ToolGate {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	return New(rules{wait}, x, task.Task{ID: "t-1", RequestedBy: "alice", Spec: task.Spec{Project: "web"}}, task.Stage{Sandbox: "sb-1", Attempts: 3}, now.Add(left), func() time.Time { return now })
}

func TestGate(t *testing.T) {
	if New(nil, nil, task.Task{}, task.Stage{}, time.Time{}, nil) != nil {
		t.Error("a gate without a policy")
	}
	x := &inbox{}
	for tool, want := range map[string]task.ToolAnswer{
		"free":  {Allow: true, Text: "allowed by the policy (task, tools.x)"},
		"never": {Reason: task.PolicyDenied, Text: "refused by the policy (task, tools.x)"},
		"asked": {Allow: true, Approval: "ap-1"},
	} {
		if a, err := gate(x, time.Hour, 24*time.Hour).May(t.Context(), "loop/1/2", task.ToolAsk{Tool: tool}); err != nil || a != want {
			t.Errorf("%s: %+v %v", tool, a, err)
		}
	}
	if len(x.asked) != 1 {
		t.Fatalf("asked %+v", x.asked)
	}
	q := x.asked[0]
	if q.Key != "tool/3/loop/1/2" || q.Kind != task.AskTool || q.Task != "t-1" || q.Project != "web" || q.Stage != task.Agent || q.Sandbox != "sb-1" || q.Requester != "alice" || !q.Admins || q.Wait != time.Hour {
		t.Errorf("%+v", q)
	}
	for left, want := range map[time.Duration]time.Duration{time.Minute: time.Minute, -time.Minute: time.Second} {
		_, err := gate(x, time.Hour, left).May(t.Context(), "k", task.ToolAsk{Tool: "reads"})
		if got := x.asked[len(x.asked)-1]; err != nil || got.Wait != want || !strings.Contains(string(got.What), `"byName":true`) {
			t.Errorf("with %s left: %+v %v", left, got, err)
		}
	}
	if a, err := gate(nil, time.Hour, time.Hour).May(t.Context(), "k", task.ToolAsk{Tool: "asked"}); err != nil || a.Allow || a.Reason != task.ApprovalDenied {
		t.Errorf("with nobody to ask: %+v %v", a, err)
	}
	if a, err := gate(x, time.Hour, time.Hour).May(t.Context(), "k", task.ToolAsk{Tool: "asked", Input: json.RawMessage(`{`)}); err != nil || a.Allow {
		t.Errorf("what can't be shown: %+v %v", a, err)
	}
}

// asker asks a number of times and remembers its answers.
type asker struct {
	stage.HarnessAsker
	asks    []stage.HarnessAsk
	answers map[int]bool
}

func (a *asker) Output(int, []byte) {}

func (a *asker) Asks() []stage.HarnessAsk {
	asks := a.asks
	a.asks = nil
	return asks
}

func (a *asker) Answer(n int, answer task.ToolAnswer) { a.answers[n] = answer.Allow }

func (a *asker) End(int) stage.HarnessEnd { return stage.HarnessEnd{} }

// An answer that can't be had or told is tried again and not made up; one that
// can't ever be asked is a denial; the end of the command ends the waiting.
func TestAsking(t *testing.T) {
	x := &inbox{}
	reader := &asker{answers: map[int]bool{}}
	for n := range 80 {
		reader.asks = append(reader.asks, stage.HarnessAsk{Number: n + 1, Use: task.ToolAsk{Tool: "asked"}})
	}
	var mu sync.Mutex
	told, failing := []string{}, true
	woke := make(chan struct{}, 1000)
	tell := func(key string, _ task.AgentEvent) error {
		mu.Lock()
		defer mu.Unlock()
		if key == "agent/asked/7" && failing {
			failing = false
			return errors.New("the disk is full for a moment")
		}
		told = append(told, key)
		return nil
	}
	got, stop, err := Ask(t.Context(), reader, gate(x, time.Hour, time.Hour), "agent", tell, func() { woke <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	got.Output(1, nil)
	for range 80 {
		<-woke
	}
	mu.Lock()
	if slices.Sort(told); len(slices.Compact(told)) != 80 || Waiting(got) || len(reader.answers) != 80 {
		t.Errorf("told %d, answered %d", len(told), len(reader.answers))
	}
	mu.Unlock()
	x.mu.Lock()
	x.err = task.Fail(task.InputInvalid, "question: its key is too long", nil)
	x.mu.Unlock()
	reader.asks = []stage.HarnessAsk{{Number: 81, Use: task.ToolAsk{Tool: "asked"}}}
	got.Output(1, nil)
	<-woke
	if reader.answers[81] {
		t.Error("what can't be asked is allowed")
	}
	x.mu.Lock()
	x.err = task.Fail(task.InfraInternal, "away", nil)
	x.mu.Unlock()
	reader.asks = []stage.HarnessAsk{{Number: 82, Use: task.ToolAsk{Tool: "asked"}}}
	got.Output(1, nil)
	if !Waiting(got) {
		t.Error("it does not wait")
	}
	got.End(0)
	if _, ok := reader.answers[82]; ok {
		t.Error("an answer was made up")
	}
	stop()
}

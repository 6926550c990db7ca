package store

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestAgentEventsAreToldOnce(t *testing.T) {
	s, ctx := open(t), t.Context()
	id := create(t, s, task.Task{}).ID
	usage := task.AgentEvent{Type: "usage", Usage: &task.ModelUsage{Requests: 1, Input: 100, Output: 20, Cached: 10}}
	for range 2 {
		must(t, s.AddAgentEvent(ctx, id, "1/1/usage", usage))
		must(t, s.AddAgentEvent(ctx, id, "1/1/text", task.AgentEvent{Type: "text", Text: "a\xffb" + strings.Repeat("é", maxAgentText)}))
		must(t, s.AddAgentEvent(ctx, id, "1/end", task.AgentEvent{Type: "end", Usage: usage.Usage}))
	}
	must(t, s.AddAgentEvent(ctx, id, "1/2/usage", usage))
	tk, err := s.Task(ctx, id)
	must(t, err)
	if want := (task.ModelUsage{Requests: 2, Input: 200, Output: 40, Cached: 20}); tk.Usage.Model != want {
		t.Errorf("usage %+v, want %+v", tk.Usage.Model, want)
	}
	events, err := s.Events(ctx, id, 0, 100)
	must(t, err)
	var kinds []string
	for _, e := range events {
		if a, ok := e.Data.(task.AgentEvent); ok && e.Type == "agent" {
			kinds = append(kinds, a.Type)
			if a.Type == "text" && (!a.Cut || len(a.Text) > maxAgentText || !strings.HasPrefix(a.Text, "a\uFFFDb")) {
				t.Errorf("text of %d bytes, cut %t: %.10q", len(a.Text), a.Cut, a.Text)
			}
			if a.Time.IsZero() {
				t.Errorf("event %s has no time", a.Type)
			}
		}
	}
	if got := strings.Join(kinds, " "); got != "usage text end usage" {
		t.Errorf("events %q", got)
	}
	if err := s.AddAgentEvent(ctx, "t-none", "k", usage); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("an unknown task: %v", err)
	}
}

func TestTurnsAndCallsAreKept(t *testing.T) {
	s, ctx := open(t), t.Context()
	id := create(t, s, task.Task{}).ID
	turn := stage.Turn{Number: 1, State: stage.TurnAsking, Request: "sha256:a", Requests: 2}
	call := stage.Call{Number: 1, Tool: "shell", Input: "{}", Command: "c", State: stage.CallStarted}
	must(t, s.SetTurn(ctx, id, 1, turn))
	turn.State, turn.Response, turn.Usage = stage.TurnAnswered, []byte(`{"a":1}`), task.ModelUsage{Input: 1, Output: 2, Cached: 3}
	must(t, s.SetTurn(ctx, id, 1, turn))
	must(t, s.SetCall(ctx, id, 1, 1, call))
	call.State, call.Result, call.Failed, call.Before, call.After = stage.CallDone, "out", true, "sha256:b", "sha256:c"
	must(t, s.SetCall(ctx, id, 1, 1, call))
	must(t, s.SetTurn(ctx, id, 1, stage.Turn{Number: 2, State: stage.TurnAsking}))
	must(t, s.SetTurn(ctx, id, 2, stage.Turn{Number: 1, State: stage.TurnAsking}))

	// What is answered or done never changes again.
	must(t, s.SetTurn(ctx, id, 1, stage.Turn{Number: 1, State: stage.TurnAsking, Requests: 9}))
	must(t, s.SetCall(ctx, id, 1, 1, stage.Call{Number: 1, State: stage.CallStarted}))

	got, err := s.Turns(ctx, id, 1)
	must(t, err)
	turn.Calls = []stage.Call{call}
	if diff := cmp.Diff([]stage.Turn{turn, {Number: 2, State: stage.TurnAsking}}, got); diff != "" {
		t.Error(diff)
	}
	for name, err := range map[string]error{
		"turn 0": s.SetTurn(ctx, id, 1, stage.Turn{State: stage.TurnAsking}), "no state": s.SetTurn(ctx, id, 1, stage.Turn{Number: 1}),
		"attempt 0": s.SetCall(ctx, id, 0, 1, call), "call 0": s.SetCall(ctx, id, 1, 1, stage.Call{State: stage.CallDone}),
	} {
		if task.ReasonOf(err) != task.InfraInternal {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package approvals_test

import (
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Each change is an event of the task.
func TestEvents(t *testing.T) {
	b := newBench(t, t.TempDir())
	tk := b.task("")
	q := connection(tk, "a.test", "sb-1")
	q.Commands = []task.RunningCommand{{ID: "agent", Processes: []string{"curl https://a.test"}}}
	id := b.ask(q, "c1", "").Approval.ID
	b.ask(q, "c2", "")
	b.decide(id, allow(task.ScopeTask))
	events, err := b.store.Events(t.Context(), tk.ID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var states []task.ApprovalState
	for _, e := range events {
		if a, ok := e.Data.(task.Approval); ok && a.ID == id && len(a.Commands) == 1 && a.Digest == task.DigestOf(a.What) {
			states = append(states, a.State)
		}
	}
	if !slices.Equal(states, []task.ApprovalState{task.AskedWaiting, task.AskedAllowed}) {
		t.Errorf("%v", states)
	}
	for _, key := range []string{"approval.asked/" + id, "approval.decided/" + id} {
		for _, secret := range []string{"curl", "path"} {
			if text := b.facts[key]; text == "" || slices.Contains([]string{secret}, text) {
				t.Errorf("%s: %s", key, text)
			}
		}
	}
}

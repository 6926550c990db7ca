package traffic

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestRunning(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0).UTC() }
	when := func(s int) *time.Time { m := at(s); return &m }
	long := strings.Repeat("é", 150)
	var r Running
	for _, e := range []any{
		task.Stage{Name: task.Admit, StartedAt: when(0)}, // no sandbox
		task.Stage{Name: task.Setup, Sandbox: "sb-a", StartedAt: when(10)},
		task.Stage{Name: task.Setup, Sandbox: "sb-a", StartedAt: when(10), EndedAt: when(20)},
		task.Stage{Name: task.Agent, Sandbox: "sb-a", StartedAt: when(30)},
		task.AgentEvent{Type: "call", Call: "1", Tool: "shell", Input: `{"command":"npm ci"}`, Time: at(31)},
		task.AgentEvent{Type: "call", Call: "2", Tool: "shell", Input: long, Time: at(32)},
		task.AgentEvent{Type: "result", Call: "1", Time: at(35)},
		task.AgentEvent{Type: "result", Call: "unknown", Time: at(36)},
		task.AgentEvent{Type: "end", Time: at(50)},
		task.Stage{Name: task.Agent, Sandbox: "sb-a", StartedAt: when(30), EndedAt: when(51)},
		task.Stage{Name: task.Verify, Sandbox: "sb-b", StartedAt: when(60)},
	} {
		r.See(task.Event{Data: e})
	}
	cut := "shell " + strings.Repeat("é", 97) + "…"
	for _, c := range []struct {
		sandbox string
		stage   task.StageName
		at      int
		want    []string
	}{
		{"sb-a", task.Setup, 9, nil},
		{"sb-a", task.Setup, 10, []string{"setup"}},
		{"sb-a", task.Setup, 20, []string{"setup"}},
		{"sb-a", task.Setup, 21, nil},
		{"sb-a", task.Agent, 33, []string{"agent", `shell {"command":"npm ci"}`, cut}},
		{"sb-a", task.Agent, 40, []string{"agent", cut}},
		{"sb-b", task.Verify, 33, nil}, // the agent's calls are of the agent's sandbox
		{"sb-b", task.Verify, 99, []string{"verify"}},
		{"sb-c", task.Agent, 99, nil},
	} {
		if got := r.At(c.sandbox, c.stage, at(c.at)); !slices.Equal(got, c.want) {
			t.Errorf("%s at %d: %q, want %q", c.sandbox, c.at, got, c.want)
		}
	}
}

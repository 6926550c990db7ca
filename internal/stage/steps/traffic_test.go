package steps

import (
	"context"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Who watches a task sees what its agent reached while the agent runs.
func TestTrafficIsSeenWhileTheStageRuns(t *testing.T) {
	h := withCredentials(t, task.Spec{Agent: shell(`while ! test -f "$HOME/go"; do sleep 0.01; done`)})
	succeeds(t, h.through(task.Setup, 1))
	box := h.box(stage.RoleAgent)
	h.machine.mu.Lock()
	h.machine.egress[box] = []task.EgressRecord{{Seq: 1, Sandbox: box, Verdict: "denied", Stage: task.Agent}}
	h.machine.mu.Unlock()
	seen := make(chan bool, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for !h.tookOver(box) && ctx.Err() == nil {
			<-time.After(5 * time.Millisecond)
		}
		seen <- ctx.Err() == nil
		_, _ = h.work.Sandboxes.Run(context.Background(), box, cmd("go", `touch "$HOME/go"`), 0, discard{}, func() {})
	}()
	succeeds(t, h.do(task.Agent, 1))
	if !<-seen {
		t.Error("nothing was taken over while the agent ran")
	}
}

func (d *desk) tookOver(sandbox string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.egress[sandbox] > 0
}

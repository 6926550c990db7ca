package stage

import (
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestAfter(t *testing.T) {
	for _, c := range []struct {
		o     Outcome
		round int
		want  Next
	}{
		{Outcome{}, 1, EndTask},
		{Outcome{State: task.StageSucceeded}, 1, Proceed},
		{Outcome{State: task.StageSkipped}, 1, Proceed},
		{Outcome{State: task.StageCancelled, Reason: task.Cancelled}, 1, EndTask},
		{Outcome{State: task.StageRunning}, 1, EndTask},
		{Outcome{State: task.StageFailed, Reason: task.AgentFailed}, 1, EndTask},
		{Outcome{State: task.StageFailed, Reason: task.LimitMemory}, 1, EndTask},
		{Outcome{State: task.StageFailed, Reason: task.InputPolicy}, 1, EndTask},
		{Outcome{State: task.StageFailed, Reason: task.VerifyFailed}, 1, EndTask},
		{Outcome{State: task.StageFailed, Reason: task.InfraExhausted}, 1, EndTask},
		{Outcome{State: task.StageFailed, Reason: task.InfraWorkerLost}, 1, AgainRound},
		{Outcome{State: task.StageFailed, Reason: task.InfraWorkerLost}, MaxRounds, NewAttempt},
		{Outcome{State: task.StageFailed, Reason: task.InfraSandboxLost}, 1, NewAttempt},
		{Outcome{State: task.StageFailed, Reason: task.InfraEgressRestarted}, 1, NewAttempt},
		{Outcome{State: task.StageFailed, Reason: task.InfraSandboxCreate}, 1, NewAttempt},
	} {
		if got := After(c.o, c.round); got != c.want {
			t.Errorf("After(%+v, %d) = %d, want %d", c.o, c.round, got, c.want)
		}
	}
}

func TestEndingOf(t *testing.T) {
	if got := EndingOf(Outcome{State: task.StageFailed, Reason: task.InfraSandboxLost, Text: "gone"}, 3, false); got.Reason != task.InfraExhausted || got.State != task.Failed {
		t.Errorf("exhausted: %+v", got)
	}
	if got := EndingOf(Outcome{State: task.StageFailed, Reason: task.AgentFailed}, 1, false); got.Reason != task.AgentFailed || got.State != task.Failed {
		t.Errorf("agent failed: %+v", got)
	}
	if got := EndingOf(Outcome{State: task.StageSucceeded}, 1, true); got.State != task.StateCancelled {
		t.Errorf("cancelled at the last moment: %+v", got)
	}
	if got := EndingOf(Outcome{State: task.StageSkipped}, 1, false); got.State != task.Succeeded || got.Reason != "" {
		t.Errorf("succeeded: %+v", got)
	}
}

func TestSandboxID(t *testing.T) {
	seen := map[string]string{}
	for _, taskID := range []string{"t-aaaaaaaaaaaaaaaa", "t-bbbbbbbbbbbbbbbb"} {
		for attempt := 1; attempt <= 12; attempt++ {
			for _, role := range []string{RoleAgent, RoleExport, RoleVerify} {
				id := SandboxID(taskID, attempt, role)
				if !sandbox.ValidID(id) {
					t.Fatalf("%q is not a sandbox id", id)
				}
				if id != SandboxID(taskID, attempt, role) {
					t.Fatal("the id changes")
				}
				if other, ok := seen[id]; ok {
					t.Fatalf("%s is also %s", id, other)
				}
				seen[id] = role
			}
		}
	}
}

func TestSpecHasNetworkOnlyWithARule(t *testing.T) {
	rule := []task.Rule{{Host: "a.test", Ports: []uint16{443}}}
	setup := Plan{Rules: map[task.StageName][]task.Rule{task.Setup: rule}}
	for role, want := range map[string]bool{RoleAgent: true, RoleVerify: true, RoleExport: false} {
		if got := setup.Spec("t-x", 1, role).Network; got != want {
			t.Errorf("role %s with a setup rule: network %t", role, got)
		}
	}
	agent := Plan{Rules: map[task.StageName][]task.Rule{task.Agent: rule}}
	if agent.Spec("t-x", 1, RoleVerify).Network {
		t.Error("the verify sandbox has a network for the agent's rules")
	}
	if (Plan{}).Spec("t-x", 1, RoleAgent).Network {
		t.Error("the zero plan has a network")
	}
}

func TestCommandTime(t *testing.T) {
	p := Plan{Limits: task.Limits{Time: time.Minute}, Timeout: map[task.StageName]time.Duration{task.Agent: 2 * time.Hour}}
	if p.CommandTime(task.Agent) != 2*time.Hour || p.CommandTime(task.Setup) != time.Minute || p.LongestCommand() != 2*time.Hour {
		t.Errorf("times: %v %v %v", p.CommandTime(task.Agent), p.CommandTime(task.Setup), p.LongestCommand())
	}
	if (Plan{}).CommandTime(task.Agent) <= 0 {
		t.Error("the zero plan has no time limit")
	}
}

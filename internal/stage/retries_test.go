package stage

import (
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// What users meet first, with what follows: its class, its code, how often a
// stage or the task is tried, and how the task ends.
func TestSeedFailures(t *testing.T) {
	for _, c := range []struct {
		what     string
		stage    task.StageName
		reason   task.Reason
		class    string
		rounds   int // of the stage in one attempt
		attempts int
		ends     task.Reason
		exit     int
	}{
		{"worker fails to start a sandbox", task.Provision, task.InfraSandboxCreate, "infra", 1, MaxAttempts, task.InfraExhausted, 15},
		{"no worker answers", task.Provision, task.InfraWorkerLost, "infra", MaxRounds, MaxAttempts, task.InfraExhausted, 15},
		{"the machine lacks something", task.Provision, task.InfraMachine, "infra", 1, MaxAttempts, task.InfraExhausted, 15},
		{"clone fails", task.Checkout, task.CheckoutFailed, "checkout", 1, 1, task.CheckoutFailed, 17},
		{"the repository can't be read", task.Checkout, task.InputRepository, "input", 1, 1, task.InputRepository, 2},
		{"install fails", task.Setup, task.SetupFailed, "setup", 1, 1, task.SetupFailed, 17},
		{"install times out", task.Setup, task.LimitTime, "limit", 1, 1, task.LimitTime, 13},
		{"the registry is down", task.Setup, task.SetupFailed, "setup", 1, 1, task.SetupFailed, 17},
		{"the gateway is away", task.Setup, task.InfraEgressAway, "infra", MaxRounds, MaxAttempts, task.InfraExhausted, 15},
		{"the gateway was restarted", task.Setup, task.InfraEgressRestarted, "infra", 1, MaxAttempts, task.InfraExhausted, 15},
		{"tests fail", task.Verify, task.VerifyFailed, "verify", 1, 1, task.VerifyFailed, 11},
		{"the patch does not apply", task.Verify, task.PatchFailed, "verify", 1, 1, task.PatchFailed, 11},
		{"verify's sandbox dies", task.Verify, task.InfraSandboxLost, "infra", MaxRounds, 1, task.InfraExhausted, 15},
		{"verify's worker goes", task.Verify, task.InfraWorkerLost, "infra", MaxRounds, 1, task.InfraExhausted, 15},
		{"the model says nothing", task.Agent, task.ModelSilent, "agent", 1, 1, task.ModelSilent, 10},
		{"the model refuses", task.Agent, task.ModelRefused, "agent", 1, 1, task.ModelRefused, 10},
		{"the model is too busy", task.Agent, task.ModelLimited, "agent", 1, 1, task.ModelLimited, 10},
		{"the model speaks garbage", task.Agent, task.ModelFaulty, "agent", 1, 1, task.ModelFaulty, 10},
		{"the agent fails", task.Agent, task.AgentFailed, "agent", 1, 1, task.AgentFailed, 10},
		{"the agent's sandbox dies", task.Agent, task.InfraSandboxLost, "infra", 1, MaxAttempts, task.InfraExhausted, 15},
		{"memory is used up", task.Agent, task.LimitMemory, "limit", 1, 1, task.LimitMemory, 13},
		{"the disk is used up", task.Setup, task.LimitDisk, "limit", 1, 1, task.LimitDisk, 13},
		{"turns are used up", task.Agent, task.LimitTurns, "limit", 1, 1, task.LimitTurns, 13},
		{"the policy asks for too much", task.Admit, task.PolicyCeiling, "policy", 1, 1, task.PolicyCeiling, 12},
		{"a credential is not lent", task.Agent, task.PolicyCredential, "policy", 1, 1, task.PolicyCredential, 12},
		{"who mints a credential is away", task.Agent, task.InfraCredential, "infra", MaxRounds, MaxAttempts, task.InfraExhausted, 15},
		{"a lease is not put in place", task.Agent, task.InfraSelfTest, "infra", 1, MaxAttempts, task.InfraExhausted, 15},
		{"the disk of the control plane is full", task.Export, task.InfraStorage, "infra", MaxRounds, MaxAttempts, task.InfraExhausted, 15},
	} {
		if c.reason.Class() != c.class {
			t.Errorf("%s: class %q, want %q", c.what, c.reason.Class(), c.class)
		}
		last, rounds, attempts := play(c.stage, Outcome{State: task.StageFailed, Reason: c.reason, Text: "it happened"})
		e := EndingOf(last, attempts, false)
		if rounds != c.rounds || attempts != c.attempts || e.Reason != c.ends || e.State != task.Failed {
			t.Errorf("%s: %d rounds, %d attempts, ends %s with %q; want %d, %d, failed with %q", c.what, rounds, attempts, e.State, e.Reason, c.rounds, c.attempts, c.ends)
		}
		if got := e.Reason.ExitCode(); got != c.exit {
			t.Errorf("%s: exit code %d, want %d", c.what, got, c.exit)
		}
		if e.Text == "" {
			t.Errorf("%s ends without a word", c.what)
		}
	}
}

// play does what the workflow does with a stage that always ends with o.
func play(name task.StageName, o Outcome) (last Outcome, rounds, attempts int) {
	for attempts = 1; ; attempts++ {
		last = o
		for rounds = 1; ; rounds++ {
			next := After(o, rounds)
			if name == task.Verify && o.Reason.Retryable() {
				if next = AfterVerify(o, rounds); next == EndTask {
					last = Exhausted(name, o, rounds)
				}
			}
			if next != AgainRound {
				break
			}
		}
		if After(last, MaxRounds) != NewAttempt || attempts == MaxAttempts {
			return last, rounds, attempts
		}
	}
}

func TestRoundsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for round := 1; round <= MaxRounds; round++ {
		id := RoundSandboxID("t-aaaaaaaaaaaaaaaa", 1, RoleVerify, round)
		log := string(RoundLog(task.Verify, round))
		if seen[id] || seen[log] {
			t.Errorf("round %d shares %s or %s", round, id, log)
		}
		seen[id], seen[log] = true, true
	}
	if RoundSandboxID("t-a", 2, RoleVerify, 1) != SandboxID("t-a", 2, RoleVerify) || RoundLog(task.Verify, 1) != task.Verify {
		t.Error("the first round is not what it was before there were others")
	}
}

func TestSpecOfARole(t *testing.T) {
	for role, want := range map[string]bool{RoleAgent: true, RoleVerify: true, RoleExport: false} {
		p := Plan{Sudo: true, Repository: task.RepositoryAsk{Network: true}}
		if got := p.Spec("t-x", 1, role); got.Sudo != want || got.Network != want {
			t.Errorf("%s: %+v, want sudo and network %t", role, got, want)
		}
		if got := (Plan{}).Spec("t-x", 1, role); got.Sudo || got.Network {
			t.Errorf("%s of the zero plan: %+v", role, got)
		}
	}
}

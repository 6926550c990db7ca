package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// lender is a small vault: every name that has a variable is a credential.
type lender struct {
	mu      sync.Mutex
	env     map[string]string
	revoked map[string]bool
	leases  []task.Lent
	ends    []string // sandbox/why
	broken  error
}

func (l *lender) Check(_ context.Context, who string, rules map[task.StageName][]task.Rule) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range rules {
		for _, r := range list {
			if r.Credential != "" && l.env[r.Credential] == "" {
				return task.Fail(task.PolicyCredential, r.ID+".credential: no credential "+r.Credential, nil)
			}
		}
	}
	return nil
}

func (l *lender) Lend(_ context.Context, use task.LeaseUse, rules []task.Rule) ([]task.Lent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return nil, l.broken
	}
	var out []task.Lent
	for _, r := range rules {
		if r.Credential == "" {
			continue
		}
		id := fmt.Sprintf("%s/%d/%s/%s", r.Credential, use.Attempt, use.Stage, use.Sandbox)
		i := slices.IndexFunc(l.leases, func(have task.Lent) bool { return have.ID == id })
		switch {
		case i < 0 && l.revoked[r.Credential]:
			return nil, task.Fail(task.PolicyCredential, "revoked", nil)
		case i < 0:
			l.leases = append(l.leases, task.Lent{
				Lease: task.Lease{ID: id, Credential: r.Credential, Placeholder: fmt.Sprintf("placeholder%d", len(l.leases))},
				Env:   l.env[r.Credential], Task: use.Task, Stage: use.Stage, Sandbox: use.Sandbox, Count: 1,
			})
			i = len(l.leases) - 1
		case !l.leases[i].Active() && l.leases[i].Ended == task.EndedStage:
			l.leases[i].Until, l.leases[i].Ended = nil, ""
			l.leases[i].Count++
		}
		out = append(out, l.leases[i])
	}
	return out, nil
}

func (l *lender) Settle(context.Context, string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, have := range l.leases {
		if have.Active() {
			return errors.New("settled before all leases had ended")
		}
	}
	return nil
}

func (l *lender) End(_ context.Context, _, sandbox, why string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, sandbox+"/"+why)
	for i, have := range l.leases {
		if have.Active() && (sandbox == "" || have.Sandbox == sandbox) {
			l.end(i, why)
		}
	}
	return nil
}

func (l *lender) end(i int, why string) {
	now := time.Now()
	l.leases[i].Until, l.leases[i].Ended = &now, why
}

// revoke ends a credential and gives the leases that ended.
func (l *lender) revoke(name string) []task.Lent {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revoked[name] = true
	var out []task.Lent
	for i, have := range l.leases {
		if have.Active() && have.Credential == name {
			l.end(i, task.EndedRevoked)
			out = append(out, l.leases[i])
		}
	}
	return out
}

func (l *lender) active() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, have := range l.leases {
		if have.Active() {
			n++
		}
	}
	return n
}

func withCredentials(t *testing.T, spec task.Spec) *house {
	h := start(t, spec)
	h.lender.env = map[string]string{"model": "MODEL_KEY", "other": "OTHER_KEY"}
	h.plan.plan.Rules = map[task.StageName][]task.Rule{
		task.Setup: {{ID: "setup.network.allow[0]", Host: "registry.example", Ports: []uint16{443}}},
		task.Agent: {{ID: "agent.network.allow[0]", Host: "api.example", Ports: []uint16{443}, Credential: "model"}},
	}
	return h
}

// lastGrant is the sandbox's newest grant.
func (h *house) lastGrant(id string) task.Grant {
	h.machine.mu.Lock()
	defer h.machine.mu.Unlock()
	for _, g := range slices.Backward(h.machine.grants) {
		if g.Sandbox == id {
			return g
		}
	}
	return task.Grant{}
}

func TestCredentialIsLentToItsStageOnly(t *testing.T) {
	h := withCredentials(t, task.Spec{Setup: `echo "setup ${MODEL_KEY-none}"`, Agent: shell(`echo "agent $MODEL_KEY ${OTHER_KEY-none}"`), Verify: `echo "verify ${MODEL_KEY-none}"`})
	var during task.Grant
	h.machine.onRun = func(id, command string) error {
		if command == "agent" {
			during = h.lastGrant(id)
		}
		return nil
	}
	succeeds(t, h.through(task.Act, 1))
	for log, want := range map[string]string{"log.setup": "setup none\n", "log.agent": "agent placeholder0 none\n"} {
		if got := h.bytes(log); got != want {
			t.Errorf("%s is %q, want %q", log, got, want)
		}
	}
	if got := h.bytes("log.verify"); !strings.Contains(got, "verify none") {
		t.Errorf("log.verify is %q", got)
	}
	if len(during.Leases) != 1 || during.Leases[0].Placeholder != "placeholder0" {
		t.Errorf("while the agent ran the leases were %+v", during.Leases)
	}
	if n := h.lender.active(); n != 0 {
		t.Errorf("%d leases outlive their stage", n)
	}
	for _, g := range h.machine.grants {
		if len(g.Leases) > 0 && g.Stage != task.Agent {
			t.Errorf("stage %q was granted %+v", g.Stage, g.Leases)
		}
	}
	if g := h.lastGrant(h.box(stage.RoleAgent)); len(g.Rules) > 0 || len(g.Leases) > 0 {
		t.Errorf("the last grant is %+v", g)
	}
}

func TestRepeatedRunHasTheSamePlaceholder(t *testing.T) {
	h := withCredentials(t, task.Spec{Agent: shell(`echo "$MODEL_KEY"; while ! test -f "$HOME/go"; do sleep 0.01; done`)})
	succeeds(t, h.through(task.Setup, 1))
	in := stage.Input{Task: taskID, Attempt: 1, Round: 1}
	for range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		h.machine.onRun = func(string, string) error {
			time.AfterFunc(20*time.Millisecond, func() { cancel(ErrStopping) })
			return nil
		}
		if _, err := h.work.Do(ctx, task.Agent, in); err == nil {
			t.Fatal("a run that was cut off has an outcome")
		}
		if n := h.lender.active(); n != 1 {
			t.Fatalf("%d leases while the agent runs on", n)
		}
	}
	h.machine.onRun = nil
	if _, err := h.work.Sandboxes.Run(t.Context(), h.box(stage.RoleAgent), cmd("go", `touch "$HOME/go"`), 0, discard{}, func() {}); err != nil {
		t.Fatal(err)
	}
	succeeds(t, h.do(task.Agent, 1))
	if got := h.bytes("log.agent"); got != "placeholder0\n" || len(h.lender.leases) != 1 {
		t.Errorf("log %q, leases %+v", got, h.lender.leases)
	}
}

func TestMissingCredentialEndsTheTaskAtAdmit(t *testing.T) {
	h := withCredentials(t, task.Spec{Agent: shell("true")})
	delete(h.lender.env, "model")
	fails(t, h.do(task.Admit, 1), task.PolicyCredential, "agent.network.allow[0].credential")
}

func TestStageWithoutItsLeaseDoesNotRun(t *testing.T) {
	h := withCredentials(t, task.Spec{Agent: shell("true")})
	succeeds(t, h.through(task.Setup, 1))
	h.lender.revoke("model")
	fails(t, h.do(task.Agent, 1), task.PolicyCredential, "revoked")
	if n := h.machine.starts[h.box(stage.RoleAgent)+"/agent"]; n != 0 {
		t.Errorf("the agent was started %d times", n)
	}
}

func TestRevokedLeaseIsWithdrawnFromTheGrant(t *testing.T) {
	h := withCredentials(t, task.Spec{Agent: shell("true")})
	h.plan.plan.Rules[task.Agent] = append(h.plan.plan.Rules[task.Agent], task.Rule{ID: "b", Host: "b.example", Ports: []uint16{443}, Credential: "other"})
	succeeds(t, h.through(task.Setup, 1))
	var after, again task.Grant
	h.machine.onRun = func(id, command string) error {
		if command != "agent" {
			return nil
		}
		ended := h.lender.revoke("model")
		for range 2 {
			if err := h.work.Withdraw(t.Context(), ended); err != nil {
				return err
			}
		}
		after = h.lastGrant(id)
		// A control plane that began later knows of no grant: nothing is left.
		other := New(h.work.Deps)
		if err := other.Withdraw(t.Context(), h.lender.revoke("other")); err != nil {
			return err
		}
		again = h.lastGrant(id)
		return nil
	}
	succeeds(t, h.do(task.Agent, 1))
	if len(after.Rules) != 2 || len(after.Leases) != 1 || after.Leases[0].Credential != "other" {
		t.Errorf("after revoking one of two: %+v", after)
	}
	if len(again.Rules) != 0 || len(again.Leases) != 0 {
		t.Errorf("a grant that is not known: %+v", again)
	}
	if err := h.work.Withdraw(t.Context(), []task.Lent{{Lease: task.Lease{ID: "l"}, Sandbox: "sb-gone"}}); err != nil {
		t.Errorf("of a sandbox that is gone: %v", err)
	}
	if n := h.work.Known(); n != 0 {
		t.Errorf("%d grants that ended are remembered", n)
	}
}

func TestFinishEndsEveryLease(t *testing.T) {
	for state, why := range map[task.State]string{task.Failed: task.EndedTask, task.StateCancelled: task.EndedCancelled} {
		h := withCredentials(t, task.Spec{Agent: shell("true")})
		succeeds(t, h.through(task.Setup, 1))
		if _, err := h.lender.Lend(t.Context(), task.LeaseUse{Task: taskID, Sandbox: h.box(stage.RoleAgent)}, h.plan.plan.Rules[task.Agent]); err != nil {
			t.Fatal(err)
		}
		if err := h.work.Finish(t.Context(), stage.Input{Task: taskID, Attempt: 1, Round: 1}, stage.Ending{State: state}, true); err != nil {
			t.Fatal(err)
		}
		if h.lender.active() != 0 || !slices.Contains(h.lender.ends, "/"+why) {
			t.Errorf("%s: active %d, ends %v", state, h.lender.active(), h.lender.ends)
		}
	}
}

// A stage that is lent something begins with the proof that it works, and does
// not begin without: nothing of it runs, and what was given is taken away.
func TestStageBeginsWithTheProof(t *testing.T) {
	h := withCredentials(t, task.Spec{Setup: "true", Agent: shell("echo ran")})
	proved := map[task.StageName]int{}
	h.machine.onGrant = func(g task.Grant) error {
		if g.Prove {
			proved[g.Stage]++
			return task.Fail(task.InfraSelfTest, "no value", nil)
		}
		return nil
	}
	succeeds(t, h.through(task.Setup, 1))
	ran := false
	h.machine.onRun = func(_, command string) error { ran = ran || command == "agent"; return nil }
	o, err := h.work.Do(t.Context(), task.Agent, stage.Input{Task: taskID, Attempt: 1, Round: 1})
	if err != nil || o.State != task.StageFailed || o.Reason != task.InfraSelfTest || !strings.Contains(o.Text, "no value") {
		t.Errorf("%+v, %v", o, err)
	}
	if ran || len(proved) != 1 || proved[task.Agent] != 1 {
		t.Errorf("the agent ran: %v; proofs asked for: %v", ran, proved)
	}
	if g := h.lastGrant(h.box(stage.RoleAgent)); len(g.Rules) > 0 || len(g.Leases) > 0 || h.lender.active() > 0 {
		t.Errorf("left: %+v", g)
	}
}

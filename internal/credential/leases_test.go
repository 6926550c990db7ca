package credential

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestLendIsTheSameWhenRepeated(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	r.add(func(q *task.CredentialRequest) { q.Name, q.Env, q.Shared, q.Owner = "also", "", true, "bob" })
	tk := r.task("alice")
	first := r.lend(use(tk, task.Agent), "key", "also", "key")
	if len(first) != 2 || first[0].Credential != "also" || first[1].Credential != "key" || first[0].ID == first[1].ID {
		t.Fatalf("lent %+v", first)
	}
	for _, l := range first {
		if !leasePattern.MatchString(l.ID) || !strings.HasPrefix(l.Placeholder, "sk-ant-api03-placeholder") || !l.Active() || l.Count != 1 || l.Header != "X-Api-Key" || len(l.Hosts) != 1 {
			t.Errorf("%+v", l)
		}
	}
	r.reopen(func() {})
	again := r.lend(use(tk, task.Agent), "key", "also")
	for i := range again {
		if again[i].ID != first[i].ID || again[i].Placeholder != first[i].Placeholder || !again[i].From.Equal(first[i].From) {
			t.Errorf("%+v became %+v", first[i], again[i])
		}
	}
	// Another stage, attempt or sandbox is another lease.
	seen := map[string]bool{first[0].ID: true, first[0].Placeholder: true}
	for _, u := range []task.LeaseUse{
		{Task: tk.ID, Attempt: 2, Stage: task.Agent, Sandbox: use(tk, "").Sandbox, Who: "alice"},
		{Task: tk.ID, Attempt: 1, Stage: task.Setup, Sandbox: use(tk, "").Sandbox, Who: "alice"},
		{Task: tk.ID, Attempt: 1, Stage: task.Agent, Sandbox: "sb-zzzzzzzzzzzzzzzz", Who: "alice"},
	} {
		l := r.lend(u, "also")[0]
		if seen[l.ID] || seen[l.Placeholder] {
			t.Errorf("%+v has the lease of another use", u)
		}
		seen[l.ID], seen[l.Placeholder] = true, true
	}
	if got := r.records("credential.lent"); got != 5 {
		t.Errorf("%d records of lending", got)
	}
	if none, err := r.leases.Lend(t.Context(), use(tk, task.Verify), rules()); err != nil || none != nil {
		t.Errorf("rules without credentials: %v, %v", none, err)
	}
}

func TestLeaseEndsWithItsStageAndIsMadeAgain(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	tk := r.task("alice")
	u := use(tk, task.Agent)
	first := r.lend(u, "key")[0]
	for range 3 {
		if err := r.leases.End(t.Context(), tk.ID, u.Sandbox, task.EndedStage); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.leases.Value(t.Context(), u.Sandbox, first.ID)
	wants(t, err, task.PolicyCredential, "has ended")
	again := r.lend(u, "key")[0]
	if again.ID != first.ID || again.Placeholder != first.Placeholder || again.Count != 2 || !again.Active() || !again.From.After(first.From) {
		t.Errorf("again %+v", again)
	}
	if v, err := r.leases.Value(t.Context(), u.Sandbox, first.ID); err != nil || v.Value.Reveal() != realValue {
		t.Errorf("value: %v", err)
	}
	if err := r.leases.End(t.Context(), tk.ID, "", task.EndedTask); err != nil {
		t.Fatal(err)
	}
	// The end of a task is final.
	if l := r.lend(u, "key")[0]; l.Active() || l.Ended != task.EndedTask {
		t.Errorf("after the task's end: %+v", l)
	}
	if a, b := r.records("credential.lent"), r.records("credential.ended"); a != 2 || b != 2 {
		t.Errorf("%d begins and %d ends on record", a, b)
	}
}

func TestRevokedCredentialEndsItsLeases(t *testing.T) {
	for _, remove := range []bool{false, true} {
		r := newRig(t)
		c := r.add(nil)
		r.add(func(q *task.CredentialRequest) { q.Name = "other" })
		tk := r.task("alice")
		u := use(tk, task.Agent)
		lent := r.lend(u, "key", "other")
		_, ended, err := r.leases.Revoke(t.Context(), "key", "admin", remove)
		if err != nil || len(ended) != 1 || ended[0].ID != lent[0].ID || ended[0].Ended != task.EndedRevoked {
			t.Fatalf("ended %+v, %v", ended, err)
		}
		_, err = r.leases.Value(t.Context(), u.Sandbox, lent[0].ID)
		wants(t, err, task.PolicyCredential, "has ended")
		_, _, err = r.vault.active(t.Context(), "key", c.ID)
		wants(t, err, task.PolicyCredential, "key")
		if _, err := r.leases.Value(t.Context(), u.Sandbox, lent[1].ID); err != nil {
			t.Errorf("the other one: %v", err)
		}
		// The stage that has its placeholder keeps it, ended; another gets none.
		if l := r.lend(u, "key")[0]; l.Active() || l.Placeholder != lent[0].Placeholder {
			t.Errorf("repeated: %+v", l)
		}
		_, err = r.leases.Lend(t.Context(), use(tk, task.Verify), rules("key"))
		wants(t, err, task.PolicyCredential, "revoked or removed")
		// Another credential of the name is not the one that was lent.
		if remove {
			r.add(nil)
			if l := r.lend(u, "key")[0]; l.Active() {
				t.Errorf("the name alone counts: %+v", l)
			}
			_, err = r.leases.Value(t.Context(), u.Sandbox, lent[0].ID)
			wants(t, err, task.PolicyCredential, "has ended")
		}
		if n := r.records("credential.ended"); n != 1 {
			t.Errorf("%d ends on record", n)
		}
	}
}

// A lease whose row says that it is active is not enough.
func TestValueIsOfTheVeryCredential(t *testing.T) {
	r := newRig(t)
	c := r.add(nil)
	tk := r.task("alice")
	u := use(tk, task.Agent)
	l := r.lend(u, "key")[0]
	r.alter("DELETE FROM credentials WHERE id = ?", c.ID)
	_, err := r.leases.Value(t.Context(), u.Sandbox, l.ID)
	wants(t, err, task.PolicyCredential, "removed")
	r.add(nil)
	_, err = r.leases.Value(t.Context(), u.Sandbox, l.ID)
	wants(t, err, task.PolicyCredential, "another one")
}

func TestValueIsRefused(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	tk := r.task("alice")
	u := use(tk, task.Agent)
	l := r.lend(u, "key")[0]
	for _, c := range [][2]string{
		{"", l.ID},
		{u.Sandbox, ""},
		{u.Sandbox, "l-aaaaaaaaaaaaaaaa"},
		{"sb-aaaaaaaaaaaaaaaa", l.ID},
		{u.Sandbox, "L" + l.ID[1:]},
		{u.Sandbox, l.ID + " "},
		{u.Sandbox, "' OR 1=1 --"},
		{"%", l.ID},
	} {
		v, err := r.leases.Value(t.Context(), c[0], c[1])
		wants(t, err, task.PolicyCredential, "not lent to this sandbox")
		if !v.Value.Empty() {
			t.Errorf("%q: a value", c)
		}
	}
	for range 3 {
		if v, err := r.leases.Value(t.Context(), u.Sandbox, l.ID); err != nil || v.Value.Reveal() != realValue {
			t.Fatalf("%v", err)
		}
	}
	if n := r.records("credential.given"); n != 1 {
		t.Errorf("%d records of giving", n)
	}
	c, err := r.leases.Get(t.Context(), "key")
	if err != nil || c.LastUsed == nil {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestNothingIsLentToATaskThatEnds(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	tk := r.task("alice")
	l := r.lend(use(tk, task.Setup), "key")[0]
	if _, err := r.store.RequestCancel(t.Context(), tk.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.leases.End(t.Context(), tk.ID, "", task.EndedCancelled); err != nil {
		t.Fatal(err)
	}
	_, err := r.leases.Lend(t.Context(), use(tk, task.Agent), rules("key"))
	wants(t, err, task.Cancelled, "cancelled")
	_, err = r.leases.Value(t.Context(), l.Sandbox, l.ID)
	wants(t, err, task.PolicyCredential, "")
	over := r.task("alice")
	if err := r.store.SetTask(t.Context(), over.ID, stage.TaskUpdate{State: task.Failed, Reason: task.AgentFailed}); err != nil {
		t.Fatal(err)
	}
	_, err = r.leases.Lend(t.Context(), use(over, task.Agent), rules("key"))
	wants(t, err, task.Cancelled, "has ended")
}

func TestCheck(t *testing.T) {
	r := newRig(t)
	r.add(func(q *task.CredentialRequest) { q.Hosts = []string{"*.example.com", "10.0.0.1"} })
	r.add(func(q *task.CredentialRequest) { q.Name, q.Owner, q.Shared = "shared", "bob", true })
	r.add(func(q *task.CredentialRequest) { q.Name, q.Owner = "bobs", "bob" })
	r.add(func(q *task.CredentialRequest) { q.Name = "gone" })
	if _, _, err := r.leases.Revoke(t.Context(), "gone", "admin", false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, host string
		port       uint16
		want       task.Reason
		text       string
	}{
		{"", "any.example", 80, "", ""},
		{"key", "api.example.com", 443, "", ""},
		{"key", "**.example.com", 443, "", ""},
		{"key", "10.0.0.1", 443, "", ""},
		{"shared", "api.example.com", 443, "", ""},
		{"none", "api.example.com", 443, task.PolicyCredential, `agent.network.allow[0].credential: there is no credential "none" that alice may use`},
		{"bobs", "api.example.com", 443, task.PolicyCredential, `there is no credential "bobs" that alice may use`},
		{"gone", "api.example.com", 443, task.PolicyCredential, "was revoked"},
		{"../key", "api.example.com", 443, task.PolicyCredential, "there is no credential"},
		{"key", "a.api.example.com", 443, task.InputPolicy, "agent.network.allow[0].credential: credential \"key\" is bound to *.example.com, 10.0.0.1 "},
		{"key", "api.example.com", 8443, task.InputPolicy, "bound to the ports [443]"},
	} {
		err := r.leases.Check(t.Context(), "alice", map[task.StageName][]task.Rule{
			task.Agent: {{ID: "agent.network.allow[0]", Host: c.host, Ports: []uint16{c.port}, Credential: c.name}},
		})
		wants(t, err, c.want, c.text)
	}
}

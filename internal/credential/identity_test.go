package credential

import (
	"context"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// signer is an issuer that signs anything, after before.
type signer struct {
	before func()
	err    error
	count  int
}

func (s *signer) Mint(_ context.Context, c task.Credential, long task.Secret, l task.Lent) (Minted, error) {
	if s.before != nil {
		s.before()
	}
	if s.err != nil || !long.Empty() || c.Settings[task.SettingAudience] == "" {
		return Minted{}, s.err
	}
	s.count++
	return Minted{Value: task.NewSecret("eyJ.token-" + l.ID + c.Settings[task.SettingAudience] + strings.Repeat("x", s.count))}, nil
}

func (*signer) Revoke(context.Context, task.Credential, task.Secret, task.Secret) error {
	return ErrLasts
}

func (r *rig) signs(s *signer) {
	r.leases = NewLeases(r.vault, r.store, r.audit, r.tick, Minting{Minters: map[string]Minter{task.KindOIDC: s}})
}

func has(u task.LeaseUse, list ...task.Identity) task.LeaseUse {
	u.Identity = list
	return u
}

func TestIdentityLeases(t *testing.T) {
	r := newRig(t)
	s := &signer{}
	tk := r.task("alice")
	seen, hidden := task.Identity{Audience: "sts.amazonaws.com", Visible: true}, task.Identity{Audience: "https://vault.example"}
	u := has(use(tk, task.Agent), seen, hidden)
	_, err := r.leases.Lend(t.Context(), u, nil)
	wants(t, err, task.PolicyCredential, "agent.identity")
	r.signs(s)
	r.add(nil)
	list := r.lend(u, "key")
	if len(list) != 3 || list[0].Credential != "key" || list[1].Credential != seen.Name() || list[2].Placeholder != list[1].Placeholder || list[1].Env != task.TokenEnv {
		t.Fatalf("lent %+v", list)
	}
	again := r.lend(u, "key")
	if again[2].Placeholder != list[1].Placeholder || again[1].ID != list[1].ID || r.records("credential.lent") != 3 {
		t.Errorf("again %+v", again)
	}
	if other := r.lend(has(use(tk, task.Verify), seen)); other[0].Placeholder == list[1].Placeholder || other[0].ID == list[1].ID {
		t.Error("two stages share a request token")
	}
	box := u.Sandbox
	for _, c := range []struct {
		sandbox, lease string
	}{{box, list[2].ID}, {"sb-bbbbbbbbbbbbbbbb", list[1].ID}, {"", list[1].ID}} {
		_, err := r.leases.Value(t.Context(), c.sandbox, c.lease)
		wants(t, err, task.PolicyCredential, "not lent")
	}
	one, err := r.leases.Value(t.Context(), box, list[1].ID)
	if err != nil || !one.Once || !strings.HasPrefix(one.Value.Reveal(), "eyJ.token-") {
		t.Fatalf("%+v %v", one, err)
	}
	if two, err := r.leases.Value(t.Context(), box, list[1].ID); err != nil || two.Value.Reveal() == one.Value.Reveal() {
		t.Errorf("the same token twice, %v", err)
	}
	s.err = task.Fail(task.LimitRequests, "too often", nil)
	_, err = r.leases.Value(t.Context(), box, list[1].ID)
	wants(t, err, task.LimitRequests, "too often")
	s.err = nil
	// The stage ends while the token is being signed.
	s.before = func() {
		if err := r.leases.End(context.WithoutCancel(t.Context()), tk.ID, box, task.EndedStage); err != nil {
			t.Error(err)
		}
	}
	_, err = r.leases.Value(t.Context(), box, list[1].ID)
	wants(t, err, task.PolicyCredential, "ended")
	s.before = nil
	_, err = r.leases.Value(t.Context(), box, list[1].ID)
	wants(t, err, task.PolicyCredential, "ended")
	// Taken up again, it has the same request token.
	if next := r.lend(u); next[0].Count != 2 || next[0].Placeholder != list[1].Placeholder {
		t.Errorf("taken up again: %+v", next)
	}
	if err := r.leases.End(t.Context(), tk.ID, "", task.EndedCancelled); err != nil {
		t.Fatal(err)
	}
	if over := r.lend(u); over[0].Active() {
		t.Error("a lease that was cancelled lasts again")
	}
	if strings.Contains(r.export(), "eyJ.token") {
		t.Error("a token is on record")
	}
}

// A lease of a name like that without policy behind it opens nothing.
func TestIdentityLeaseIsNoCredential(t *testing.T) {
	r := newRig(t)
	r.signs(&signer{})
	tk := r.task("alice")
	for _, l := range []task.Lease{
		{Kind: task.KindOIDC, Credential: "identity:a", Settings: map[string]string{"audience": "b", "visible": "true"}},
		{Kind: task.KindHeader, Credential: "identity:a", Settings: map[string]string{"audience": "a", "visible": "true"}},
		{Kind: task.KindOIDC, Credential: "a", Settings: map[string]string{"audience": "a", "visible": "true"}},
		{},
	} {
		l.ID = "l-aaaaaaaaaaaaaaaa"
		if _, err := r.store.MakeLease(t.Context(), task.Lent{Lease: l, Task: tk.ID, Sandbox: "sb-aaaaaaaaaaaaaaaa"}); task.ReasonOf(err) != task.PolicyCredential {
			t.Errorf("%+v: %v", l, err)
		}
	}
	req := ask("identity:a")
	req.Kind, req.Settings, req.Value = task.KindOIDC, map[string]string{"audience": "a"}, task.Secret{}
	_, err := r.leases.Add(t.Context(), req, "admin")
	wants(t, err, task.InputInvalid, "name")
}

func TestKindOIDC(t *testing.T) {
	r := newRig(t)
	s := &signer{}
	r.signs(s)
	base := func() task.CredentialRequest {
		return task.CredentialRequest{
			Name: "cloud", Owner: "alice", Kind: task.KindOIDC, Hosts: []string{"api.example.com"}, Settings: map[string]string{"audience": "https://api.example.com"},
		}
	}
	for text, change := range map[string]func(*task.CredentialRequest){
		"value: is made for each request":   func(q *task.CredentialRequest) { q.Value = task.NewSecret(realValue) },
		"settings.audience: is missing":     func(q *task.CredentialRequest) { q.Settings = nil },
		"settings.audience: must be":        func(q *task.CredentialRequest) { q.Settings["audience"] = "a b" },
		"settings.visible: kind oidc knows": func(q *task.CredentialRequest) { q.Settings["visible"] = "true" },
		"hosts: none":                       func(q *task.CredentialRequest) { q.Hosts = nil },
		"hosts[0]:":                         func(q *task.CredentialRequest) { q.Hosts = []string{"run.cofferdam.internal"} },
		"header:":                           func(q *task.CredentialRequest) { q.Header = "Host" },
	} {
		q := base()
		change(&q)
		_, err := r.leases.Add(t.Context(), q, "admin")
		wants(t, err, task.InputInvalid, text)
	}
	c, err := r.leases.Add(t.Context(), base(), "admin")
	if err != nil || c.Header != "Authorization" || c.Prefix != "Bearer " {
		t.Fatalf("%+v %v", c, err)
	}
	tk := r.task("alice")
	u := use(tk, task.Agent)
	lent := r.lend(u, "cloud")
	if lent[0].OfIdentity() || lent[0].Settings["audience"] != "https://api.example.com" {
		t.Errorf("lent %+v", lent[0])
	}
	one, err := r.leases.Value(t.Context(), u.Sandbox, lent[0].ID)
	if err != nil || !one.Once || one.Value.Empty() {
		t.Fatalf("%+v %v", one, err)
	}
	s.err = task.Fail(task.LimitRequests, "too often", nil)
	_, err = r.leases.Value(t.Context(), u.Sandbox, lent[0].ID)
	wants(t, err, task.LimitRequests, "too often")
	s.err = nil
	if two, err := r.leases.Value(t.Context(), u.Sandbox, lent[0].ID); err != nil || two.Value.Reveal() == one.Value.Reveal() {
		t.Errorf("the same token twice, %v", err)
	}
	if _, _, err := r.leases.Revoke(t.Context(), "cloud", "admin", false); err != nil {
		t.Fatal(err)
	}
	_, err = r.leases.Value(t.Context(), u.Sandbox, lent[0].ID)
	wants(t, err, task.PolicyCredential, "not lent")
}

package credential

import (
	"testing"

	"github.com/cofferdam/cofferdam/internal/store/vault"
	"github.com/cofferdam/cofferdam/internal/task"
)

// All credentials are wiped and all leases ended by one call, which may be
// repeated, and nothing of it is missing in the account.
func TestRevokeAll(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	r.add(func(q *task.CredentialRequest) { q.Name, q.Owner = "bobs", "bob" })
	r.add(func(q *task.CredentialRequest) { q.Name = "before" })
	one, two := r.task("alice"), r.task("bob")
	first := r.lend(use(one, task.Agent), "before", "key")
	second := r.lend(use(two, task.Agent), "bobs")
	if _, _, err := r.leases.Revoke(t.Context(), "before", "alice", false); err != nil {
		t.Fatal(err)
	}
	rows := vault.New(r.store.Base())
	end, err := r.leases.RevokeAll(t.Context(), rows, "admin")
	if err != nil || end.Credentials != 2 || end.Leases != 2 || len(end.All) != 3 || len(end.Cut) != 2 {
		t.Errorf("ended %+v, %v", end, err)
	}
	for _, l := range append(first, second...) {
		_, err := r.leases.Value(t.Context(), l.Sandbox, l.ID)
		wants(t, err, task.PolicyCredential, "")
		if have, err := r.store.Lease(t.Context(), l.ID); err != nil || have.Ended != task.EndedRevoked {
			t.Errorf("lease %+v, %v", have, err)
		}
	}
	for _, name := range []string{"before", "bobs", "key"} {
		if c, sealed, err := r.store.Credential(t.Context(), name); err != nil || c.Revoked == nil || len(sealed) != 0 {
			t.Errorf("%s: %+v, %d bytes are still sealed, %v", name, c, len(sealed), err)
		}
	}
	if r.records("credential.revoke") != 3 || r.records("credential.ended") != 3 || r.records("credential.revoke_all") != 1 {
		t.Errorf("the account is not whole:\n%s", r.export())
	}
	_, err = r.leases.Lend(t.Context(), use(r.task("alice"), task.Agent), rules("key"))
	wants(t, err, task.PolicyCredential, "revoked")

	// Once more, after a restart: where the sandboxes still are, they are told again.
	if err := r.store.SetSandboxWorker(t.Context(), second[0].Sandbox, "m1"); err != nil {
		t.Fatal(err)
	}
	r.reopen(func() {})
	again, err := r.leases.RevokeAll(t.Context(), vault.New(r.store.Base()), "admin")
	if err != nil || again.Credentials != 0 || again.Leases != 0 || len(again.Cut) != 1 || again.Cut[0].ID != second[0].ID {
		t.Errorf("again: %+v, %v", again, err)
	}
	if r.records("credential.revoke") != 3 || r.records("credential.ended") != 3 || r.records("credential.revoke_all") != 2 {
		t.Errorf("the account after the second time:\n%s", r.export())
	}
}

// What is put on record only after the facts is so at the next call, when the
// first one was killed between.
func TestRevokeAllKilledBeforeItsRecord(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	lent := r.lend(use(r.task("alice"), task.Agent), "key")
	if err := r.store.SetSandboxWorker(t.Context(), lent[0].Sandbox, "m1"); err != nil {
		t.Fatal(err)
	}
	if _, err := vault.New(r.store.Base()).EndAll(t.Context(), r.tick()); err != nil {
		t.Fatal(err)
	}
	r.reopen(func() {})
	if _, err := r.leases.RevokeAll(t.Context(), vault.New(r.store.Base()), "admin"); err != nil {
		t.Fatal(err)
	}
	if r.records("credential.revoke") != 1 || r.records("credential.ended") != 1 {
		t.Errorf("the account is not whole:\n%s", r.export())
	}
}

package credential

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/store/vault"
	"github.com/cofferdam/cofferdam/internal/task"
)

// A login of our own is replaced under the same binding: it opens again, the rest
// of the credential stays, and what was revoked is not written to.
func TestRenewals(t *testing.T) {
	r := newRig(t)
	c, err := r.leases.Add(t.Context(), task.CredentialRequest{Name: "mine", Owner: "alice", Kind: task.KindClaudeLogin, Value: task.NewSecret(claudeText)}, "admin")
	if err != nil {
		t.Fatal(err)
	}
	renew := NewRenewals(r.vault, vault.New(r.store.Base()))
	next := strings.ReplaceAll(claudeText, "REALVALUE", "REALVALUE-next")
	if err := renew.Renew(t.Context(), c, task.NewSecret(next)); err != nil {
		t.Fatal(err)
	}
	if got, err := renew.Newest(t.Context(), c); err != nil || got.Reveal() != next {
		t.Errorf("%v", err)
	}
	if again, err := r.vault.Get(t.Context(), "mine"); err != nil || again.ID != c.ID || again.Kind != c.Kind || len(again.Hosts) != 1 {
		t.Errorf("%+v, %v", again, err)
	}
	wider := c
	wider.Hosts = []string{"evil.example"}
	if err := renew.Renew(t.Context(), wider, task.NewSecret(next)); err != nil {
		t.Fatal(err)
	}
	if _, err := renew.Newest(t.Context(), c); task.ReasonOf(err) != task.InfraVault {
		t.Errorf("sealed under another binding it opens: %v", err)
	}
	if _, _, err := r.leases.Revoke(t.Context(), "mine", "admin", false); err != nil {
		t.Fatal(err)
	}
	if err := renew.Renew(t.Context(), c, task.NewSecret(next)); task.ReasonOf(err) != task.PolicyCredential {
		t.Errorf("after it was revoked: %v", err)
	}
	if _, err := renew.Newest(t.Context(), c); task.ReasonOf(err) != task.PolicyCredential {
		t.Errorf("after it was revoked: %v", err)
	}
}

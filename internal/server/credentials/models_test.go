package credentials

import (
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Whose logins count: one's own before those that are shared, no others', none
// that was revoked; and where there is none it is as if there were no logins at all.
func TestModelKeys(t *testing.T) {
	r := newRig(t)
	add := func(name, owner, kind string, shared bool) {
		t.Helper()
		q := api.CredentialRequest{Name: name, Owner: owner, Shared: shared, Kind: kind, Value: value}
		if q.Hosts = []string{"a.example"}; kind != "header" {
			q.Value, q.Settings = "", map[string]string{"dir": "/home/" + name}
		}
		if kind == task.KindCodexLogin {
			q.Settings["account"] = "acc-1"
		}
		if _, err := r.desk.Add(t.Context(), who("root", identity.Admin), q); err != nil {
			t.Fatal(err)
		}
	}
	keys := func(user string) task.ModelKeys {
		t.Helper()
		k, err := r.desk.ModelKeys(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	add("anthropic", "alice", "header", true)
	add("other", "alice", "header", true)
	if k := keys("alice"); k.Keys != nil || k.Logins != nil {
		t.Errorf("without logins: %+v", k)
	}
	add("a-shared", "root", task.KindClaudeLogin, true)
	add("b-bobs", "bob", task.KindClaudeLogin, false)
	add("c-mine", "alice", task.KindCodexLogin, false)
	add("d-gone", "alice", task.KindClaudeLogin, false)
	if _, err := r.desk.End(t.Context(), who("alice", identity.User), "d-gone", false); err != nil {
		t.Fatal(err)
	}
	want := []task.ModelLogin{{Credential: "c-mine", Kind: task.KindCodexLogin}, {Credential: "a-shared", Kind: task.KindClaudeLogin}}
	if k := keys("alice"); !slices.Equal(k.Keys, []string{"anthropic"}) || !slices.Equal(k.Logins, want) {
		t.Errorf("alice: %+v", k)
	}
	if k := keys("carol"); len(k.Logins) != 1 || k.Logins[0].Credential != "a-shared" {
		t.Errorf("carol: %+v", k)
	}
}

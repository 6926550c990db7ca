package keys_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/keys"
	"github.com/cofferdam/cofferdam/internal/task"
)

func open(t *testing.T) (*store.Store, *keys.Rows) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, keys.New(s.Base())
}

func TestRotationsAreKept(t *testing.T) {
	_, rows := open(t)
	at := time.Unix(100, 0).UTC()
	for i, key := range []string{"a", "b", "a"} { // once more changes nothing
		r := task.KeyRotation{Name: task.KeyVault, Key: key, By: "admin", At: at.Add(time.Duration(i) * time.Second)}
		if err := rows.Add(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	last, err := rows.Last(t.Context())
	if err != nil || len(last) != 1 || last[task.KeyVault].Key != "b" || !last[task.KeyVault].At.Equal(at.Add(time.Second)) {
		t.Errorf("%+v, %v", last, err)
	}
	for key, want := range map[string]bool{"a": true, "b": true, "c": false} {
		if ok, err := rows.Rotated(t.Context(), task.KeyVault, key); err != nil || ok != want {
			t.Errorf("%s: %v, %v", key, ok, err)
		}
	}
}

// TestRenewedTokens: every token of before is refused at once, those of machines are
// in their files, and what was made meanwhile is gone too.
func TestRenewedTokens(t *testing.T) {
	s, rows := open(t)
	now := time.Now()
	ids := identity.New(s, func() time.Time { return now })
	secrets := map[string]identity.Secret{}
	for _, r := range []identity.Request{
		{User: "admin", Role: identity.Admin}, {User: "alice", Role: identity.User, Note: "laptop", TTL: time.Hour},
		{User: "worker", Role: identity.Worker}, {User: "old", Role: identity.User, TTL: time.Nanosecond},
	} {
		_, secret, err := ids.Issue(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		secrets[r.User] = secret
	}
	now = now.Add(time.Second)
	var file identity.Secret
	own := []identity.Own{{Secret: secrets["worker"], Write: func(s identity.Secret) error { file = s; return nil }}}
	works := func(s identity.Secret) bool {
		_, err := ids.Verify(t.Context(), s)
		return err == nil
	}
	// A user's only.
	made, err := ids.Renew(t.Context(), rows, "alice", own, func([]identity.Renewed) error { return nil })
	if err != nil || len(made) != 1 || made[0].User != "alice" || made[0].Note != "laptop" || made[0].ExpiresAt.IsZero() || made[0].File {
		t.Fatalf("%+v, %v", made, err)
	}
	if works(secrets["alice"]) || !works(made[0].Secret) || !works(secrets["admin"]) || file.Reveal() != "" {
		t.Error("a user's tokens: the wrong ones work")
	}
	// Everyone's; one is made by a thief between the look and the end of it.
	var thief identity.Secret
	all, err := ids.Renew(t.Context(), rows, "", own, func([]identity.Renewed) (err error) {
		_, thief, err = ids.Issue(t.Context(), identity.Request{User: "admin", Role: identity.Admin})
		return err
	})
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for who, s := range map[string]identity.Secret{"admin": secrets["admin"], "worker": secrets["worker"], "alice": made[0].Secret, "a thief": thief} {
		if works(s) {
			t.Errorf("the token of %s still works", who)
		}
	}
	for _, one := range all {
		if !works(one.Secret) || one.File != (one.User == "worker") {
			t.Errorf("%+v does not work, or is in no file", one.Token)
		}
	}
	if p, err := ids.Verify(t.Context(), file, identity.Worker); err != nil || p.User != "worker" {
		t.Errorf("the file's: %+v, %v", p, err)
	}
	// What can't be put on record or written has not happened.
	lost := errors.New("the disk is full")
	if _, err := ids.Renew(t.Context(), rows, "", nil, func([]identity.Renewed) error { return lost }); !errors.Is(err, lost) {
		t.Error(err)
	}
	bad := []identity.Own{{Secret: file, Write: func(identity.Secret) error { return lost }}}
	if _, err := ids.Renew(t.Context(), rows, "", bad, func([]identity.Renewed) error { return nil }); !errors.Is(err, lost) || !works(file) {
		t.Errorf("%v", err)
	}
	if _, err := ids.Renew(t.Context(), rows, "nobody", nil, func([]identity.Renewed) error { return nil }); err == nil {
		t.Error("tokens of nobody")
	}
}

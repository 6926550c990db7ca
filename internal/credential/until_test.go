package credential

import (
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// A lease ends with the last of the rules that lend it, whoever asks, and the
// account says when and why; one that a rule without an end lends lasts.
func TestLeaseEndsWithItsRules(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	r.add(func(q *task.CredentialRequest) { q.Name = "other" })
	tk := r.task("alice")
	u := use(tk, task.Agent)
	soon, later := r.tick().Add(time.Minute), r.tick().Add(10*time.Minute)
	list := append(rules("key", "key", "other", "other"), task.Rule{ID: "more", Host: "api.example.com", Ports: []uint16{443}, Credential: "other"})
	list[1].Until, list[2].Until, list[3].Until, list[4].Until = &soon, &later, &soon, &soon
	lent, err := r.leases.Lend(t.Context(), u, list)
	if err != nil || len(lent) != 2 || lent[0].Ends == nil || !lent[0].Ends.Equal(later) || lent[1].Ends != nil {
		t.Fatalf("%+v, %v", lent, err)
	}
	for _, l := range lent {
		if _, err := r.leases.Value(t.Context(), u.Sandbox, l.ID); err != nil {
			t.Errorf("%s: %v", l.Credential, err)
		}
	}
	r.mu.Lock()
	r.now = later.Add(time.Second)
	r.mu.Unlock()
	_, err = r.leases.Value(t.Context(), u.Sandbox, lent[0].ID)
	wants(t, err, task.PolicyCredential, "has ended")
	if _, err := r.leases.Value(t.Context(), u.Sandbox, lent[1].ID); err != nil {
		t.Errorf("the one without an end: %v", err)
	}
	if err := r.leases.End(t.Context(), tk.ID, u.Sandbox, task.EndedStage); err != nil {
		t.Fatal(err)
	}
	for text, n := range map[string]int{
		`"until":"` + later.UTC().Format(time.RFC3339Nano) + `","why":"time"`: 1, `"why":"stage"`: 1,
	} {
		if got := strings.Count(r.export(), text); got != n {
			t.Errorf("%s: %d times in the account\n%s", text, got, r.export())
		}
	}
}

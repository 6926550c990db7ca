package provider_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// inside says whether a text may be told to a program inside: words of ours,
// without the provider's address or anything that it said.
func inside(text, address string) bool {
	if text == "" {
		return true
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(address, "https://"), ":")
	for _, theirs := range []string{host, "Bad credentials", "client", "AccessDenied", "Authorization", "rate limit", "admin", "secrets", "REALVALUE"} {
		if strings.Contains(text, theirs) {
			return false
		}
	}
	return strings.HasPrefix(text, "Who mints the credential key-") && strings.HasSuffix(text, ".")
}

// A key that is replaced at the provider while a stage runs: what was made before
// lasts its time, what comes after is refused with why, and the new key works
// under the same name for whoever is lent it anew.
func TestKeyReplacedMidRun(t *testing.T) {
	w := newWorld(t)
	for _, kind := range kinds() {
		w.site.do(func(s *site) { s.fault, s.asked, s.live, s.life = nil, 0, map[string]bool{}, time.Hour })
		r := w.request(kind)
		l := w.lend(r)
		before, err := w.value(l)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		w.site.do(says(401, "application/json", `{"message":"Bad credentials","error":"invalid_client"}`))
		if again, err := w.value(l); err != nil || again.Value.Reveal() != before.Value.Reveal() {
			t.Errorf("%s: what was made before: %v", kind, err)
		}
		w.skew += time.Hour
		if _, err := w.value(l); task.ReasonOf(err) != task.PolicyCredential || !strings.Contains(err.Error(), "refuses (401)") {
			t.Errorf("%s: after its time: %v", kind, err)
		}
		w.site.do(func(s *site) { s.fault = nil })
		if _, _, err := w.leases.Revoke(t.Context(), r.Name, "admin", true); err != nil {
			t.Fatal(err)
		}
		if _, err := w.value(l); task.ReasonOf(err) != task.PolicyCredential {
			t.Errorf("%s: a lease of the old key: %v", kind, err)
		}
		if given, err := w.value(w.lend(r)); err != nil || given.Value.Empty() {
			t.Errorf("%s: the new key: %v", kind, err)
		}
	}
}

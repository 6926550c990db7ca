package decide

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestZeroGrantDenies(t *testing.T) {
	for _, use := range []Use{{}, {Name: "a.test", Port: 443}, {Address: "192.0.2.1", Port: 80}, {Name: "a.test"}} {
		got := Decide(task.Grant{}, use)
		if got.Verdict != task.Denied || got.Reason != task.PolicyDenied {
			t.Errorf("Decide(zero grant, %+v) = %+v, want denied", use, got)
		}
	}
	if (task.Decision{}).Verdict != task.Denied {
		t.Error("the zero decision allows")
	}
}

func TestDecide(t *testing.T) {
	grant := task.Grant{Rules: []task.Rule{
		{ID: "one", Host: "a.test", Ports: []uint16{443, 8443}},
		{ID: "two", Host: "2001:db8::1", Ports: []uint16{22}},
		{ID: "three", Host: "192.0.2.7", Ports: []uint16{80}, Private: true},
		{ID: "four", Host: "noports.test"},
	}}
	for _, c := range []struct {
		use  Use
		rule string
	}{
		{Use{Name: "a.test", Port: 443}, "one"},
		{Use{Name: "A.Test.", Port: 8443}, "one"},
		{Use{Name: "a.test", Port: 80}, ""},
		{Use{Name: "b.a.test", Port: 443}, ""},
		{Use{Name: "a.test.evil", Port: 443}, ""},
		{Use{Name: "xa.test", Port: 443}, ""},
		{Use{Name: "a.test", Address: "192.0.2.7", Port: 443}, ""},
		{Use{Address: "2001:db8:0:0::1", Port: 22}, "two"},
		{Use{Address: "::ffff:192.0.2.7", Port: 80}, "three"},
		{Use{Address: "192.0.2.7%eth0", Port: 80}, ""},
		{Use{Address: "a.test", Port: 443}, ""},
		{Use{Name: "noports.test", Port: 443}, ""},
		{Use{Name: "a.test", Port: 0}, ""},
	} {
		got := Decide(grant, c.use)
		if (got.Verdict == task.Allowed) != (c.rule != "") || got.Rule != c.rule {
			t.Errorf("Decide(%+v) = %+v, want rule %q", c.use, got, c.rule)
		}
		if got.Verdict == task.Denied && got.Reason == "" {
			t.Errorf("Decide(%+v) denies without a reason", c.use)
		}
	}
}

// Nothing is allowed that no rule names: whatever the grant, an allowed use has
// the host and the port of the rule it cites.
func TestAllowedMeansNamed(t *testing.T) {
	host := rapid.StringMatching(`[a-c](\.[a-c])?`)
	port := rapid.Custom(func(t *rapid.T) uint16 { return rapid.Uint16Range(0, 3).Draw(t, "port") })
	rapid.Check(t, func(t *rapid.T) {
		var grant task.Grant
		for range rapid.IntRange(0, 4).Draw(t, "rules") {
			grant.Rules = append(grant.Rules, task.Rule{
				ID: rapid.String().Draw(t, "id"), Host: host.Draw(t, "host"), Ports: rapid.SliceOfN(port, 0, 3).Draw(t, "ports"),
			})
		}
		use := Use{Name: host.Draw(t, "name"), Port: port.Draw(t, "use")}
		named := false
		for _, r := range grant.Rules {
			for _, p := range r.Ports {
				named = named || r.Host == use.Name && p == use.Port && p != 0
			}
		}
		if got := Decide(grant, use); (got.Verdict == task.Allowed) != named {
			t.Fatalf("Decide(%+v, %+v) = %+v, named %v", grant, use, got, named)
		}
	})
}

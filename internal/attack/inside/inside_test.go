package inside

import (
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/internal/attack"
)

// Each check that is tried inside has its attempt, and each attempt its check.
func TestAttempts(t *testing.T) {
	have := IDs()
	for _, c := range attack.Checks() {
		if c.Box != attack.Outside && !slices.Contains(have, c.ID) {
			t.Errorf("%s: nothing tries it", c.ID)
		}
	}
	for _, id := range have {
		if !slices.ContainsFunc(attack.Checks(), func(c attack.Check) bool { return c.ID == id && c.Box != attack.Outside }) {
			t.Errorf("%s: no check is called that", id)
		}
	}
}

// Nothing that was not tried is said to have held.
func TestNothingIsHeldUntried(t *testing.T) {
	if v := each(nil, func(string) verdict { return held("x") }); v.outcome != attack.Untried {
		t.Errorf("none of nothing: %+v", v)
	}
	for name, c := range map[string]struct {
		all  []verdict
		want string
	}{
		"all":    {[]verdict{held("1"), held("2")}, attack.Held},
		"fell":   {[]verdict{held("1"), fell("2"), untried("3")}, attack.Fell},
		"some":   {[]verdict{held("1"), untried("2"), held("3")}, attack.Untried},
		"unsaid": {[]verdict{held("1"), {}}, ""},
	} {
		if v := each(c.all, func(v verdict) verdict { return v }); v.outcome != c.want {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

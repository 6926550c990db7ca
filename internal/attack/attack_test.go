package attack

import (
	"strings"
	"testing"
)

func TestChecks(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks() {
		if seen[c.ID] || !strings.Contains(c.ID, ".") || c.Tried == "" {
			t.Errorf("%+v is there twice, or is not whole", c)
		}
		seen[c.ID] = true
	}
	if n := len(Select("", false)); n < 80 {
		t.Errorf("%d checks are tried by default", n)
	}
	for _, c := range Select("egress.", false) {
		if c.Box == Through || Family(c.ID) != "egress" {
			t.Errorf("%+v is selected", c)
		}
	}
}

func TestSum(t *testing.T) {
	for name, c := range map[string]struct {
		outcomes []string
		ok       bool
	}{
		"none":    {nil, false},
		"held":    {[]string{Held, Held}, true},
		"fell":    {[]string{Held, Fell}, false},
		"untried": {[]string{Held, Untried}, false},
		"unsaid":  {[]string{Held, ""}, false},
	} {
		var results []Result
		for _, o := range c.outcomes {
			results = append(results, Result{Outcome: o})
		}
		if got := Sum(results); got.OK != c.ok || got.Held+got.Fell+got.Untried != len(results) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestReadSaying(t *testing.T) {
	asked := []string{"a.b"}
	if s, err := ReadSaying(`{"id":"a.b","outcome":"held","happened":"x\ny"}`, asked); err != nil || s.Happened != "x y" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, line := range []string{"", "{", `{"id":"a.c","outcome":"held"}`, `{"id":"a.b","outcome":"passed"}`, `{"id":"a.b"}`} {
		if s, err := ReadSaying(line, asked); err == nil {
			t.Errorf("%q is read as %+v", line, s)
		}
	}
}

func FuzzReadSaying(f *testing.F) {
	f.Add(`{"id":"a.b","outcome":"held","happened":"x"}`)
	f.Fuzz(func(t *testing.T, line string) {
		if s, err := ReadSaying(line, []string{"a.b"}); err == nil && (s.ID != "a.b" || s.Outcome == "" || len(s.Happened) > most+4) {
			t.Errorf("%+v", s)
		}
	})
}

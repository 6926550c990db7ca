package task

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestRulesEnd(t *testing.T) {
	at := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	before, after := at.Add(-time.Second), at.Add(time.Second)
	for name, c := range map[string]struct {
		rule Rule
		at   time.Time
		over bool
	}{
		"no end":                       {Rule{}, at, false},
		"no end, no moment":            {Rule{}, time.Time{}, false},
		"before":                       {Rule{Until: &after}, at, false},
		"at its end":                   {Rule{Until: &at}, at, true},
		"after":                        {Rule{Until: &before}, at, true},
		"no moment":                    {Rule{Until: &after}, time.Time{}, true},
		"a time that was never begun":  {Rule{For: time.Hour}, at, true},
		"that one beside another end":  {Rule{For: time.Hour, Until: &after}, at, true},
		"in another zone, the same":    {Rule{Until: &at}, at.In(time.FixedZone("x", 3600)), true},
		"in another zone, just before": {Rule{Until: &after}, at.In(time.FixedZone("x", -3600)), false},
	} {
		if got := c.rule.Over(c.at); got != c.over {
			t.Errorf("%s: over %v", name, got)
		}
	}
}

func TestGrantBegins(t *testing.T) {
	began := time.Now()
	early := began.Add(time.Minute).Truncate(time.Microsecond).UTC()
	g := Grant{Rules: []Rule{{ID: "a"}, {ID: "b", For: time.Hour}, {ID: "c", For: time.Hour, Until: &early}, {ID: "d", Until: &early}}}
	got := g.From(&began)
	if want := began.Add(time.Hour).Truncate(time.Microsecond); got.Rules[0].Until != nil || got.Rules[1].For != 0 || !got.Rules[1].Until.Equal(want) ||
		!got.Rules[2].Until.Equal(early) || !got.Rules[3].Until.Equal(early) || g.Rules[1].For == 0 {
		t.Errorf("%+v", got.Rules)
	}
	if again := g.From(nil); !again.Rules[1].Over(began) {
		t.Error("a time that began at no moment lasts")
	}
	// A gateway compares what it has with what it is told over a wire.
	raw, err := json.Marshal(got)
	var back Grant
	if err != nil || json.Unmarshal(raw, &back) != nil || !reflect.DeepEqual(got, back) {
		t.Errorf("%+v, and over a wire %+v", got, back)
	}
	if n := NextEnd(got.Rules, began); n == nil || !n.Equal(early) {
		t.Errorf("next %v", n)
	}
	if n := NextEnd(got.Rules, early); !n.Equal(*got.Rules[1].Until) {
		t.Errorf("then %v", n)
	}
	if ended := EndedAt(got.Rules, early); len(ended) != 2 || ended[0].Until != nil || ended[1].ID != "d" {
		t.Errorf("ended %+v", ended)
	}
	for _, r := range g.Endless().Rules {
		if r.Over(time.Time{}) {
			t.Errorf("%s ends", r.ID)
		}
	}
}

func TestEndsWith(t *testing.T) {
	at := time.Now()
	after := at.Add(time.Hour)
	of := func(until ...*time.Time) []Rule {
		rules := []Rule{{Credential: "other"}}
		for _, u := range until {
			rules = append(rules, Rule{Credential: "key", Until: u})
		}
		return rules
	}
	if e := EndsWith("key", of(&at, &after, &at)); e == nil || !e.Equal(after) {
		t.Errorf("%v", e)
	}
	if EndsWith("key", of(&at, nil)) != nil || EndsWith("key", of()) != nil {
		t.Error("what a rule without an end lends ends")
	}
	l := Lease{Ends: &at}
	if l.Over(at.Add(-1)) || !l.Over(at) || (Lease{}).Over(after) {
		t.Error("a lease ends at another moment")
	}
}

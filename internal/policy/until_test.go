package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestRulesWithAnEnd(t *testing.T) {
	plan := compiled(t, task.Spec{Policy: allow("agent", "      - {host: a.test, until: 20m}\n      - {host: b.test, until: '2026-12-31T18:00:00+01:00', methods: [GET]}\n      - {host: c.test}\n")}, task.Layers{})
	rules := plan.Rules[task.Agent]
	end := time.Date(2026, 12, 31, 17, 0, 0, 0, time.UTC)
	if len(rules) != 3 || rules[0].For != 20*time.Minute || rules[1].Until == nil || !rules[1].Until.Equal(end) || rules[2].Ending() != "" {
		t.Fatalf("%+v", rules)
	}
	began := end.Add(-10 * time.Minute)
	g := plan.Grant("t", task.Agent, "sb").From(&began)
	for at, want := range map[time.Duration][3]task.Verdict{
		0:                {task.Allowed, task.Allowed, task.Allowed},
		15 * time.Minute: {task.Allowed, task.Denied, task.Allowed},
		20 * time.Minute: {task.Denied, task.Denied, task.Allowed},
	} {
		for i, host := range []string{"a.test", "b.test", "c.test"} {
			use := decide.Use{Name: host, Port: 443, At: began.Add(at)}
			if got := decide.NewIndex(g).Decide(use).Verdict; got != want[i] || got != decide.Decide(g, use).Verdict {
				t.Errorf("%s after %s: %s", host, at, got)
			}
		}
	}
	for text, want := range map[string]string{
		"until: 0s": "is not when a rule ends", "until: 721h": "is not when a rule ends", "until: tomorrow": "agent.network.allow[0].until", "until: [1m]": "is not when a rule ends",
		"until: '2026-12-31'": "is not when a rule ends", "until: 2026-12-31": "in quotes", "until: -5m": "is not when a rule ends", "until:": "is not when a rule ends",
	} {
		_, err := Compile(task.Spec{Policy: allow("agent", "      - {host: a.test, "+text+"}\n")}, task.Layers{})
		wantFailure(t, err, task.InputPolicy, "policy line ", want)
	}
	if text := ruleText(rules[0]); !strings.HasSuffix(text, " until 20m0s after the stage began") {
		t.Error(text)
	}
}

// What a layer above allows for a time, a task may not have for longer.
func TestEndsOfCeilings(t *testing.T) {
	layer := func(end string) task.Layers {
		return task.Layers{Operator: "version: 1\nceiling:\n  network:\n    allow:\n      - {host: a.test, until: " + end + "}\n"}
	}
	for _, c := range []struct {
		ceiling, rule string
		ok            bool
	}{
		{"20m", "until: 20m", true}, {"20m", "until: 19m", true}, {"20m", "until: 21m", false}, {"20m", "ports: [443]", false},
		{"20m", "until: '2026-12-31T18:00:00Z'", false}, {"'2026-12-31T18:00:00Z'", "until: 20m", false},
		{"'2026-12-31T18:00:00Z'", "until: '2026-12-31T18:00:00Z'", true}, {"'2026-12-31T18:00:00Z'", "until: '2027-12-31T18:00:00Z'", false},
	} {
		_, err := Compile(task.Spec{Policy: allow("agent", "      - {host: a.test, "+c.rule+"}\n")}, layer(c.ceiling))
		if (err == nil) != c.ok {
			t.Errorf("%s under %s: %v", c.rule, c.ceiling, err)
		}
	}
}

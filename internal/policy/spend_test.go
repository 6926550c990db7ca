package policy

import (
	"cmp"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Budgets of tokens and money are limits like others: the lowest layer that says
// one, within those above. There is no default.
func TestSpendLimits(t *testing.T) {
	file := func(limits string) string { return "version: 1\nlimits: {" + limits + "}\n" }
	for name, c := range map[string]struct {
		operator, project, own string
		tokens, usd            int64
		wrong                  string
		reason                 task.Reason // of what is wrong; empty: input.policy
	}{
		"nobody says one":       {},
		"the task's own":        {own: file("tokens: 1000, usd: 2.5"), tokens: 1000, usd: 2_500_000},
		"the operator's":        {operator: "version: 1\ndefaults: {limits: {usd: 10}}\n", usd: 10_000_000},
		"a project narrows":     {operator: "version: 1\nceiling: {limits: {usd: 10}}\n", project: file("usd: 4, tokens: 7"), usd: 4_000_000, tokens: 7},
		"a ceiling is a bound":  {operator: "version: 1\nceiling: {limits: {tokens: 500}}\n", tokens: 500},
		"a task within it":      {operator: "version: 1\nceiling: {limits: {tokens: 500}}\n", own: file("tokens: 20"), tokens: 20},
		"more than a layer":     {project: file("usd: 4"), own: file("usd: 4.01"), wrong: "limits.usd: 4.01 is more than 4", reason: task.PolicyCeiling},
		"more than a ceiling":   {operator: "version: 1\nceiling: {limits: {tokens: 500}}\n", own: file("tokens: 501"), wrong: "limits.tokens: 501 is more than 500", reason: task.PolicyCeiling},
		"no number":             {own: file("usd: much"), wrong: "is not a number of US dollars"},
		"nothing is no budget":  {own: file("usd: 0"), wrong: "is not a number of US dollars"},
		"not a whole token":     {own: file("tokens: 1.5"), wrong: "is not a number of tokens"},
		"not a number at all":   {own: file("usd: .nan"), wrong: "is not a number of US dollars"},
		"less than the account": {own: file("usd: 0.00000001"), wrong: "is not a number of US dollars"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := Compile(task.Spec{Policy: c.own}, task.Layers{Operator: c.operator, Project: c.project})
			if c.wrong != "" {
				wantFailure(t, err, cmp.Or(c.reason, task.InputPolicy), c.wrong)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if plan.Limits.Tokens != c.tokens || plan.Limits.MicroUSD != c.usd {
				t.Errorf("%d tokens and %d millionths, want %d and %d", plan.Limits.Tokens, plan.Limits.MicroUSD, c.tokens, c.usd)
			}
		})
	}
}

func TestSpendExplained(t *testing.T) {
	_, lines, err := Explain(task.Spec{Policy: "version: 1\nlimits: {tokens: 1000}\n"}, task.Layers{Operator: "version: 1\nceiling: {limits: {usd: 2.5}}\n"}, "")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range lines {
		all = append(all, l.Field+" "+l.Text)
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{"limits.tokens 1000", "limits.usd 2.5", "ceiling.limits.usd 2.5"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not explained:\n%s", want, text)
		}
	}
}

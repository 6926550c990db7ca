package policy

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestIdentity(t *testing.T) {
	const (
		aws    = "version: 1\nagent:\n  identity:\n    - audience: sts.amazonaws.com\n"
		seen   = aws + "      visible: true\n"
		offers = "version: 1\nceiling:\n  identity:\n    - {audience: sts.amazonaws.com, visible: true}\n    - audience: https://vault.example\n"
		hidden = "version: 1\nceiling:\n  identity:\n    - audience: sts.amazonaws.com\n"
		none   = "version: 1\nceiling:\n  identity: []\n"
	)
	for name, c := range map[string]struct {
		operator, project, task string
		want                    []task.Identity
		reason                  task.Reason
		text                    string
	}{
		"nobody offers it":                {"", "", aws, nil, task.PolicyCeiling, "sts.amazonaws.com"},
		"an operator that is silent":      {"version: 1\nceiling:\n  sudo: allow\n", "", aws, nil, task.PolicyCeiling, "not among the audiences"},
		"offered":                         {hidden, "", aws, []task.Identity{{Audience: "sts.amazonaws.com"}}, "", ""},
		"offered, and seen":               {offers, "", seen, []task.Identity{{Audience: "sts.amazonaws.com", Visible: true}}, "", ""},
		"offered, and not to be seen":     {hidden, "", seen, nil, task.PolicyCeiling, "visible"},
		"a project alone offers nothing":  {"", offers, aws, nil, task.PolicyCeiling, "operator policy"},
		"a project's own is bound too":    {"", seen, "", nil, task.PolicyCeiling, "line 4"},
		"a project gives":                 {offers, seen, "", []task.Identity{{Audience: "sts.amazonaws.com", Visible: true}}, "", ""},
		"a project's binds its tasks":     {offers, aws, seen, nil, task.PolicyCeiling, "agent.identity"},
		"a project's ceiling binds":       {offers, hidden, seen, nil, task.PolicyCeiling, "visible"},
		"a project that lets nothing":     {offers, none, aws, nil, task.PolicyCeiling, "not among"},
		"a task takes less":               {offers, seen, aws, []task.Identity{{Audience: "sts.amazonaws.com"}}, "", ""},
		"a task takes nothing":            {offers, seen, "version: 1\nagent:\n  identity: []\n", nil, "", ""},
		"another audience":                {offers, "", strings.Replace(aws, "sts.", "xts.", 1), nil, task.PolicyCeiling, "xts"},
		"no audience":                     {offers, "", "version: 1\nagent:\n  identity:\n    - visible: true\n", nil, task.InputPolicy, "audience"},
		"twice":                           {offers, "", aws + "    - audience: sts.amazonaws.com\n", nil, task.InputPolicy, "twice"},
		"a space":                         {offers, "", "version: 1\nagent:\n  identity:\n    - audience: \"a b\"\n", nil, task.InputPolicy, "printable"},
		"a word that is no flag":          {offers, "", aws + "      visible: yes please\n", nil, task.InputPolicy, "true or false"},
		"an unknown field":                {offers, "", aws + "      aud: x\n", nil, task.InputPolicy, "unknown field"},
		"too many":                        {offers, "", "version: 1\nagent:\n  identity:\n" + many(17), nil, task.InputPolicy, "more than 16"},
		"a rule for the gateway's own":    {offers, "", "version: 1\nagent:\n  network:\n    allow:\n      - host: run.cofferdam.internal\n", nil, task.InputPolicy, "the gateway's own"},
		"a pattern for the gateway's own": {offers, "", "version: 1\nagent:\n  network:\n    allow:\n      - host: \"*.cofferdam.internal\"\n", nil, task.InputPolicy, "the gateway's own"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := task.Spec{Policy: c.task, Project: "shop", Repo: task.Repo{Bundle: "sha256:00"}}
			plan, lines, err := Explain(spec, task.Layers{Operator: c.operator, Project: c.project}, "")
			if c.reason != "" {
				wantFailure(t, err, c.reason, c.text)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(plan.Identity[task.Agent], c.want) || len(plan.Identity[task.Verify]) > 0 {
				t.Errorf("got %+v, want %+v", plan.Identity, c.want)
			}
			told := 0
			for _, l := range lines {
				if l.Field == "identity" && l.Line > 0 && strings.Contains(l.Text, "sts.amazonaws.com") {
					told++
				}
			}
			if told != len(c.want) {
				t.Errorf("explained %d times", told)
			}
		})
	}
}

func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("    - audience: a" + strings.Repeat("b", i) + "\n")
	}
	return b.String()
}

// A plan without any is the plan that it was.
func TestNoIdentityChangesNoDigest(t *testing.T) {
	plan, err := Compile(task.Spec{Repo: task.Repo{Bundle: "sha256:00"}}, task.Layers{Operator: "version: 1\nceiling:\n  identity:\n    - audience: a\n"})
	bare, err2 := Compile(task.Spec{Repo: task.Repo{Bundle: "sha256:00"}}, task.Layers{})
	if err != nil || err2 != nil || plan.Digest != bare.Digest {
		t.Errorf("%s %s %v %v", plan.Digest, bare.Digest, err, err2)
	}
}

// A repository has no say in it.
func TestRepositoryAsksForNoIdentity(t *testing.T) {
	plan, err := Compile(task.Spec{Repo: task.Repo{Bundle: "sha256:00"}}, task.Layers{
		Operator:   "version: 1\nceiling:\n  identity:\n    - audience: a\nrepository:\n  commands: true\n",
		Repository: "version: 1\nagent:\n  identity:\n    - audience: a\n",
	})
	if err != nil || len(plan.Identity) > 0 || len(plan.Narrowed) == 0 {
		t.Errorf("%+v %v", plan, err)
	}
}

package policy

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestVerifyingIsMerged(t *testing.T) {
	say := func(text string) string { return "version: 1\nverify: {" + text + "}\n" }
	for name, c := range map[string]struct {
		operator, project, task string
		want                    task.Verifying
		wrong                   string
	}{
		"nothing":               {},
		"a task":                {task: say("compare: none, rerun: none, flaky: passes"), want: task.Verifying{Compare: "none", Rerun: "none", Flaky: "passes"}},
		"a project":             {project: say("flaky: passes"), want: task.Verifying{Flaky: "passes"}},
		"stricter":              {project: say("flaky: passes, compare: none"), task: say("flaky: fails, compare: base"), want: task.Verifying{Compare: "base", Flaky: "fails"}},
		"the same":              {project: say("flaky: fails"), task: say("flaky: fails"), want: task.Verifying{Flaky: "fails"}},
		"less strict":           {project: say("flaky: fails"), task: say("flaky: passes"), wrong: "verify.flaky"},
		"without a comparison":  {project: say("compare: base"), task: say("compare: none"), wrong: "verify.compare"},
		"a rerun":               {project: say("rerun: none"), task: say("rerun: once"), want: task.Verifying{Rerun: "once"}},
		"beneath a ceiling":     {operator: "version: 1\nceiling: {verify: {flaky: fails}}\n", task: say("flaky: passes"), wrong: "ceiling"},
		"a project beneath one": {operator: "version: 1\nceiling: {verify: {flaky: fails}}\n", project: say("flaky: passes"), wrong: "ceiling"},
		"a word":                {task: say("flaky: maybe"), wrong: "is not one of"},
		"not of other stages":   {task: "version: 1\nsetup: {flaky: passes}\n", wrong: "setup.flaky"},
	} {
		spec := task.Spec{Policy: c.task}
		if c.project != "" {
			spec.Project = "p"
		}
		layers := task.Layers{Operator: c.operator, Project: c.project}
		plan, err := Compile(spec, layers)
		switch {
		case c.wrong == "" && (err != nil || plan.Verifying != c.want):
			t.Errorf("%s: %+v, %v", name, plan.Verifying, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
		if c.want.Flaky == "" {
			continue
		}
		_, lines, err := Explain(spec, layers, task.Verify)
		told := false
		for _, l := range lines {
			told = told || l.Field == "verify.flaky" && l.Text == c.want.Flaky && l.Line > 0
		}
		if err != nil || !told {
			t.Errorf("%s: explained as %+v, %v", name, lines, err)
		}
	}
	// What says nothing has the digest it had before there was such a setting.
	plain, err := Compile(task.Spec{Policy: "version: 1\n"}, task.Layers{})
	if err != nil || plain.Verifying != (task.Verifying{}) {
		t.Errorf("%+v, %v", plain.Verifying, err)
	}
}

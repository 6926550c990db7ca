package policy

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Tools are said by the operator's ceiling, the project and the task, never by a
// repository; each line is explained with its layer.
func TestToolLayers(t *testing.T) {
	layers := task.Layers{
		Operator:   "version: 1\nceiling:\n  answer: admins\n  tools:\n    default: ask\n    refuse: [fetch]\n",
		Project:    "version: 1\nagent:\n  tools:\n    wait: 10m\n    allow: [read, search]\n",
		Repository: "version: 1\nagent:\n  tools: {default: ask, allow: [fetch]}\n",
	}
	spec := task.Spec{Project: "web", Policy: "version: 1\nagent:\n  tools:\n    default: refuse\n    allow: [read, fetch]\n    ask: [shell]\n"}
	plan, lines, err := Explain(spec, layers, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		use   task.ToolAsk
		want  task.ToolVerdict
		layer string
	}{
		"the operator allows nothing": {task.ToolAsk{Tool: "Read", Kind: task.ToolRead}, task.ToolAsked, task.LayerOperator},
		"the operator refuses":        {task.ToolAsk{Tool: "WebFetch", Kind: task.ToolFetch}, task.ToolRefused, task.LayerOperator},
		"asked by all":                {task.ToolAsk{Tool: "shell", Kind: task.ToolShell}, task.ToolAsked, task.LayerOperator},
		"the task refuses":            {task.ToolAsk{Tool: "Glob", Kind: task.ToolSearch}, task.ToolRefused, task.LayerTask},
	} {
		if d := plan.tool(c.use); d.Verdict != c.want || d.Layer != c.layer {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if !plan.Tools.Admins || plan.Tools.Wait.Minutes() != 10 {
		t.Errorf("%+v", plan.Tools)
	}
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(l.Layer + " " + l.Field + " " + l.Text + "\n")
	}
	for _, want := range []string{"operator ceiling.tools.refuse fetch", "project agent.tools.allow read", "task agent.tools.default refuse", "project agent.tools.wait 10m0s", "repository narrowed"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no line %q in\n%s", want, text.String())
		}
	}
	if plan, err := Compile(task.Spec{}, task.Layers{}); err != nil || plan.Tools != nil {
		t.Errorf("where nobody says anything of tools: %v %v", plan.Tools, err)
	}
	_, err = Compile(task.Spec{Policy: "version: 1\nagent:\n  tools:\n    commands:\n    - [git]\n"}, task.Layers{})
	if err == nil || !strings.Contains(err.Error(), "policy line 5: agent.tools.commands[0]: git can run other programs") {
		t.Errorf("git by its name: %v", err)
	}
}

func TestToolExamples(t *testing.T) {
	checked, err := Check(task.Spec{Policy: `version: 1
agent:
  tools:
    allow: [read]
    commands: [[go, test, ./...]]
examples:
- {tool: read, expect: allowed}
- {tool: shell, command: go test ./..., expect: allowed}
- {tool: shell, command: go test ./... | tee x, expect: asked}
- {tool: Bash, kind: shell, command: git push, expect: denied}
`}, task.Layers{})
	if err != nil || len(checked) != 4 {
		t.Fatal(checked, err)
	}
	for i, c := range checked {
		if c.Passed != (i < 3) {
			t.Errorf("%+v", c)
		}
	}
	if c := checked[3]; c.Text != "tool Bash sh -c git push" || c.Why != "is asked, not denied" || c.Rule != "tools.default" {
		t.Errorf("%+v", c)
	}
	if _, err := Check(task.Spec{Policy: "version: 1\nexamples:\n- {tool: shell, expect: allowed}\n"}, task.Layers{}); err == nil {
		t.Error("an example of a command without one")
	}
}

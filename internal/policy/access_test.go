package policy

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

const gatewayFile = "version: 1\ndefaults:\n  access:\n    gateway: {credential: ai, anthropic: 'https://ai.corp.example'}\n"

// By a gateway nothing but the gateway is reached, and explained is what holds.
func TestAgentByGateway(t *testing.T) {
	spec := task.Spec{Agent: task.AgentSpec{Name: "claude"}}
	layers := task.Layers{Operator: gatewayFile}
	plan, lines, err := Explain(spec, layers, "")
	if err != nil {
		t.Fatal(err)
	}
	if r := plan.Rules[task.Agent]; len(r) != 1 || r[0].Host != "ai.corp.example" || r[0].Credential != "ai" || plan.Model.Mode != task.ModelGateway {
		t.Errorf("%+v, %+v", r, plan.Model)
	}
	found := false
	for _, l := range lines {
		if l.Field == "agent.access" {
			found = l.Layer == task.LayerOperator && l.Line == 4 && l.Text == "gateway: https://ai.corp.example with the credential ai"
		}
	}
	if !found {
		t.Errorf("%+v", lines)
	}
	// A ceiling holds for it as for everything.
	layers.Project, spec.Project = "version: 1\nceiling: {credentials: [other]}\n", "p"
	if _, err := Compile(spec, layers); err == nil {
		t.Error("the ceiling of credentials is not kept")
	}
}

// A login is asked where it is for, and what is limited is looked at there too.
func TestAgentByLogin(t *testing.T) {
	layers := task.Layers{Models: task.ModelKeys{Logins: []task.ModelLogin{{Credential: "cx", Kind: task.KindCodexLogin}}}}
	spec := task.Spec{Agent: task.AgentSpec{Name: "codex", Model: "gpt-5"}, Policy: "version: 1\nagent: {models: [gpt-5]}\n"}
	plan := compiled(t, spec, layers)
	if r := plan.Rules[task.Agent]; len(r) != 1 || r[0].Host != "chatgpt.com" || r[0].Credential != "cx" || r[0].Body == nil || len(r[0].Body.Models) != 1 {
		t.Errorf("%+v", r)
	}
	if plan.Model.Kind != task.KindCodexLogin {
		t.Errorf("%+v", plan.Model)
	}
	_, err := Compile(task.Spec{Agent: task.AgentSpec{Name: "codex"}, Policy: "version: 1\nagent: {access: {mode: gateway}}\n"}, layers)
	wantFailure(t, err, task.InputInvalid, "agent.mode: no gateway")
	// A stranger's file has no say in it.
	layers.Operator, layers.Repository = "version: 1\nrepository: {commands: true}\n", "version: 1\nagent: {name: codex, access: {mode: direct}}\n"
	if plan := compiled(t, task.Spec{}, layers); plan.Repository.Agent.Name != "" || len(plan.Narrowed) == 0 || !strings.Contains(plan.Narrowed[0], "unknown field") {
		t.Errorf("%+v", plan.Narrowed)
	}
	layers.Repository = "version: 1\nagent: {name: codex}\n"
	if plan := compiled(t, task.Spec{}, layers); plan.Repository.Agent.Credential != "cx" || plan.Model.Credential != "cx" || len(plan.Rules[task.Agent]) != 1 {
		t.Errorf("%+v", plan.Repository)
	}
}

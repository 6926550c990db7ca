// Package opencode runs opencode, with the providers that are part of its
// program: nothing is fetched when it starts.
package opencode

import (
	"encoding/json"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/agent/acp"
	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Harness is a stage.Harness.
type Harness struct{ agent.Base }

// New checks the spec.
func New(spec task.AgentSpec) (stage.Harness, error) {
	base, err := agent.NewBase(spec, "openai", "anthropic")
	if err != nil {
		return nil, err
	}
	if spec.Model == "" {
		return nil, agent.Invalid("model", "opencode needs one, such as the provider names it; give it with --model")
	}
	return &Harness{base}, nil
}

// Config is opencode's configuration for the provider; the key is a reference
// to the environment.
func Config(p task.Provider, model, permission string) (string, error) {
	npm, base := "@ai-sdk/openai-compatible", p.URL
	if p.Name == "anthropic" {
		npm, base = "@ai-sdk/anthropic", p.URL+"/v1"
	}
	text, err := json.Marshal(map[string]any{
		"model": "cofferdam/" + model, "small_model": "cofferdam/" + model,
		"provider": map[string]any{"cofferdam": map[string]any{
			"npm":     npm,
			"options": map[string]any{"baseURL": base, "apiKey": "{env:" + p.Env + "}"},
			"models":  map[string]any{model: map[string]any{}},
		}},
		"permission": permission, "autoupdate": false, "share": "disabled",
	})
	return string(text), err
}

// Environment is what keeps opencode from calling anything but the model.
func Environment() []string {
	return []string{
		"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		"OPENCODE_DISABLE_PROJECT_CONFIG=1", "OPENCODE_DISABLE_SHARE=1",
	}
}

// Start implements stage.Harness.
func (h *Harness) Start(run stage.HarnessRun) (stage.HarnessStart, error) {
	argv := []string{catalog.Program("opencode"), "run", "--title", "task", "--format", "json"}
	if run.Session != "" {
		argv = append(argv, "--session", run.Session)
	}
	permission := "allow"
	if run.Asks {
		argv, permission = []string{catalog.Program("opencode"), "acp"}, "ask"
	}
	config, err := Config(h.Provider, h.Spec.Model, permission)
	if err != nil {
		return stage.HarnessStart{}, err
	}
	env := append(Environment(), h.Provider.Env+"="+agent.Key(run), "OPENCODE_CONFIG_CONTENT="+config)
	if run.Asks { // the prompt is said, not given
		return stage.HarnessStart{Argv: argv, Env: env, Stdin: true}, nil
	}
	return agent.Prompted(run, argv, env), nil
}

// Read implements stage.Harness.
func (h *Harness) Read(run stage.HarnessRun, emit func(task.AgentEvent)) stage.HarnessReader {
	if run.Asks {
		return acp.Speak(acp.Peer{Name: "opencode"}, run, emit)
	}
	return agent.NewReader(&dialect{}, emit)
}

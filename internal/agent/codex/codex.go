// Package codex runs OpenAI's Codex.
//
// Its own sandbox is off, since it runs in one. It gets a provider of our own
// naming: the built-in one ignores a base URL from the environment and tries
// WebSockets first. Where policy says something of tools it runs as its app-server
// and asks before each command and each change of files. Plugins and analytics are off, or it calls hosts that no
// policy names.
package codex

import (
	"fmt"
	"strconv"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Harness is a stage.Harness.
type Harness struct{ agent.Base }

// New checks the spec.
func New(spec task.AgentSpec) (stage.Harness, error) {
	base, err := agent.NewBase(spec, "openai")
	if err != nil {
		return nil, err
	}
	return &Harness{base}, nil
}

// Start implements stage.Harness.
func (h *Harness) Start(run stage.HarnessRun) (stage.HarnessStart, error) {
	argv := []string{catalog.Program("codex"), "exec"}
	if run.Session != "" {
		argv = append(argv, "resume")
	}
	idle := ""
	if run.Silence > 0 {
		idle = fmt.Sprintf(",stream_idle_timeout_ms=%d", run.Silence.Milliseconds())
	}
	argv = append(argv, "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
	if run.Asks {
		argv = []string{catalog.Program("codex"), "app-server"}
	}
	// strconv.Quote writes a TOML basic string for what can stand in a URL.
	argv = append(
		argv, "--disable", "plugins", "-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false", "-c", `model_provider="cofferdam"`,
		"-c", fmt.Sprintf(`model_providers.cofferdam={name="cofferdam",base_url=%s,env_key=%s,wire_api="responses",request_max_retries=2,stream_max_retries=2%s}`,
			strconv.Quote(h.Provider.URL), strconv.Quote(h.Provider.Env), idle),
	)
	env := []string{h.Provider.Env + "=" + agent.Key(run), "CODEX_HOME=/home/agent/.codex"} // not beneath /tmp, where it refuses to work
	config := stage.HarnessFile{Path: ".codex/config.toml"}
	if run.Asks { // the prompt, the model and the session are said
		return stage.HarnessStart{Argv: argv, Env: env, Files: []stage.HarnessFile{config}, Stdin: true}, nil
	}
	if h.Spec.Model != "" {
		argv = append(argv, "--model="+h.Spec.Model)
	}
	if run.Session != "" {
		argv = append(argv, run.Session)
	}
	argv = append(argv, "-") // the prompt is its standard input
	return agent.Prompted(run, argv, env, config), nil
}

// Read implements stage.Harness.
func (h *Harness) Read(run stage.HarnessRun, emit func(task.AgentEvent)) stage.HarnessReader {
	if run.Asks {
		return newSpeaker(h.Spec.Model, run, emit)
	}
	return agent.NewReader(&dialect{}, emit)
}

// Package gemini runs Google's Gemini CLI. It is JavaScript and runs on the
// sandbox's own node.
//
// It is not gone on with: its --resume takes a place in its own list of sessions
// and not a session's name, so it names none, and the task gets a new attempt.
//
// Where policy says something of tools it is spoken to by the Agent Client Protocol
// and asks. Not promised: that it asks for what it takes for harmless itself, such
// as ls; such a use is told as one that nobody was asked about.
package gemini

import (
	"strings"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/agent/acp"
	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// defaultModel is asked when the spec names none: without one, another model is
// asked first which to take.
const defaultModel = "gemini-2.5-pro"

// Settings are needed: a base URL in the environment alone selects another kind
// of sign-in.
const Settings = `{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},` +
	`"general":{"maxAttempts":3,"enableAutoUpdate":false,"enableAutoUpdateNotification":false},"privacy":{"usageStatisticsEnabled":false}}` + "\n"

// Harness is a stage.Harness.
type Harness struct{ agent.Base }

// New checks the spec.
func New(spec task.AgentSpec) (stage.Harness, error) {
	base, err := agent.NewBase(spec, "google")
	if err != nil {
		return nil, err
	}
	return &Harness{base}, nil
}

// Start implements stage.Harness.
func (h *Harness) Start(run stage.HarnessRun) (stage.HarnessStart, error) {
	model := h.Spec.Model
	if model == "" {
		model = defaultModel
	}
	argv := []string{"node", catalog.Program("gemini"), "-m", model, "--skip-trust", "--yolo", "--output-format", "stream-json"}
	settings, trust := Settings, []string{"GEMINI_CLI_TRUST_WORKSPACE=true"}
	if run.Asks { // and what the workspace says of permissions is not read
		argv, trust = []string{"node", catalog.Program("gemini"), "-m", model, "--acp"}, nil
		settings = strings.Replace(Settings, `"folderTrust":{"enabled":false}`, `"folderTrust":{"enabled":true}`, 1)
	}
	env := []string{
		h.Provider.Env + "=" + agent.Key(run), "GOOGLE_GEMINI_BASE_URL=" + h.Provider.URL,
		"GEMINI_CLI_NO_RELAUNCH=1",
	}
	file := stage.HarnessFile{Path: ".gemini/settings.json", Data: []byte(settings)}
	if run.Asks {
		return stage.HarnessStart{Argv: argv, Env: env, Files: []stage.HarnessFile{file}, Stdin: true}, nil
	}
	return agent.Prompted(run, argv, append(env, trust...), file), nil
}

// Read implements stage.Harness.
func (h *Harness) Read(run stage.HarnessRun, emit func(task.AgentEvent)) stage.HarnessReader {
	if run.Asks {
		return acp.Speak(acp.Peer{Name: "gemini", Titled: true}, run, emit)
	}
	return agent.NewReader(&dialect{}, emit)
}

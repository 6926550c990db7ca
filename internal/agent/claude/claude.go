// Package claude runs Anthropic's Claude Code.
//
// Its permission prompts are off, since the sandbox is the boundary; where policy
// says something of tools it asks before each by its control protocol, and does
// nothing without an answer. Its exit code 0
// is not believed alone, since a refusal of the model's server can end with
// subtype "success" and is_error set.
package claude

import (
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
	base, err := agent.NewBase(spec, "anthropic")
	if err != nil {
		return nil, err
	}
	return &Harness{base}, nil
}

// Start implements stage.Harness.
func (h *Harness) Start(run stage.HarnessRun) (stage.HarnessStart, error) {
	argv := []string{
		catalog.Program("claude"), "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions",
	}
	if run.Asks {
		argv = asking()
	}
	if h.Spec.Model != "" {
		argv = append(argv, "--model="+h.Spec.Model)
	}
	if run.Session != "" {
		argv = append(argv, "--resume="+run.Session)
	}
	env := []string{
		"ANTHROPIC_BASE_URL=" + h.Provider.URL, h.key(run) + "=" + agent.Key(run),
		"CLAUDE_CODE_MAX_RETRIES=2", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1",
	}
	if run.Silence > 0 {
		env = append(env, "API_TIMEOUT_MS="+strconv.FormatInt(run.Silence.Milliseconds(), 10))
	}
	if run.Asks { // the prompt is said, not given
		return stage.HarnessStart{Argv: argv, Env: env, Stdin: true}, nil
	}
	return agent.Prompted(run, argv, env), nil
}

// key is the variable that the placeholder is put in, which decides how requests
// carry it: a login's token makes Claude Code ask as one that is signed in.
func (h *Harness) key(run stage.HarnessRun) string {
	switch {
	case run.Kind == task.KindClaudeLogin:
		return "CLAUDE_CODE_OAUTH_TOKEN"
	case run.Header == "Authorization": // of a gateway
		return "ANTHROPIC_AUTH_TOKEN"
	}
	return h.Provider.Env
}

// Read implements stage.Harness.
func (h *Harness) Read(run stage.HarnessRun, emit func(task.AgentEvent)) stage.HarnessReader {
	if run.Asks {
		return newSpeaker(run, emit)
	}
	return agent.NewReader(&dialect{}, emit)
}

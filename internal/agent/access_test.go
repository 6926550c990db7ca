package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/agent/claude"
	"github.com/cofferdam/cofferdam/internal/agent/codex"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// What carries a key decides in which variable Claude Code finds its placeholder,
// and where models are asked is what the task says.
func TestHowKeysAreGiven(t *testing.T) {
	h, err := claude.New(task.AgentSpec{Name: "claude", ModelURL: "https://ai.corp.example"})
	if err != nil {
		t.Fatal(err)
	}
	for want, run := range map[string]stage.HarnessRun{
		"ANTHROPIC_API_KEY=p":       {Placeholder: "p", Kind: task.KindHeader, Header: "X-Api-Key"},
		"ANTHROPIC_AUTH_TOKEN=p":    {Placeholder: "p", Kind: task.KindHeader, Header: "Authorization"},
		"CLAUDE_CODE_OAUTH_TOKEN=p": {Placeholder: "p", Kind: task.KindClaudeLogin, Header: "Authorization"},
	} {
		start, err := h.Start(run)
		if err != nil {
			t.Fatal(err)
		}
		keys := slices.DeleteFunc(slices.Clone(start.Env), func(e string) bool { return !strings.HasSuffix(e, "=p") })
		if !slices.Equal(keys, []string{want}) || !slices.Contains(start.Env, "ANTHROPIC_BASE_URL=https://ai.corp.example") {
			t.Errorf("%s: %v", want, start.Env)
		}
	}
	h, err = codex.New(task.AgentSpec{Name: "codex", ModelURL: "https://chatgpt.com/backend-api/codex"})
	if err != nil {
		t.Fatal(err)
	}
	start, err := h.Start(stage.HarnessRun{Placeholder: "p", Kind: task.KindCodexLogin, Header: "Authorization"})
	if err != nil || !slices.Contains(start.Env, "OPENAI_API_KEY=p") || !strings.Contains(strings.Join(start.Argv, " "), `base_url="https://chatgpt.com/backend-api/codex"`) {
		t.Errorf("%v: %+v", err, start)
	}
}

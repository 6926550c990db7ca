package agents

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/cofferdam/cofferdam/api"
)

// What the command line says of the model is what is asked for.
func TestModel(t *testing.T) {
	var m Model
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	m.Flags(f)
	if err := f.Parse([]string{"--model=m", "--model-mode=gateway", "--credential=c", "--model-url=https://m.example", "--provider=openai", "--max-turns=3"}); err != nil {
		t.Fatal(err)
	}
	got := m.Agent("codex@1.2.3", nil)
	if got.Name != "codex" || got.Version != "1.2.3" || got.Model != "m" || got.Mode != "gateway" || got.Credential != "c" || got.ModelURL != "https://m.example" || got.Provider != "openai" || got.MaxTurns != 3 {
		t.Errorf("%+v", got)
	}
}

// A task tells how its agent asks its models.
func TestAccess(t *testing.T) {
	for want, m := range map[string]*api.ModelAccess{
		"":                                  nil,
		"gateway, ai at https://ai.example": {Mode: "gateway", Credential: "ai", URL: "https://ai.example"},
		"direct, mine (claude-login) at https://api.anthropic.com": {Mode: "direct", Credential: "mine", Kind: "claude-login", URL: "https://api.anthropic.com"},
	} {
		if got := Access(api.Task{Model: m}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

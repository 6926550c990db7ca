package agents

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/cofferdam/cofferdam/api"
)

// Model is what a command line says of the model that an agent asks.
type Model struct {
	name, url, provider, credential, mode string
	turns                                 int
}

// Flags adds the flags.
func (m *Model) Flags(f *pflag.FlagSet) {
	f.StringVar(&m.name, "model", "", "model, as its provider names it (default: the agent's own)")
	f.StringVar(&m.provider, "provider", "", "anthropic, openai or google (default: the agent's own)")
	f.StringVar(&m.url, "model-url", "", "`URL` of the model's server, in place of the provider's")
	f.StringVar(&m.credential, "credential", "", "`name` in the vault of the key for the model (default: the provider's name)")
	f.StringVar(&m.mode, "model-mode", "", "how the agent asks its models: direct, gateway or auto (default: what the policy says, or auto)")
	f.IntVar(&m.turns, "max-turns", 0, "turns of the agent loop before it ends (default 50)")
}

// Agent is the agent "NAME" or "NAME@VERSION" with that model.
func (m *Model) Agent(what string, argv []string) api.Agent {
	name, version, _ := strings.Cut(what, "@")
	return api.Agent{
		Name: name, Version: version, Argv: argv, Model: m.name, Provider: m.provider, ModelURL: m.url,
		Credential: m.credential, Mode: m.mode, MaxTurns: m.turns,
	}
}

// TakesCommand says whether the agent "NAME" or "NAME@VERSION" is a command line
// that is given with it.
func TakesCommand(what string) bool {
	name, _, _ := strings.Cut(what, "@")
	return name == "command" || name == "acp"
}

// Access tells in a line how a task's agent asks its models; empty: it asks none.
func Access(t api.Task) string {
	m := t.Model
	if m == nil {
		return ""
	}
	with := m.Credential
	if m.Kind != "" {
		with += " (" + m.Kind + ")"
	}
	return m.Mode + ", " + with + " at " + m.URL
}

package task

import "time"

// AgentSpec says what works on the repository.
type AgentSpec struct {
	Name       string   `json:"name"`                 // "command", "loop", "claude", "codex", "opencode", "gemini", "acp"
	Version    string   `json:"version,omitempty"`    // of a harness; empty: the one this release was tried with; of "acp": NAME[@VERSION] of the installed agent that its command line runs; empty: none
	Argv       []string `json:"argv,omitempty"`       // of "command", and of "acp" the agent's command line
	Provider   string   `json:"provider,omitempty"`   // a name of Providers; empty: the agent's own, for "loop" anthropic
	Model      string   `json:"model,omitempty"`      // as the provider names it; empty: the agent's own default
	ModelURL   string   `json:"modelURL,omitempty"`   // https URL in place of the provider's
	Credential string   `json:"credential,omitempty"` // name in the vault; empty: the provider's name
	Mode       string   `json:"mode,omitempty"`       // how it asks its models: "direct", "gateway" or "auto"; empty: what policy says
	MaxTurns   int      `json:"maxTurns,omitempty"`   // of "loop"; 0: 50
}

// Provider is a vendor of models, or a server that speaks like one.
type Provider struct {
	Name   string
	URL    string // where its API begins
	Header string // that carries the key
	Prefix string // before the key in the header
	Env    string // the variable that tools read the key from
}

// Providers lists the providers that are known.
func Providers() []Provider {
	return []Provider{
		{Name: "anthropic", URL: "https://api.anthropic.com", Header: "X-Api-Key", Env: "ANTHROPIC_API_KEY"},
		{Name: "openai", URL: "https://api.openai.com/v1", Header: "Authorization", Prefix: "Bearer ", Env: "OPENAI_API_KEY"},
		{Name: "google", URL: "https://generativelanguage.googleapis.com", Header: "X-Goog-Api-Key", Env: "GEMINI_API_KEY"},
	}
}

// ProviderOf returns the provider whose models the agent asks; false for an
// agent that asks none, such as "command", or one that is not known.
func (a AgentSpec) ProviderOf() (Provider, bool) {
	name := a.Provider
	if name == "" {
		switch a.Name {
		case "loop", "claude":
			name = "anthropic"
		case "codex", "opencode":
			name = "openai"
		case "gemini":
			name = "google"
		}
	}
	for _, p := range Providers() {
		if p.Name == name && name != "" {
			if a.ModelURL != "" {
				p.URL = a.ModelURL
			}
			return p, true
		}
	}
	return Provider{}, false
}

// CredentialName is the name in the vault of the key for the agent's models;
// empty for an agent that asks none.
func (a AgentSpec) CredentialName() string {
	if a.Credential != "" {
		return a.Credential
	}
	p, _ := a.ProviderOf()
	return p.Name
}

// AgentEvent is one thing an agent said or did, whatever its harness. What it
// holds comes from inside and is shown escaped.
type AgentEvent struct {
	Time   time.Time   `json:"time"`
	Type   string      `json:"type"`             // "text", "call", "permission", "result", "usage", "end"
	Text   string      `json:"text,omitempty"`   // of text, result (its head) and end
	Call   string      `json:"call,omitempty"`   // ties a result, and a permission that was asked for, to its call
	Tool   string      `json:"tool,omitempty"`   // of call
	Input  string      `json:"input,omitempty"`  // of call: JSON, cut at 16 KiB
	Failed bool        `json:"failed,omitempty"` // of result and end
	Usage  *ModelUsage `json:"usage,omitempty"`  // of usage and end
	Cut    bool        `json:"cut,omitempty"`    // something was left out for its length
}

// ModelUsage counts what models charged for.
type ModelUsage struct {
	Requests int64 `json:"requests,omitempty"`
	Input    int64 `json:"input,omitempty"`  // tokens, cached ones included
	Output   int64 `json:"output,omitempty"` // tokens
	Cached   int64 `json:"cached,omitempty"` // of the input tokens
}

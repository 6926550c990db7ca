package task

// The kinds of credentials whose values are access tokens of a person's own
// subscription, as the agents of the models' vendors sign in for one.
const (
	KindClaudeLogin = "claude-login" // of Claude Code
	KindCodexLogin  = "codex-login"  // of Codex, signed in with ChatGPT
)

// SettingAccount is which account's authority a login of KindCodexLogin is: it
// stands in the header HeaderAccount beside the token.
const SettingAccount = "account"

// HeaderAccount names the account that a request of Codex is for.
const HeaderAccount = "Chatgpt-Account-Id"

// Subscription is one vendor's way to ask models with a login.
type Subscription struct {
	Kind     string // of the credential
	Agent    string // the only agent that may use it
	Provider string // whose models there are, as in Provider.Name
	URL      string // where its API begins
}

// Subscriptions lists those that are known.
func Subscriptions() []Subscription {
	return []Subscription{
		{Kind: KindClaudeLogin, Agent: "claude", Provider: "anthropic", URL: "https://api.anthropic.com"},
		{Kind: KindCodexLogin, Agent: "codex", Provider: "openai", URL: "https://chatgpt.com/backend-api/codex"},
	}
}

// SubscriptionOf finds the subscription of a kind of credentials.
func SubscriptionOf(kind string) (Subscription, bool) {
	for _, s := range Subscriptions() {
		if s.Kind == kind {
			return s, true
		}
	}
	return Subscription{}, false
}

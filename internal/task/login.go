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

// The modes in which agents ask their models.
const (
	ModelDirect  = "direct"  // the vendor itself, with its key or with a login
	ModelGateway = "gateway" // a gateway of models, with its key alone
	ModelAuto    = "auto"    // the gateway where one is named, else direct
)

// ModelAccess is by which authority an agent asks its models. The zero
// ModelAccess is of an agent that asks none.
type ModelAccess struct {
	Mode       string `json:"mode"` // ModelDirect or ModelGateway
	Credential string `json:"credential"`
	Kind       string `json:"kind,omitempty"` // of a login; empty: a key
	URL        string `json:"url"`            // where the models are asked
}

// ModelLogin is a credential of the vault that is a login.
type ModelLogin struct {
	Credential string `json:"credential"`
	Kind       string `json:"kind"`
}

// ModelKeys are what of the vault decides how tasks of a user ask models. It is
// looked at once, when the task is asked for.
type ModelKeys struct {
	Keys   []string     `json:"keys,omitempty"`   // providers that there is a key of, by name
	Logins []ModelLogin `json:"logins,omitempty"` // the user's own before those that are shared
}

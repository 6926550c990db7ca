package access_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/policy/access"
	"github.com/cofferdam/cofferdam/internal/task"
)

// How an agent asks its models follows from the request, the layers and what is
// in the vault, and from nothing else.
func TestResolve(t *testing.T) {
	gateway := access.Said{Gateway: access.Gateway{Credential: "ai", URLs: map[string]string{"anthropic": "https://ai.corp.example", "openai": "https://ai.corp.example/v1"}}}
	said := func(mode string) access.Said { s := gateway; s.Mode = mode; return s }
	mine := task.ModelKeys{Logins: []task.ModelLogin{{Credential: "cx", Kind: task.KindCodexLogin}, {Credential: "mine", Kind: task.KindClaudeLogin}, {Credential: "all", Kind: task.KindClaudeLogin}}}
	both := task.ModelKeys{Keys: []string{"anthropic"}, Logins: mine.Logins}
	vendor := "https://api.anthropic.com"
	for name, c := range map[string]struct {
		agent task.AgentSpec
		said  access.Said
		keys  task.ModelKeys
		want  task.ModelAccess
		fault string
	}{
		"as it was":                      {agent: task.AgentSpec{Name: "claude"}, want: task.ModelAccess{Mode: "direct", Credential: "anthropic", URL: vendor}},
		"no models":                      {agent: task.AgentSpec{Name: "command"}, said: gateway, keys: mine},
		"no models, a mode":              {agent: task.AgentSpec{Name: "command", Mode: "direct"}, fault: "agent.mode: the agent asks no models"},
		"no such mode":                   {agent: task.AgentSpec{Name: "claude", Mode: "fast"}, fault: `agent.mode: "fast" is none of`},
		"a gateway":                      {agent: task.AgentSpec{Name: "claude"}, said: gateway, keys: both, want: task.ModelAccess{Mode: "gateway", Credential: "ai", URL: "https://ai.corp.example"}},
		"auto":                           {agent: task.AgentSpec{Name: "loop", Mode: "auto", Provider: "openai"}, said: said("direct"), want: task.ModelAccess{Mode: "gateway", Credential: "ai", URL: "https://ai.corp.example/v1"}},
		"a gateway of others":            {agent: task.AgentSpec{Name: "gemini"}, said: gateway, want: task.ModelAccess{Mode: "direct", Credential: "google", URL: "https://generativelanguage.googleapis.com"}},
		"no gateway":                     {agent: task.AgentSpec{Name: "claude", Mode: "gateway"}, fault: "no gateway for models of anthropic"},
		"a gateway of others, alone":     {agent: task.AgentSpec{Name: "gemini"}, said: said("gateway"), fault: "no gateway for models of google"},
		"the request says direct":        {agent: task.AgentSpec{Name: "claude", Mode: "direct"}, said: said("gateway"), want: task.ModelAccess{Mode: "direct", Credential: "anthropic", URL: vendor}},
		"a layer says direct":            {agent: task.AgentSpec{Name: "claude"}, said: said("direct"), want: task.ModelAccess{Mode: "direct", Credential: "anthropic", URL: vendor}},
		"a credential of its own":        {agent: task.AgentSpec{Name: "claude", Credential: "other"}, said: gateway, want: task.ModelAccess{Mode: "direct", Credential: "other", URL: vendor}},
		"an address of its own":          {agent: task.AgentSpec{Name: "claude", ModelURL: "https://m.example"}, said: gateway, want: task.ModelAccess{Mode: "direct", Credential: "anthropic", URL: "https://m.example"}},
		"a gateway and a credential":     {agent: task.AgentSpec{Name: "claude", Credential: "other"}, said: said("gateway"), fault: "the gateway has its own credential"},
		"a login":                        {agent: task.AgentSpec{Name: "claude"}, keys: mine, want: task.ModelAccess{Mode: "direct", Credential: "mine", Kind: task.KindClaudeLogin, URL: vendor}},
		"a login of Codex":               {agent: task.AgentSpec{Name: "codex"}, keys: mine, want: task.ModelAccess{Mode: "direct", Credential: "cx", Kind: task.KindCodexLogin, URL: "https://chatgpt.com/backend-api/codex"}},
		"a key before a login":           {agent: task.AgentSpec{Name: "claude"}, keys: both, want: task.ModelAccess{Mode: "direct", Credential: "anthropic", URL: vendor}},
		"a login by its name":            {agent: task.AgentSpec{Name: "claude", Credential: "all"}, keys: both, want: task.ModelAccess{Mode: "direct", Credential: "all", Kind: task.KindClaudeLogin, URL: vendor}},
		"a login elsewhere":              {agent: task.AgentSpec{Name: "codex", Credential: "cx", ModelURL: "https://m.example/v1"}, keys: mine, want: task.ModelAccess{Mode: "direct", Credential: "cx", Kind: task.KindCodexLogin, URL: "https://m.example/v1"}},
		"another's login":                {agent: task.AgentSpec{Name: "codex", Credential: "mine"}, keys: mine, fault: "agent.credential: mine is a login of claude"},
		"a login for the loop":           {agent: task.AgentSpec{Name: "loop", Credential: "mine"}, keys: mine, fault: "agent.credential: mine is a login of claude"},
		"the loop has no login":          {agent: task.AgentSpec{Name: "loop"}, keys: mine, want: task.ModelAccess{Mode: "direct", Credential: "anthropic", URL: vendor}},
		"opencode has none":              {agent: task.AgentSpec{Name: "opencode", Provider: "anthropic"}, keys: mine, want: task.ModelAccess{Mode: "direct", Credential: "anthropic", URL: vendor}},
		"a login and a gateway":          {agent: task.AgentSpec{Name: "claude"}, said: gateway, keys: mine, want: task.ModelAccess{Mode: "gateway", Credential: "ai", URL: "https://ai.corp.example"}},
		"a login under the vendor's":     {agent: task.AgentSpec{Name: "claude"}, keys: task.ModelKeys{Logins: []task.ModelLogin{{Credential: "anthropic", Kind: task.KindClaudeLogin}}}, want: task.ModelAccess{Mode: "direct", Credential: "anthropic", Kind: task.KindClaudeLogin, URL: vendor}},
		"a credential that is no login":  {agent: task.AgentSpec{Name: "claude", Credential: "other"}, keys: mine, want: task.ModelAccess{Mode: "direct", Credential: "other", URL: vendor}},
		"the vendor's, of another agent": {agent: task.AgentSpec{Name: "opencode", Provider: "anthropic"}, keys: task.ModelKeys{Logins: []task.ModelLogin{{Credential: "anthropic", Kind: task.KindClaudeLogin}}}, fault: "a login of claude"},
	} {
		agent, got, err := access.Resolve(c.agent, c.said, c.keys)
		if c.fault != "" {
			if f, ok := errors.AsType[*task.Failure](err); !ok || f.Reason != task.InputInvalid || !strings.Contains(f.Text, c.fault) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		// The agent is started for just that, and its rule is for that.
		if p, ok := agent.ProviderOf(); ok && (p.URL != got.URL || agent.CredentialName() != got.Credential) {
			t.Errorf("%s: started as %+v", name, agent)
		}
		if again, same, err := access.Resolve(agent, c.said, c.keys); c.want.Mode == "direct" && (err != nil || same != got || fmt.Sprint(again) != fmt.Sprint(agent)) {
			t.Errorf("%s: resolved twice it is %+v, %v", name, same, err)
		}
		if rule, ok, err := access.ModelRule(agent); ok && (err != nil || rule.Credential != got.Credential || !strings.Contains(got.URL, rule.Host)) {
			t.Errorf("%s: %+v, %v", name, rule, err)
		}
	}
}

// A layer below says what those above may have said otherwise.
func TestSum(t *testing.T) {
	operator := access.Said{Mode: "gateway", Line: 3, Gateway: access.Gateway{Credential: "a"}}
	project := access.Said{Line: 5, Gateway: access.Gateway{Credential: "b"}}
	for name, c := range map[string]struct {
		said       []access.Said
		mode, cred string
		by, line   int
	}{
		"nothing":        {[]access.Said{{}, {}}, "", "", -1, 0},
		"the operator":   {[]access.Said{{}, {}, operator}, "gateway", "a", 2, 3},
		"the project's":  {[]access.Said{{}, project, operator}, "gateway", "b", 2, 3},
		"a gateway only": {[]access.Said{{}, project, {}}, "", "b", 1, 5},
		"the task":       {[]access.Said{{Mode: "direct", Line: 1}, project, operator}, "direct", "b", 0, 1},
	} {
		got, by := access.Sum(c.said...)
		if got.Mode != c.mode || got.Gateway.Credential != c.cred || by != c.by || got.Line != c.line {
			t.Errorf("%s: %+v by %d", name, got, by)
		}
	}
}

// What a policy file says is read strictly, and each fault names its place.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"{mode: auto}": "",
		"{mode: gateway, gateway: {credential: ai, anthropic: 'https://ai.corp.example'}}": "",
		"{gateway: {credential: ai, openai: 'https://ai.corp.example:8443/v1'}}":           "",
		"[]":                         "a: must be a mapping of mode, gateway",
		"{mode: fast}":               `a.mode: "fast" is none of`,
		"{mode: [auto]}":             "a.mode: ",
		"{model: auto}":              "a.model: unknown field; known here: mode, gateway",
		"{mode: auto, mode: auto}":   "a.mode: stands here twice",
		"{gateway: ai}":              "a.gateway: must be a mapping of credential, anthropic, openai, google",
		"{gateway: {}}":              "a.gateway: needs the credential",
		"{gateway: {credential: x}}": "a.gateway: needs the credential",
		"{gateway: {openai: 'https://x.example'}}":                                "a.gateway: needs the credential",
		"{gateway: {credential: 'a b', openai: 'https://x.example'}}":             "a.gateway.credential: ",
		"{gateway: {credential: x, openai: 'http://x.example'}}":                  "a.gateway.openai: ",
		"{gateway: {credential: x, openai: 'https://u:p@x.example'}}":             "a.gateway.openai: ",
		"{gateway: {credential: x, openai: 'https://x.example/?k=v'}}":            "a.gateway.openai: ",
		"{gateway: {credential: x, openai: 'https://*.example'}}":                 "a.gateway.openai: ",
		"{gateway: {credential: x, openai: []}}":                                  "a.gateway.openai: must be a text",
		"{gateway: {credential: x, openai: 'https://x.example', key: sk-secret}}": "a.gateway.key: unknown field",
	} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var faults []string
		access.Parse(doc.Content[0], "a", func(_ *yaml.Node, path, format string, args ...any) {
			faults = append(faults, path+": "+fmt.Sprintf(format, args...))
		})
		if got := strings.Join(faults, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

package credential

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

const claudeText = `{"claudeAiOauth":{"accessToken":"sk-ant-oat01-REALVALUE","refreshToken":"sk-ant-ort01-REALVALUE","expiresAt":1796060877000,"scopes":["user:inference"]}}`

var codexText = fmt.Sprintf(`{"OPENAI_API_KEY":null,"tokens":{"id_token":"a.b.c","access_token":"h.%s.REALVALUE","refresh_token":"rt-REALVALUE","account_id":"acc-1"}}`,
	base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1796060877}`)))

// A login is in a folder or in the value, and the value must be one.
func TestLoginKinds(t *testing.T) {
	for name, c := range map[string]struct {
		kind, value string
		settings    map[string]string
		hosts       []string
		fault       string
	}{
		"claude, a folder":      {kind: task.KindClaudeLogin, settings: map[string]string{"dir": "/home/alice/.claude"}},
		"claude, a value":       {kind: task.KindClaudeLogin, value: claudeText},
		"claude, elsewhere":     {kind: task.KindClaudeLogin, value: claudeText, hosts: []string{"models.example.com"}},
		"claude, both":          {kind: task.KindClaudeLogin, value: claudeText, settings: map[string]string{"dir": "/home/alice/.claude"}, fault: "value: is the file .credentials.json"},
		"claude, neither":       {kind: task.KindClaudeLogin, fault: "value: is empty; give the file .credentials.json"},
		"claude, a key":         {kind: task.KindClaudeLogin, value: "sk-ant-api03-REALVALUE", fault: "value: is not a JSON object"},
		"claude, Codex's":       {kind: task.KindClaudeLogin, value: codexText, fault: "value: has no login of a subscription"},
		"claude, more":          {kind: task.KindClaudeLogin, value: claudeText + "{}", fault: "value: has more after"},
		"claude, a placeholder": {kind: task.KindClaudeLogin, value: strings.ReplaceAll(claudeText, "REALVALUE", "placeholder"), fault: "value: accessToken is a placeholder"},
		"claude, no refresh":    {kind: task.KindClaudeLogin, value: strings.ReplaceAll(claudeText, "refreshToken", "x"), fault: "value: refreshToken is missing"},
		"claude, long":          {kind: task.KindClaudeLogin, value: claudeText + strings.Repeat(" ", 16<<10), fault: "value: longer than"},
		"claude, a near folder": {kind: task.KindClaudeLogin, settings: map[string]string{"dir": "../.claude"}, fault: "settings.dir: must be the absolute"},
		"claude, the root":      {kind: task.KindClaudeLogin, settings: map[string]string{"dir": "/"}, fault: "settings.dir: must be the absolute"},
		"claude, http":          {kind: task.KindClaudeLogin, value: claudeText, settings: map[string]string{"token_url": "http://x.example/"}, fault: "settings.token_url: must be an https URL"},
		"claude, an account":    {kind: task.KindClaudeLogin, value: claudeText, settings: map[string]string{"account": "a"}, fault: "settings.account: kind claude-login knows"},
		"codex":                 {kind: task.KindCodexLogin, value: codexText, settings: map[string]string{"account": "acc-1"}},
		"codex, no account":     {kind: task.KindCodexLogin, value: codexText, fault: "settings.account: is missing"},
		"codex, a bad account":  {kind: task.KindCodexLogin, value: codexText, settings: map[string]string{"account": "a b"}, fault: "settings.account: must be"},
		"codex, a key":          {kind: task.KindCodexLogin, value: `{"OPENAI_API_KEY":"sk-REALVALUE","tokens":null}`, settings: map[string]string{"account": "a"}, fault: "value: "},
	} {
		got, err := request(task.CredentialRequest{
			Name: "c", Owner: "alice", Kind: c.kind, Value: task.NewSecret(c.value), Settings: maps.Clone(c.settings), Hosts: c.hosts,
		}).credential()
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "REALVALUE") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := c.hosts
		if s, ok := task.SubscriptionOf(c.kind); want == nil && ok {
			want = []string{strings.Split(s.URL, "/")[2]}
		}
		if !slices.Equal(got.Hosts, want) || got.Header != "Authorization" || got.Prefix != "Bearer " || got.Settings["token_url"] == "" {
			t.Errorf("%s: %+v", name, got)
		}
		lent := settingsOf(got)
		if lent["dir"] != "" || lent["token_url"] != "" || lent["account"] != c.settings["account"] {
			t.Errorf("%s: lent %v", name, lent)
		}
		if p := placeholderOf(got); !strings.Contains(p, "placeholder") {
			t.Errorf("%s: %s", name, p)
		}
	}
}

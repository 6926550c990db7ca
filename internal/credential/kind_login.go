package credential

import (
	"fmt"

	"github.com/cofferdam/cofferdam/internal/credential/fault"
	"github.com/cofferdam/cofferdam/internal/credential/login/claude"
	"github.com/cofferdam/cofferdam/internal/credential/login/codex"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxLogin bounds the text of a login.
const maxLogin = 16 << 10

// claudeLoginKind is access tokens of a subscription, as Claude Code signs in
// for it. The login is in the tool's own folder, or the vault's value.
func claudeLoginKind() kind {
	return kind{
		name: task.KindClaudeLogin, header: true, minted: true, hosts: []string{"api.anthropic.com"},
		settings: loginSettings("https://platform.claude.com/v1/oauth/token", "9d1c250a-e61b-44d9-88ed-5944d1962f5e"),
		fault:    func(string) string { return "" },
		whole: func(r request) error {
			return loginFault(r, "the file .credentials.json of Claude Code", func(text []byte) error { _, err := claude.Read(text); return err })
		},
		placeholder: func(task.Credential) string { return newPlaceholder("sk-ant-oat01-") },
	}
}

// codexLoginKind is the same of Codex, signed in with ChatGPT.
func codexLoginKind() kind {
	settings := loginSettings("https://auth.openai.com/oauth/token", "app_EMoamEEZ73f0CkXaXp7hrann")
	settings[task.SettingAccount] = setting{required: true, lent: true, fault: fault.Account}
	return kind{
		name: task.KindCodexLogin, header: true, minted: true, hosts: []string{"chatgpt.com"}, settings: settings,
		fault: func(string) string { return "" },
		whole: func(r request) error {
			return loginFault(r, "the file auth.json of Codex", func(text []byte) error { _, err := codex.Read(text); return err })
		},
	}
}

func loginSettings(url, client string) map[string]setting {
	return map[string]setting{
		"dir":       {fault: fault.Folder},
		"token_url": {preset: url, fault: fault.Endpoint},
		"client_id": {preset: client},
	}
}

// loginFault judges where a login is: in a folder, or in the value.
func loginFault(r request, what string, read func([]byte) error) error {
	text := r.Value.Reveal()
	switch {
	case r.Settings["dir"] != "" && text != "":
		return invalid("value", "is %s, or the setting dir says where that is; give one of them", what)
	case r.Settings["dir"] != "":
		return nil
	case text == "":
		return invalid("value", "is empty; give %s, or the setting dir with the folder that it is in", what)
	case len(text) > maxLogin:
		return invalid("value", "longer than %d bytes", maxLogin)
	}
	if err := read([]byte(text)); err != nil {
		return invalid("value", "%s", fmt.Sprintf("%v; give %s", err, what))
	}
	return nil
}

package credentials

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/host"
)

// isLogin says whether a kind of credential is a login of a person's subscription,
// which is bound to its vendor's host without being told.
func isLogin(kind string) bool { return kind == "claude-login" || kind == "codex-login" }

// setLogin completes the request for a login: where the folder is that it is in,
// and for which account a login of Codex is, as far as that can be read here.
func setLogin(req *api.CredentialRequest, dir string) error {
	set := func(name, text string) {
		if req.Settings == nil {
			req.Settings = map[string]string{}
		}
		req.Settings[name] = text
	}
	if dir != "" {
		if !isLogin(req.Kind) {
			return host.Invalid("--dir: is for the kinds claude-login and codex-login")
		}
		at, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		set("dir", at)
	}
	if req.Kind != "codex-login" || req.Settings["account"] != "" {
		return nil
	}
	text := []byte(req.Value)
	if at := req.Settings["dir"]; at != "" {
		// The control plane may be on another machine; it says what is missing.
		text, _ = os.ReadFile(filepath.Join(at, "auth.json"))
	}
	var login struct {
		Tokens struct {
			Account string `json:"account_id"`
		} `json:"tokens"`
	}
	if json.Unmarshal(text, &login) == nil && login.Tokens.Account != "" {
		set("account", login.Tokens.Account)
	}
	return nil
}

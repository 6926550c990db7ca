// Package codex knows the login of Codex: the file auth.json in its folder
// (~/.codex, or CODEX_HOME) after signing in with ChatGPT, and the locks under
// which Codex itself writes it.
//
// What is here was seen in version 0.171.0, by watching it renew a login. It asks
// without a lock, and then writes with auth.lock and auth.json.lock locked
// (flock), after it has read the file again. An access token is a JWT that says
// when it is over; the account that it is for stands in the file.
package codex

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/login/tokens"
	"github.com/cofferdam/cofferdam/internal/task"
)

// File is the name of the file in the tool's folder.
const File = "auth.json"

// inside is what of the login is read.
type inside struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	ID      string `json:"id_token"`
	Account string `json:"account_id"`
}

// Read reads the text of a login. Errors hold nothing of it.
func Read(text []byte) (tokens.Tokens, error) {
	in, err := read(text)
	if err != nil {
		return tokens.Tokens{}, err
	}
	t := tokens.Tokens{Access: task.NewSecret(in.Access), Refresh: task.NewSecret(in.Refresh), ID: task.NewSecret(in.ID)}
	if what := tokens.Usable(t.Access); what != "" {
		return t, errors.New("tokens.access_token " + what)
	}
	if what := tokens.Usable(t.Refresh); what != "" {
		return t, errors.New("tokens.refresh_token " + what)
	}
	t.Until = Until(in.Access)
	return t, nil
}

func read(text []byte) (in inside, err error) {
	outer, err := tokens.Fields(text)
	if err != nil {
		return in, err
	}
	var key string
	if json.Unmarshal(outer["OPENAI_API_KEY"], &key) == nil && key != "" && len(outer["tokens"]) < len("{}")+1 {
		return in, errors.New("is of an API key and no login; add the key as a credential with --provider openai")
	}
	if outer["tokens"] == nil || json.Unmarshal(outer["tokens"], &in) != nil {
		return in, errors.New("has no tokens of a login with ChatGPT")
	}
	return in, nil
}

// Account is the account that a login is for; empty: it does not say.
func Account(text []byte) string {
	in, err := read(text)
	if err != nil {
		return ""
	}
	return in.Account
}

// Until is when an access token says that it is over (RFC 7519 §4.1.4); zero: it
// does not say. Nothing of it is verified: whoever it is sent to does that.
func Until(access string) time.Time {
	parts := strings.Split(access, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Exp json.Number `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return time.Time{}
	}
	exp, err := claims.Exp.Int64()
	if err != nil || exp <= 0 || exp > 1<<38 {
		return time.Time{}
	}
	return time.Unix(exp, 0)
}

// Write gives the text with other tokens and all else as it was.
func Write(text []byte, t tokens.Tokens, now time.Time) ([]byte, error) {
	outer, err := tokens.Fields(text)
	if err != nil {
		return nil, err
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(outer["tokens"], &inner) != nil || inner == nil {
		return nil, errors.New("has no tokens of a login with ChatGPT")
	}
	err = errors.Join(
		tokens.Set(inner, "access_token", t.Access.Reveal()), tokens.Set(inner, "refresh_token", t.Refresh.Reveal()),
		tokens.Set(outer, "last_refresh", now.UTC().Format(time.RFC3339Nano)),
	)
	if !t.ID.Empty() {
		err = errors.Join(err, tokens.Set(inner, "id_token", t.ID.Reveal()))
	}
	if err := errors.Join(err, tokens.Set(outer, "tokens", inner)); err != nil {
		return nil, err
	}
	return json.MarshalIndent(outer, "", "  ")
}

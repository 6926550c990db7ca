// Package claude knows the login of Claude Code: the file .credentials.json in
// its folder (~/.claude, or CLAUDE_CONFIG_DIR), and the lock that Claude Code
// itself takes when it renews one.
//
// What is here was seen in version 2.1.332, by reading its programs and by
// watching it renew a login. The lock is two folders that exist while it is held:
// .oauth_refresh.lock in the folder, and FOLDER.lock beside it, which versions
// before took alone; who holds them touches them every five seconds, and one that
// was not touched for a minute is left over. The file is written under a third
// one, .storage-write.lock.
package claude

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/login/tokens"
	"github.com/cofferdam/cofferdam/internal/task"
)

// File is the name of the file in the tool's folder.
const File = ".credentials.json"

const field = "claudeAiOauth"

// oauth is what of the login is read.
type oauth struct {
	Access  string          `json:"accessToken"`
	Refresh string          `json:"refreshToken"`
	Expires json.RawMessage `json:"expiresAt"` // milliseconds since 1970
	Scopes  []string        `json:"scopes"`
}

// Read reads the text of a login. Errors hold nothing of it.
func Read(text []byte) (tokens.Tokens, error) {
	_, inner, err := fields(text)
	if err != nil {
		return tokens.Tokens{}, err
	}
	raw, err := json.Marshal(inner)
	if err != nil {
		return tokens.Tokens{}, errors.New("can't be read")
	}
	var o oauth
	if json.Unmarshal(raw, &o) != nil {
		return tokens.Tokens{}, errors.New("is not as Claude Code writes it")
	}
	t := tokens.Tokens{Access: task.NewSecret(o.Access), Refresh: task.NewSecret(o.Refresh), Scopes: o.Scopes}
	if what := tokens.Usable(t.Access); what != "" {
		return t, errors.New("accessToken " + what)
	}
	if what := tokens.Usable(t.Refresh); what != "" {
		return t, errors.New("refreshToken " + what)
	}
	var ms int64
	if len(o.Expires) > 0 && json.Unmarshal(o.Expires, &ms) == nil && ms > 0 && ms < 1<<48 {
		t.Until = time.UnixMilli(ms)
	}
	return t, nil
}

func fields(text []byte) (outer, inner map[string]json.RawMessage, err error) {
	if outer, err = tokens.Fields(text); err != nil {
		return nil, nil, err
	}
	if outer[field] == nil || json.Unmarshal(outer[field], &inner) != nil || inner == nil {
		return nil, nil, errors.New("has no login of a subscription (" + field + ")")
	}
	return outer, inner, nil
}

// Write gives the text with other tokens and all else as it was.
func Write(text []byte, t tokens.Tokens, _ time.Time) ([]byte, error) {
	outer, inner, err := fields(text)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		tokens.Set(inner, "accessToken", t.Access.Reveal()), tokens.Set(inner, "refreshToken", t.Refresh.Reveal()),
		tokens.Set(inner, "expiresAt", t.Until.UnixMilli()),
	)
	if len(t.Scopes) > 0 {
		err = errors.Join(err, tokens.Set(inner, "scopes", t.Scopes))
	}
	if err := errors.Join(err, tokens.Set(outer, field, inner)); err != nil {
		return nil, err
	}
	return json.Marshal(outer)
}

package login

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/login/tokens"
	"github.com/cofferdam/cofferdam/internal/credential/provider"
	"github.com/cofferdam/cofferdam/internal/task"
)

// patience is how long a vendor may take for one answer. Longer than for other
// questions: who asks a second time may have used up the refresh token.
const patience = 30 * time.Second

// maxSeconds bounds what a vendor says of a token's time, before it is a time.
const maxSeconds = 1 << 31

// request is how both vendors are asked: as in RFC 6749 §6, but in JSON.
type request struct {
	Grant   string `json:"grant_type"`
	Refresh string `json:"refresh_token"`
	Client  string `json:"client_id"`
	Scope   string `json:"scope,omitempty"`
}

// granted is what both answer (RFC 6749 §5.1).
type granted struct {
	Access  string      `json:"access_token"`
	Refresh string      `json:"refresh_token"`
	ID      string      `json:"id_token"`
	Type    string      `json:"token_type"`
	Seconds json.Number `json:"expires_in"`
	Scope   string      `json:"scope"`
}

// ask renews tokens at the vendor.
func (m *Minter) ask(ctx context.Context, c task.Credential, v vendor, now tokens.Tokens) (tokens.Tokens, error) {
	body, err := json.Marshal(request{"refresh_token", now.Refresh.Reveal(), c.Settings[settingClient], strings.Join(now.Scopes, " ")})
	if err != nil {
		return tokens.Tokens{}, task.Fail(task.InfraInternal, "a question can't be written", err)
	}
	a, err := m.Ask.Ask(ctx, provider.Question{
		Credential: c.Name, Method: http.MethodPost, URL: c.Settings[settingURL], Body: string(body), Patience: patience,
		Header:  http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
		Secrets: []task.Secret{now.Refresh, now.Access, now.ID},
	})
	if err != nil {
		return tokens.Tokens{}, err
	}
	if !a.OK() {
		return tokens.Tokens{}, m.refused(c, v, a)
	}
	var got granted
	if err := a.JSON(&got); err != nil {
		return tokens.Tokens{}, err
	}
	return got.tokens(a, v, now)
}

// refused is the failure for an answer that refuses. Most often the login is
// over, and a person must sign in again.
func (m *Minter) refused(c task.Credential, v vendor, a provider.Answer) error {
	var said struct {
		Error       json.RawMessage `json:"error"` // a word, or an object that has one
		Description string          `json:"error_description"`
	}
	why := ""
	if a.JSON(&said) == nil {
		var deep struct {
			Type    string `json:"type"`
			Code    string `json:"code"`
			Message string `json:"message"`
		}
		if json.Unmarshal(said.Error, &why) != nil && json.Unmarshal(said.Error, &deep) == nil {
			why = strings.TrimSpace(deep.Type + " " + deep.Code + " " + deep.Message)
		}
		if said.Description != "" {
			why = strings.TrimPrefix(why+": "+said.Description, ": ")
		}
	}
	err := a.Refused(why)
	if a.Status != http.StatusBadRequest && a.Status != http.StatusUnauthorized && a.Status != http.StatusForbidden {
		return err
	}
	text := fmt.Sprintf("%v; the login of %s is over: sign in again (%s)", textOf(err), v.tool, v.again)
	if c.Settings[settingDir] == "" {
		text += ", remove the credential and add it anew"
	}
	return task.Fail(task.PolicyCredential, text, nil)
}

func textOf(err error) string {
	if f, ok := err.(*task.Failure); ok { //nolint:errorlint // of provider, never wrapped
		return f.Text
	}
	return err.Error()
}

// tokens are what an answer grants. A refresh token that is not made anew stays
// the one there is. With an error only the refresh token counts, if there is one.
func (g granted) tokens(a provider.Answer, v vendor, now tokens.Tokens) (tokens.Tokens, error) {
	got := tokens.Tokens{Access: task.NewSecret(g.Access), Refresh: now.Refresh, ID: now.ID, Scopes: now.Scopes}
	if g.Refresh != "" {
		got.Refresh = task.NewSecret(g.Refresh)
	}
	if g.ID != "" {
		got.ID = task.NewSecret(g.ID)
	}
	if s := strings.Fields(g.Scope); len(s) > 0 {
		got.Scopes = s
	}
	if what := tokens.Usable(got.Refresh); what != "" {
		return tokens.Tokens{}, a.Garbage("a refresh token that " + what)
	}
	if what := tokens.Usable(got.Access); what != "" {
		return got, a.Garbage("an access token that " + what)
	}
	if g.Type != "" && !strings.EqualFold(g.Type, "Bearer") {
		return got, a.Garbage("a token that is no Bearer token")
	}
	if n, err := g.Seconds.Int64(); g.Seconds != "" {
		if err != nil || n <= 0 || n > maxSeconds {
			return got, a.Garbage("a token whose time is absurd")
		}
		got.Until = a.Asked.Add(time.Duration(n) * time.Second)
	} else if v.until != nil {
		if at := v.until(g.Access); !at.IsZero() {
			got.Until = a.Until(at)
		}
	}
	if got.Until.IsZero() {
		return got, a.Garbage("a token that does not say how long it lasts")
	}
	return got, nil
}

// Package oauth mints access tokens at OAuth 2.0 authorization servers: for a
// client's own account (RFC 6749 §4.4), and in exchange for the token that says
// who a run is (RFC 8693). Tokens are ended by RFC 7009 where the server has it.
//
// Words. A client is what the server knows us as; its secret is what the vault
// keeps. A token that is no Bearer token, lasts for a time that nobody says, or
// has more scopes than were asked for, is given back and refused.
package oauth

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/credential/provider"
	"github.com/cofferdam/cofferdam/internal/task"
)

// What RFC 8693 calls things.
const (
	grantClient   = "client_credentials"
	grantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccess    = "urn:ietf:params:oauth:token-type:access_token"
	typeJWT       = "urn:ietf:params:oauth:token-type:jwt"
)

// maxSeconds bounds what a server says of a token's time, before it is a time.
const maxSeconds = 1 << 31

// Client mints for a client's own account. It implements credential.Minter.
type Client struct{ ask provider.Provider }

// NewClient returns a minter that asks by p.
func NewClient(p provider.Provider) *Client { return &Client{p} }

// Mint implements credential.Minter.
func (m *Client) Mint(ctx context.Context, c task.Credential, long task.Secret, _ task.Lent) (credential.Minted, error) {
	return mint(ctx, m.ask, c, long, task.Secret{}, url.Values{"grant_type": {grantClient}})
}

// Revoke implements credential.Minter.
func (m *Client) Revoke(ctx context.Context, c task.Credential, long, value task.Secret) error {
	return revoke(ctx, m.ask, c, long, value)
}

// Runs makes tokens that say who a run is. Implemented by identity/issuer.
type Runs interface {
	Token(ctx context.Context, l task.Lent, audience string) (task.Secret, error)
}

// Exchange mints in exchange for the run's own token. It implements
// credential.Minter.
type Exchange struct {
	ask  provider.Provider
	runs Runs
}

// NewExchange returns a minter that asks by p with the tokens of runs.
func NewExchange(p provider.Provider, runs Runs) *Exchange { return &Exchange{p, runs} }

// Mint implements credential.Minter.
func (m *Exchange) Mint(ctx context.Context, c task.Credential, long task.Secret, l task.Lent) (credential.Minted, error) {
	run, err := m.runs.Token(ctx, l, c.Settings["identity"])
	if err != nil {
		return credential.Minted{}, err
	}
	return mint(ctx, m.ask, c, long, run, url.Values{
		"grant_type": {grantExchange}, "subject_token": {run.Reveal()}, "subject_token_type": {cmp.Or(c.Settings["subject_token_type"], typeJWT)},
		"requested_token_type": {cmp.Or(c.Settings["requested_token_type"], typeAccess)},
	})
}

// Revoke implements credential.Minter.
func (m *Exchange) Revoke(ctx context.Context, c task.Credential, long, value task.Secret) error {
	return revoke(ctx, m.ask, c, long, value)
}

// granted is a token endpoint's answer (RFC 6749 §5.1).
type granted struct {
	Token   string      `json:"access_token"`
	Type    string      `json:"token_type"`
	Seconds json.Number `json:"expires_in"`
	Scope   string      `json:"scope"`
}

func mint(ctx context.Context, ask provider.Provider, c task.Credential, long, run task.Secret, form url.Values) (credential.Minted, error) {
	for _, name := range []string{"scope", "audience", "resource"} {
		if text := c.Settings[name]; text != "" {
			form.Set(name, text)
		}
	}
	q := question(c, c.Settings["token_url"], long, form)
	q.Secrets = append(q.Secrets, run)
	a, err := ask.Ask(ctx, q)
	if err != nil {
		return credential.Minted{}, err
	}
	if !a.OK() {
		return credential.Minted{}, a.Refused(message(a))
	}
	var got granted
	if err := a.JSON(&got); err != nil {
		return credential.Minted{}, err
	}
	if !provider.Token(got.Token) {
		return credential.Minted{}, a.Garbage("no token, or one that can't be a token")
	}
	value := task.NewSecret(got.Token)
	until, text := got.until(a, c)
	if !strings.EqualFold(got.Type, "Bearer") {
		text = "a token that is no Bearer token"
	}
	wide := got.wider(c.Settings["scope"])
	if text == "" && wide == "" {
		return credential.Minted{Value: value, Until: until}, nil
	}
	if err := revoke(ctx, ask, c, long, value); err != nil && c.Settings["revoke_url"] != "" {
		return credential.Minted{}, err
	}
	if wide != "" {
		return credential.Minted{}, a.Wide(wide)
	}
	return credential.Minted{}, a.Garbage(text)
}

// until is when the token is over, or what is wrong with what the server says.
func (g granted) until(a provider.Answer, c task.Credential) (time.Time, string) {
	said := cmp.Or(g.Seconds.String(), c.Settings["lifetime"])
	if said == "" {
		return time.Time{}, "it does not say how long its token lasts; set lifetime, in seconds"
	}
	n, err := strconv.ParseInt(said, 10, 64)
	if err != nil || n <= 0 || n > maxSeconds {
		return time.Time{}, "the time of its token is absurd"
	}
	return a.Asked.Add(time.Duration(n) * time.Second), ""
}

// wider says which scopes are more than was asked for. One that was not asked for
// by name leaves it to the server.
func (g granted) wider(asked string) string {
	want := strings.Fields(asked)
	if len(want) == 0 {
		return ""
	}
	for _, got := range strings.Fields(g.Scope) {
		if !slices.Contains(want, got) {
			return "scope " + got
		}
	}
	return ""
}

// revoke ends a token (RFC 7009).
func revoke(ctx context.Context, ask provider.Provider, c task.Credential, long, value task.Secret) error {
	where := c.Settings["revoke_url"]
	if where == "" {
		return credential.ErrLasts
	}
	q := question(c, where, long, url.Values{"token": {value.Reveal()}, "token_type_hint": {"access_token"}})
	q.Secrets = append(q.Secrets, value)
	a, err := ask.Ask(ctx, q)
	if err == nil && !a.OK() {
		err = a.Refused(message(a)) // one that is over already is answered with 200
	}
	return err
}

// question asks as the client that the credential names, if it names one.
func question(c task.Credential, where string, long task.Secret, form url.Values) provider.Question {
	q := provider.Question{
		Credential: c.Name, Method: http.MethodPost, URL: where,
		Header:  http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}},
		Secrets: []task.Secret{long},
	}
	id := c.Settings["client_id"]
	switch {
	case id == "":
	case long.Empty() || c.Settings["auth"] == "post":
		form.Set("client_id", id)
		if !long.Empty() {
			form.Set("client_secret", long.Reveal())
		}
	default:
		// Both are encoded as in a form before they are put together (RFC 6749 §2.3.1).
		pair := task.NewSecret(url.QueryEscape(id) + ":" + url.QueryEscape(long.Reveal()))
		q.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair.Reveal())))
		q.Secrets = append(q.Secrets, pair)
	}
	q.Body = form.Encode()
	return q
}

// message is what a server says of a refusal (RFC 6749 §5.2).
func message(a provider.Answer) string {
	var said struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if a.JSON(&said) != nil {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("%s: %s", said.Error, said.Description), ": ")
}

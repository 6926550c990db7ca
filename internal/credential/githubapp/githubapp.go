// Package githubapp mints installation tokens of GitHub Apps, narrowed to
// repositories and permissions. The vault keeps the App's private key, which
// signs what says that we are the App and goes nowhere.
//
// Words. An App has an id, and an installation is the App's place in one account.
// A token of an installation lasts an hour. One that comes back wider than it was
// asked for is given back and refused.
package githubapp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/credential/provider"
	"github.com/cofferdam/cofferdam/internal/task"
)

// apiVersion is that of the API's description that this is written to.
const apiVersion = "2022-11-28"

// slip is how far our clock may be off before an App's token is signed again by
// GitHub's own.
const slip = 30 * time.Second

// Minter mints. It implements credential.Minter.
type Minter struct{ ask provider.Provider }

// New returns a minter that asks by p.
func New(p provider.Provider) *Minter { return &Minter{p} }

// installation is what GitHub says of a new token.
type installation struct {
	Token        string            `json:"token"`
	Expires      time.Time         `json:"expires_at"`
	Permissions  map[string]string `json:"permissions"`
	Selection    string            `json:"repository_selection"`
	Repositories []struct {
		FullName string `json:"full_name"`
	} `json:"repositories"`
}

// Mint implements credential.Minter.
func (m *Minter) Mint(ctx context.Context, c task.Credential, long task.Secret, _ task.Lent) (credential.Minted, error) {
	key, err := parseKey(long)
	if err != nil {
		return credential.Minted{}, task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q: its value is no private key of an App; add it anew", c.Name), nil)
	}
	permissions := permissionsOf(c)
	repositories := repositoriesOf(c)
	names := make([]string, 0, len(repositories))
	for _, r := range repositories {
		_, name, _ := strings.Cut(r, "/")
		names = append(names, name)
	}
	body, err := json.Marshal(map[string]any{"repositories": names, "permissions": permissions})
	if err != nil || len(names) == 0 || len(permissions) == 0 {
		return credential.Minted{}, task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q: it names no repository or no permission; add it anew", c.Name), nil)
	}
	question := func(now time.Time) (provider.Question, error) {
		token, err := appToken(key, c.Settings["app_id"], now)
		q := m.question(c, token, http.MethodPost, "/app/installations/"+c.Settings["installation_id"]+"/access_tokens")
		q.Body = string(body)
		q.Secrets = append(q.Secrets, long)
		return q, err
	}
	a, err := m.signed(ctx, question)
	if err != nil {
		return credential.Minted{}, err
	}
	if !a.OK() {
		return credential.Minted{}, a.Refused(message(a))
	}
	var got installation
	if err := a.JSON(&got); err != nil {
		return credential.Minted{}, err
	}
	if !provider.Token(got.Token) {
		return credential.Minted{}, a.Garbage("no token, or one that can't be a token")
	}
	value := task.NewSecret(got.Token)
	if text := got.wider(repositories, permissions); text != "" {
		if err := m.Revoke(ctx, c, task.Secret{}, value); err != nil {
			return credential.Minted{}, err
		}
		return credential.Minted{}, a.Wide(text)
	}
	return credential.Minted{Value: value, Until: a.Until(got.Expires)}, nil
}

// signed asks with an App's token, and once more with one signed by the
// provider's clock where it refuses and its clock is another than ours.
func (m *Minter) signed(ctx context.Context, question func(time.Time) (provider.Question, error)) (provider.Answer, error) {
	var a provider.Answer
	ahead := time.Duration(0)
	for range 2 {
		q, err := question(m.ask.Now().Add(ahead))
		if err != nil {
			return a, task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q: its key can't sign", q.Credential), nil)
		}
		if a, err = m.ask.Ask(ctx, q); err != nil {
			return a, err
		}
		if ahead = a.Ahead(); a.Status != http.StatusUnauthorized || ahead.Abs() < slip {
			break
		}
	}
	return a, nil
}

// wider says what is wider than it was asked for; empty: nothing.
func (i installation) wider(repositories []string, permissions map[string]string) string {
	if i.Selection != "selected" || len(i.Repositories) == 0 {
		return "it is not narrowed to repositories"
	}
	for _, r := range i.Repositories {
		if !slices.ContainsFunc(repositories, func(want string) bool { return strings.EqualFold(want, r.FullName) }) {
			return "repository " + r.FullName
		}
	}
	level := map[string]int{"read": 1, "write": 2, "admin": 3}
	for name, got := range i.Permissions {
		if name == "metadata" && got == "read" {
			continue // every installation may read it
		}
		if level[got] == 0 || level[got] > level[permissions[name]] {
			return "permission " + name + ":" + got
		}
	}
	return ""
}

// Revoke implements credential.Minter. A token ends itself.
func (m *Minter) Revoke(ctx context.Context, c task.Credential, _, value task.Secret) error {
	a, err := m.ask.Ask(ctx, m.question(c, value, http.MethodDelete, "/installation/token"))
	if err != nil {
		return err
	}
	// 401 is told of one that is over.
	if !a.OK() && a.Status != http.StatusUnauthorized {
		return a.Refused(message(a))
	}
	return nil
}

func (m *Minter) question(c task.Credential, token task.Secret, method, path string) provider.Question {
	return provider.Question{
		Credential: c.Name, Method: method, URL: strings.TrimRight(c.Settings["api"], "/") + path,
		Header: http.Header{
			"Authorization": {"Bearer " + token.Reveal()}, "Accept": {"application/vnd.github+json"},
			"Content-Type": {"application/json"}, "X-Github-Api-Version": {apiVersion},
		},
		Secrets: []task.Secret{token}, Limited: limited,
	}
}

// limited knows GitHub's two ways to say that it is asked too often.
func limited(a provider.Answer) (bool, time.Duration) {
	if a.Status != http.StatusForbidden {
		return false, 0
	}
	if a.Header.Get("Retry-After") != "" {
		return true, 0
	}
	if a.Header.Get("X-Ratelimit-Remaining") != "0" {
		return false, 0
	}
	at, err := strconv.ParseInt(a.Header.Get("X-Ratelimit-Reset"), 10, 64)
	if err != nil {
		return true, time.Minute
	}
	return true, max(time.Second, a.Until(time.Unix(at, 0)).Sub(a.Asked))
}

// message is what GitHub says of a refusal.
func message(a provider.Answer) string {
	var said struct {
		Message string `json:"message"`
	}
	if a.JSON(&said) != nil {
		return ""
	}
	return said.Message
}

func repositoriesOf(c task.Credential) []string {
	var out []string
	for one := range strings.SplitSeq(c.Settings["repository"], ",") {
		if one = strings.TrimSpace(one); one != "" {
			out = append(out, one)
		}
	}
	return out
}

func permissionsOf(c task.Credential) map[string]string {
	out := map[string]string{}
	for one := range strings.SplitSeq(c.Settings["permissions"], ",") {
		if name, level, ok := strings.Cut(strings.TrimSpace(one), ":"); ok {
			out[name] = level
		}
	}
	return out
}

package provider_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/credential/githubapp"
	"github.com/cofferdam/cofferdam/internal/credential/oauth"
	"github.com/cofferdam/cofferdam/internal/credential/provider"
	"github.com/cofferdam/cofferdam/internal/credential/sts"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/minted"
	"github.com/cofferdam/cofferdam/internal/task"
)

// world is the vault over a real database and a real audit, with every minter
// and a provider that misbehaves.
type world struct {
	t      *testing.T
	store  *store.Store
	audit  *audit.Log
	leases *credential.Leases
	site   *site
	key    *rsa.PrivateKey
	log    *lines
	tries  int
	n      int
	skew   time.Duration
	via    http.RoundTripper
}

// lines is a log that may be written to at once.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, log: &lines{}}
	var err error
	if w.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	w.site = newSite(t, w.key)
	w.via = w.site.Client().Transport
	if w.store, err = store.Open(t.Context(), store.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	keys := filepath.Join(dir, "keys")
	key, err := audit.NewKey(keys)
	if err != nil {
		t.Fatal(err)
	}
	if w.audit, err = audit.Open(t.Context(), audit.Options{Store: w.store.Audit(), Key: key}); err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Now().Add(w.skew) }
	v, err := credential.Open(t.Context(), keys, w.store, now)
	if err != nil {
		t.Fatal(err)
	}
	p := provider.Provider{Via: way{w}, Now: now, Pause: func(ctx context.Context, _ time.Duration) error { w.tries++; return ctx.Err() }}
	w.leases = credential.NewLeases(v, w.store, w.audit, now, credential.Minting{
		MintRows: minted.New(w.store.Base()), Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Minters: map[string]credential.Minter{
			task.KindGitHubApp: githubapp.New(p), task.KindOAuth: oauth.NewClient(p), task.KindExchange: oauth.NewExchange(p, runs{}), task.KindAWSWeb: sts.New(p, runs{}),
		},
	})
	return w
}

type way struct{ w *world }

func (w way) RoundTrip(r *http.Request) (*http.Response, error) { return w.w.via.RoundTrip(r) }

// request asks for a credential of the kind at the site.
func (w *world) request(kind string) task.CredentialRequest {
	w.n++
	r := task.CredentialRequest{Name: fmt.Sprintf("key-%d", w.n), Owner: "alice", Kind: kind, Hosts: []string{"api.example.com"}}
	oauth := map[string]string{"token_url": w.site.URL + "/token", "revoke_url": w.site.URL + "/revoke", "client_id": "me", "scope": "read write"}
	switch kind {
	case task.KindGitHubApp:
		r.Value = pemOf(w.key)
		r.Settings = map[string]string{"app_id": "12345", "installation_id": "42", "repository": "acme/site,acme/docs", "permissions": "contents:write,pull_requests:read", "api": w.site.URL}
	case task.KindOAuth:
		r.Value, r.Settings = task.NewSecret(clientSecret), oauth
	case task.KindExchange:
		r.Value, r.Settings = task.NewSecret(clientSecret), maps.Clone(oauth)
		r.Settings["identity"], r.Settings["auth"] = "aud", "post"
	case task.KindAWSWeb:
		r.Settings = map[string]string{
			"role_arn": "arn:aws:iam::123456789012:role/deploy", "region": "eu-central-1", "services": "s3", "sts": w.site.URL + "/sts", "policy": `{"Version":"2012-10-17"}`,
		}
	}
	return r
}

// lend makes a credential and a lease of it.
func (w *world) lend(r task.CredentialRequest) task.Lent {
	w.t.Helper()
	if _, err := w.leases.Add(w.t.Context(), r, "admin"); err != nil {
		w.t.Fatal(err)
	}
	tk, _, err := w.store.CreateTask(w.t.Context(), task.Task{RequestedBy: "alice"}, "")
	if err != nil {
		w.t.Fatal(err)
	}
	lent, err := w.leases.Lend(w.t.Context(), task.LeaseUse{Task: tk.ID, Attempt: 1, Stage: task.Agent, Sandbox: "sb-" + tk.ID[2:], Who: "alice"},
		[]task.Rule{{ID: "agent.network.allow[0]", Host: "api.example.com", Ports: []uint16{443}, Credential: r.Name}})
	if err != nil {
		w.t.Fatal(err)
	}
	return lent[0]
}

func (w *world) value(l task.Lent) (task.Given, error) {
	return w.leases.Value(w.t.Context(), l.Sandbox, l.ID)
}

// account is everything that is told: the records, the log.
func (w *world) account() string {
	w.t.Helper()
	var b bytes.Buffer
	if err := w.audit.Export(w.t.Context(), &b); err != nil {
		w.t.Fatal(err)
	}
	return b.String() + w.log.String()
}

func kinds() []string {
	return []string{task.KindGitHubApp, task.KindOAuth, task.KindExchange, task.KindAWSWeb}
}

// says answers the mintings with a text.
func says(status int, kind, text string, header ...string) func(*site) {
	return func(s *site) {
		s.fault = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Content-Type", kind)
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
			return true
		}
	}
}

// oddly answers as it should with something changed.
func oddly(change func(*site)) func(*site) { return change }

// TestFaultsOfProviders is the table of faults and kinds: whatever a provider
// does, the reason is the right one, the key is told nowhere, and what was given
// is given back.
func TestFaultsOfProviders(t *testing.T) {
	const json, refused, faulty = "application/json", task.PolicyCredential, task.InfraCredential
	two := []string{task.KindGitHubApp, task.KindAWSWeb} // whose answers have a time of the provider's clock
	w := newWorld(t)
	for _, c := range []struct {
		name  string
		fault func(*site)
		want  task.Reason
		text  string // in the error
		tries int    // how often the provider was asked; 0: once
		kinds []string
	}{
		{"nothing", oddly(func(*site) {}), "", "", 1, nil},
		{"401", says(401, json, `{"message":"Bad credentials","error":"invalid_client"}`), refused, "refuses (401)", 1, nil},
		{"401, why", says(401, json, `{"message":"Bad credentials","error":"invalid_client","error_description":"no such client"}`), refused, "no such client", 1, []string{task.KindOAuth, task.KindExchange}},
		{"401, why, of GitHub", says(401, json, `{"message":"Bad credentials"}`), refused, "Bad credentials", 1, []string{task.KindGitHubApp}},
		{"403, why, of STS", says(403, "text/xml", `<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized</Message></Error></ErrorResponse>`), refused, "AccessDenied: Not authorized", 1, []string{task.KindAWSWeb}},
		{"STS can't fetch our keys", says(400, "text/xml", `<ErrorResponse><Error><Code>IDPCommunicationError</Code><Message>x</Message></Error></ErrorResponse>`), faulty, "public keys", 1, []string{task.KindAWSWeb}},
		{"STS is asked too often", says(400, "text/xml", `<ErrorResponse><Error><Code>Throttling</Code><Message>x</Message></Error></ErrorResponse>`), faulty, "too often", 3, []string{task.KindAWSWeb}},
		{"403", says(403, json, `{"message":"Resource not accessible"}`), refused, "refuses (403)", 1, nil},
		{"403 as a limit", says(403, json, `{"message":"secondary rate limit"}`, "Retry-After", "60"), faulty, "too often", 1, []string{task.KindGitHubApp}},
		{"404", says(404, json, `{"message":"Not Found"}`), refused, "refuses (404)", 1, nil},
		{"a page", says(403, "text/html", `<html>who are you</html>`), refused, "refuses (403)", 1, nil},
		{"429", says(429, json, `{}`), faulty, "too often", 3, nil},
		{"429, an hour", says(429, json, `{}`, "Retry-After", "3600"), faulty, "too often", 1, nil},
		{"500", says(500, "text/plain", `down`), faulty, "answered 500", 3, nil},
		{"503 once", func(s *site) {
			s.fault = func(w http.ResponseWriter, _ *http.Request, n int) bool {
				if n > 1 {
					return false
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(503)
				return true
			}
		}, "", "", 2, nil},
		{"silence", func(s *site) {
			s.fault = func(http.ResponseWriter, *http.Request, int) bool { panic(http.ErrAbortHandler) }
		}, faulty, "did not answer", 3, nil},
		{"a redirect", says(302, json, ``, "Location", "https://elsewhere.example/"), faulty, "answered 302", 1, nil},
		{"an empty answer", says(200, json, ``), faulty, "no use", 1, nil},
		{"garbage", says(200, json, "\x00\xff{{{"), faulty, "no use", 1, nil},
		{"a cut answer", says(200, json, `{"token":"`+tokenBegin), faulty, "no use", 1, nil},
		{"a list", says(200, json, `[]`), faulty, "no use", 1, nil},
		{"HTML", says(200, "text/html", `<html><body>Sign in</body></html>`), faulty, "no use", 1, nil},
		{"JSON and more", says(200, json, `{"token":"aaaaaaaaaaaa","access_token":"aaaaaaaaaaaa"}{}`), faulty, "no use", 1, nil},
		{"an entity", says(200, "text/xml", `<!DOCTYPE x [<!ENTITY e "aaaaaaaaaaaaaaaaaaaa">]><AssumeRoleWithWebIdentityResponse>&e;</AssumeRoleWithWebIdentityResponse>`), faulty, "no use", 1, []string{task.KindAWSWeb}},
		{"a flood", says(200, json, `{"x":"`+strings.Repeat("a", 1<<20)+`"}`), faulty, "256 KiB", 1, nil},
		{"no token", says(200, json, `{"token_type":"bearer","expires_in":3600}`), faulty, "no use", 1, nil},
		{"a line break", oddly(func(s *site) { s.token = tokenBegin + "a\r\nHost: evil" }), faulty, "no use", 1, nil},
		{"an empty token", oddly(func(s *site) { s.token = " " }), faulty, "no use", 1, nil},
		{"over already", oddly(func(s *site) { s.life = -time.Hour }), faulty, "", 1, nil},
		{"over at once", oddly(func(s *site) { s.life = 2 * time.Second }), faulty, "over at once", 1, nil},
		{"for a hundred years", oddly(func(s *site) { s.life = 876000 * time.Hour }), faulty, "absurd", 1, nil},
		{"no Bearer token", says(200, json, `{"access_token":"aaaaaaaaaaaa","token_type":"mac","expires_in":3600}`), faulty, "no Bearer", 1, []string{task.KindOAuth, task.KindExchange}},
		{"no lifetime", says(200, json, `{"access_token":"aaaaaaaaaaaa","token_type":"bearer"}`), faulty, "set lifetime", 1, []string{task.KindOAuth, task.KindExchange}},
		{"a lifetime in words", says(200, json, `{"access_token":"aaaaaaaaaaaa","token_type":"bearer","expires_in":"soon"}`), faulty, "no use", 1, []string{task.KindOAuth, task.KindExchange}},
		{"more scopes", oddly(func(s *site) { s.wide = "admin" }), refused, "scope admin", 1, []string{task.KindOAuth, task.KindExchange}},
		{"all repositories", oddly(func(s *site) { s.wide = "all" }), refused, "not narrowed", 1, []string{task.KindGitHubApp}},
		{"another repository", oddly(func(s *site) { s.wide = "more" }), refused, "acme/secrets", 1, []string{task.KindGitHubApp}},
		{"a higher permission", oddly(func(s *site) { s.wide = "level" }), refused, "contents:admin", 1, []string{task.KindGitHubApp}},
		{"another permission", oddly(func(s *site) { s.wide = "name" }), refused, "administration:read", 1, []string{task.KindGitHubApp}},
		{"its clock is behind", oddly(func(s *site) { s.ahead = -5 * time.Minute }), "", "", 0, two},
		{"its clock is ahead", oddly(func(s *site) { s.ahead = 5 * time.Minute }), "", "", 0, two},
		{"what was sent, again", func(s *site) {
			s.fault = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				_ = r.ParseForm()
				said := fmt.Sprintf("you said %s %v", r.Header.Get("Authorization"), r.Form)
				if strings.HasPrefix(r.URL.Path, "/token") {
					said += clientSecret
				}
				refuse(w, 400, map[string]string{"message": said, "error": said, "error_description": said})
				return true
			}
		}, refused, "refuses (400)", 1, nil},
	} {
		of := c.kinds
		if of == nil {
			of = kinds()
		}
		for _, kind := range of {
			if strings.Contains(c.name, "JSON") && kind == task.KindAWSWeb {
				continue
			}
			w.site.do(func(s *site) {
				s.fault, s.asked, s.live, s.ahead, s.token, s.life, s.wide = nil, 0, map[string]bool{}, 0, "", time.Hour, ""
				c.fault(s)
			})
			l := w.lend(w.request(kind))
			given, err := w.value(l)
			if task.ReasonOf(err) != c.want || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s, %s: %v, want %s and %q", c.name, kind, err, c.want, c.text)
			}
			if (err == nil) != (given.Value.Reveal() != "") || given.Once || err == nil && given.Keep != credential.Life {
				t.Errorf("%s, %s: given %+v", c.name, kind, given)
			}
			if w.site.asked != c.tries && c.tries > 0 {
				t.Errorf("%s, %s: asked %d times", c.name, kind, w.site.asked)
			}
			if err != nil {
				// A failure stands for a while: the provider is left alone.
				before := w.site.asked
				if _, again := w.value(l); task.ReasonOf(again) != c.want || w.site.asked != before {
					t.Errorf("%s, %s: then %v, asked %d times more", c.name, kind, again, w.site.asked-before)
				}
				if f, ok := errors.AsType[*task.Failure](err); !ok || !inside(f.Inside, w.site.URL) {
					t.Errorf("%s, %s: inside is told %q", c.name, kind, f.Inside)
				}
				if strings.Contains(err.Error(), "REALVALUE") {
					t.Errorf("%s, %s: the error has the key: %v", c.name, kind, err)
				}
			}
			if err := w.leases.End(t.Context(), l.Task, "", task.EndedTask); err != nil {
				t.Fatal(err)
			}
			if err := w.leases.Settle(t.Context(), l.Task); err != nil {
				t.Error(err)
			}
			if kind != task.KindAWSWeb && c.name != "a line break" && c.name != "an empty token" && len(w.site.live) > 0 {
				t.Errorf("%s, %s: %d tokens are left", c.name, kind, len(w.site.live))
			}
		}
	}
	if len(w.site.judged) > 0 {
		t.Errorf("the site: %v", slices.Compact(w.site.judged))
	}
	if text := w.account(); strings.Contains(text, "REALVALUE") {
		i := strings.Index(text, "REALVALUE")
		t.Errorf("the account or the log has a value: …%s…", text[max(0, i-200):i+40])
	}
}

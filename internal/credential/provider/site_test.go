package provider_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/cofferdam/cofferdam/internal/task"
)

// The secrets of the tests. Nothing may tell them.
const (
	clientSecret = "REALVALUE+client secret/%&="
	runToken     = "eyREALVALUErun.token.of"
	tokenBegin   = "REALVALUE-minted-"
)

// site is a provider: it speaks the documented API of a forge, an authorization
// server and STS, and misbehaves on demand.
type site struct {
	*httptest.Server
	t   *testing.T
	key *rsa.PrivateKey // the App's

	mu     sync.Mutex
	fault  func(w http.ResponseWriter, r *http.Request, n int) bool // true: it has answered
	asked  int
	live   map[string]bool // tokens that were given and not ended
	given  int
	ahead  time.Duration // its clock, before ours
	token  string        // given instead of a new one
	life   time.Duration
	wide   string // what it gives beside what was asked for
	stuck  int    // how often it does not end a token
	judged []string
}

func newSite(t *testing.T, key *rsa.PrivateKey) *site {
	t.Helper()
	s := &site{t: t, key: key, live: map[string]bool{}, life: time.Hour}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /app/installations/42/access_tokens", s.minting(s.installation))
	mux.HandleFunc("DELETE /installation/token", s.ending(func(r *http.Request) string { return bearer(r) }, 204, 401))
	mux.HandleFunc("POST /token", s.minting(s.oauth))
	mux.HandleFunc("POST /revoke", s.ending(func(r *http.Request) string {
		if id, secret, ok := s.client(r); !ok {
			s.wrong("revocation by %q, %q", id, secret)
		}
		return r.FormValue("token")
	}, 200, 200))
	mux.HandleFunc("POST /sts", s.minting(s.sts))
	s.Server = httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// do changes the site.
func (s *site) do(change func(*site)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *site) wrong(format string, args ...any) {
	s.judged = append(s.judged, fmt.Sprintf(format, args...))
}

func (s *site) now() time.Time { return time.Now().Add(s.ahead) }

// minting answers what mints, or misbehaves.
func (s *site) minting(give func(http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked++
		n, fault := s.asked, s.fault
		w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
		s.mu.Unlock()
		if fault != nil && fault(w, r, n) {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		give(w, r)
	}
}

func (s *site) ending(token func(*http.Request) string, done, over int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stuck > 0 {
			s.stuck--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		of := token(r)
		if !s.live[of] {
			w.WriteHeader(over)
			return
		}
		delete(s.live, of)
		w.WriteHeader(done)
	}
}

func (s *site) give() string {
	s.given++
	token := s.token
	if token == "" {
		token = fmt.Sprintf("%s%d-%s", tokenBegin, s.given, rand.Text())
	}
	s.live[token] = true
	return token
}

func bearer(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func refuse(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// installation speaks as GitHub. The App's token is judged by go-jose.
func (s *site) installation(w http.ResponseWriter, r *http.Request) {
	var claims jwt.Claims
	parsed, err := jwt.ParseSigned(bearer(r), []jose.SignatureAlgorithm{jose.RS256})
	if err == nil {
		err = parsed.Claims(s.key.Public(), &claims)
	}
	now := s.now()
	switch {
	case err != nil || claims.Issuer != "12345":
		s.wrong("App's token: %v", err)
		refuse(w, 401, map[string]string{"message": "A JSON web token could not be decoded"})
		return
	case claims.IssuedAt.Time().After(now), claims.Expiry.Time().Before(now), claims.Expiry.Time().After(now.Add(10 * time.Minute)):
		refuse(w, 401, map[string]string{"message": "'Expiration time' claim ('exp') is too far in the future"})
		return
	}
	var asked struct {
		Repositories []string          `json:"repositories"`
		Permissions  map[string]string `json:"permissions"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Repositories) == 0 || r.Header.Get("X-Github-Api-Version") == "" {
		s.wrong("asked %+v, %v", asked, err)
	}
	selection, repositories := "selected", []map[string]string{}
	for _, name := range asked.Repositories {
		repositories = append(repositories, map[string]string{"full_name": "Acme/" + name})
	}
	asked.Permissions["metadata"] = "read"
	switch s.wide {
	case "all":
		selection = "all"
	case "more":
		repositories = append(repositories, map[string]string{"full_name": "acme/secrets"})
	case "level":
		asked.Permissions["contents"] = "admin"
	case "name":
		asked.Permissions["administration"] = "read"
	}
	refuse(w, 201, map[string]any{
		"token": s.give(), "expires_at": now.Add(s.life).UTC().Format(time.RFC3339), "permissions": asked.Permissions,
		"repository_selection": selection, "repositories": repositories,
	})
}

func (s *site) client(r *http.Request) (id, secret string, ok bool) {
	if id, secret, ok = r.BasicAuth(); !ok {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
		return id, secret, id == "me" && secret == clientSecret
	}
	// As a form's (RFC 6749 §2.3.1).
	return id, secret, id == "me" && secret == "REALVALUE%2Bclient+secret%2F%25%26%3D"
}

// oauth speaks RFC 6749 §4.4 and RFC 8693.
func (s *site) oauth(w http.ResponseWriter, r *http.Request) {
	id, secret, ok := s.client(r)
	exchange := r.FormValue("grant_type") == "urn:ietf:params:oauth:grant-type:token-exchange"
	switch {
	case !ok:
		s.wrong("client %q, %q", id, secret)
		refuse(w, 401, map[string]string{"error": "invalid_client"})
		return
	case exchange && (r.FormValue("subject_token") != runToken+"-aud" || r.FormValue("subject_token_type") != "urn:ietf:params:oauth:token-type:jwt"):
		s.wrong("exchange of %v", r.Form)
	case !exchange && r.FormValue("grant_type") != "client_credentials":
		s.wrong("grant %v", r.Form)
	}
	refuse(w, 200, map[string]any{
		"access_token": s.give(), "token_type": "bearer", "expires_in": int(s.life / time.Second), "scope": strings.TrimSpace(r.FormValue("scope") + " " + s.wide),
		"issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
	})
}

// sts speaks as AWS's Security Token Service.
func (s *site) sts(w http.ResponseWriter, r *http.Request) {
	for name, want := range map[string]string{
		"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": "arn:aws:iam::123456789012:role/deploy",
		"WebIdentityToken": runToken + "-sts.amazonaws.com", "DurationSeconds": "900", "Policy": `{"Version":"2012-10-17"}`,
	} {
		if r.FormValue(name) != want {
			s.wrong("%s: %q", name, r.FormValue(name))
		}
	}
	w.Header().Set("Content-Type", "text/xml")
	fmt.Fprintf(w, `<?xml version="1.0"?>
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<SubjectFromWebIdentityToken>x</SubjectFromWebIdentityToken><Credentials><AccessKeyId>ASIAEXAMPLEEXAMPLE42</AccessKeyId>
<SecretAccessKey>REALVALUE/secret+access</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, s.give(), s.now().Add(s.life).UTC().Format(time.RFC3339))
}

// runs makes tokens that say who a run is.
type runs struct{}

func (runs) Token(_ context.Context, l task.Lent, audience string) (task.Secret, error) {
	if !l.Active() || l.Task == "" {
		return task.Secret{}, task.Fail(task.PolicyCredential, "this lease has ended", nil)
	}
	return task.NewSecret(runToken + "-" + audience), nil
}

func pemOf(k *rsa.PrivateKey) task.Secret {
	return task.NewSecret(string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)})))
}

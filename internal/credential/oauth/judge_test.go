package oauth

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/credential/provider"
	"github.com/cofferdam/cofferdam/internal/task"
)

// kept is the storage of somebody else's server. Whoever it knows may exchange.
type kept struct{ *storage.Storage }

func (kept) ValidateTokenExchangeRequest(_ context.Context, r op.TokenExchangeRequest) error {
	if r.GetRequestedTokenType() == "" {
		r.SetRequestedTokenType(oidc.AccessTokenType)
	}
	r.SetCurrentScopes(r.GetScopes())
	return nil
}

// judge is an authorization server that others wrote.
func judge(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	t.Cleanup(server.Close)
	// The same client for its own grant, for exchanging and for revoking.
	clients := map[string]*storage.Client{"sid1": storage.WebClient("sid1", "verysecret", "https://client.example/")}
	as, err := op.NewProvider(&op.Config{CryptoKey: [32]byte{1}, CryptoKeyId: "key", AuthMethodPost: true}, kept{storage.NewStorageWithClients(storage.NewUserStore(server.URL), clients)},
		op.StaticIssuer(server.URL), op.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = as
	return server
}

type oneRun struct{ token task.Secret }

func (r oneRun) Token(context.Context, task.Lent, string) (task.Secret, error) { return r.token, nil }

// SetIntrospectionFromToken knows every token that is there: those that are
// exchanged here have no user behind them, which the storage asks for.
func (k kept) SetIntrospectionFromToken(ctx context.Context, to *oidc.IntrospectionResponse, id, subject, client string) error {
	err := k.Storage.SetIntrospectionFromToken(ctx, to, id, subject, client)
	if err != nil && strings.Contains(err.Error(), "user not found") {
		return nil
	}
	return err
}

// known says whether the server still takes a token.
func known(t *testing.T, server *httptest.Server, token task.Secret) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/oauth/introspect", strings.NewReader(url.Values{"token": {token.Reveal()}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("sid1", "verysecret")
	res, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("introspection: %d, %v: %s", res.StatusCode, err, text)
	}
	return strings.Contains(string(text), `"active":true`)
}

// TestAgainstAnotherServer speaks with a server of others: both grants, both
// ways to show a secret, revoking, and refusals.
func TestAgainstAnotherServer(t *testing.T) {
	server := judge(t)
	p := provider.Provider{Via: server.Client().Transport, Now: time.Now}
	c := func(change func(map[string]string)) task.Credential {
		s := map[string]string{"token_url": server.URL + "/oauth/token", "revoke_url": server.URL + "/revoke", "client_id": "sid1", "scope": "openid"}
		if change != nil {
			change(s)
		}
		return task.Credential{Name: "key", Settings: s}
	}
	secret := task.NewSecret("verysecret")
	var first task.Secret
	for _, auth := range []string{"basic", "post"} {
		of := c(func(s map[string]string) { s["auth"] = auth })
		made, err := NewClient(p).Mint(t.Context(), of, secret, task.Lent{})
		if err != nil {
			t.Fatalf("%s: %v", auth, err)
		}
		if left := time.Until(made.Until); left < time.Minute || left > 24*time.Hour {
			t.Errorf("%s: lasts %s", auth, left)
		}
		first = made.Value
	}
	of := c(func(s map[string]string) { s["subject_token_type"], s["audience"] = typeAccess, "sid1" })
	made, err := NewExchange(p, oneRun{first}).Mint(t.Context(), of, secret, task.Lent{})
	if err != nil {
		t.Fatalf("exchange: %v", err)
	}
	if made.Value.Reveal() == first.Reveal() || !known(t, server, made.Value) {
		t.Error("exchange: no other token, or one that is not known")
	}
	for range 2 { // the second time it is over already
		if err := NewExchange(p, oneRun{}).Revoke(t.Context(), of, secret, made.Value); err != nil {
			t.Errorf("revoke: %v", err)
		}
		if known(t, server, made.Value) {
			t.Error("the token lives on")
		}
	}
	if err := NewClient(p).Revoke(t.Context(), c(func(s map[string]string) { delete(s, "revoke_url") }), secret, first); err != credential.ErrLasts { //nolint:errorlint // it is itself
		t.Errorf("without a way: %v", err)
	}
	_, err = NewClient(p).Mint(t.Context(), c(nil), task.NewSecret("another secret"), task.Lent{})
	if err == nil || !strings.HasPrefix(err.Error(), string(task.PolicyCredential)) || strings.Contains(err.Error(), "another secret") {
		t.Errorf("a wrong secret: %v", err)
	}
	_, err = NewExchange(p, oneRun{task.NewSecret("not a token of it")}).Mint(t.Context(), of, secret, task.Lent{})
	if err == nil || !strings.HasPrefix(err.Error(), string(task.PolicyCredential)) || strings.Contains(err.Error(), "not a token of it") {
		t.Errorf("a wrong token of the run: %v", err)
	}
}

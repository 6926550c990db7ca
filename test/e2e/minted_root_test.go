//go:build root

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// The client that the storage of somebody else's server knows, with its secret.
const robot, robotSecret = "sid1", "verysecret"

// kept is the storage of somebody else's server, which forgets whose the tokens
// of a client's own account are.
type kept struct{ *storage.Storage }

func (k kept) RevokeToken(ctx context.Context, token, user, client string) *oidc.Error {
	if k.Storage.RevokeToken(ctx, token, user, client) == nil {
		return nil
	}
	return k.Storage.RevokeToken(ctx, token, user, "")
}

func (k kept) SetIntrospectionFromToken(ctx context.Context, to *oidc.IntrospectionResponse, id, subject, client string) error {
	err := k.Storage.SetIntrospectionFromToken(ctx, to, id, subject, client)
	if err != nil && (strings.Contains(err.Error(), "user not found") || strings.Contains(err.Error(), "not valid for this client")) {
		return nil // it is there, and lasts
	}
	return err
}

// maker is an authorization server that others wrote, and an interface that asks
// it about the tokens that come.
type maker struct {
	login, api int // ports
	server     http.Handler

	mu      sync.Mutex
	issued  []string
	strange []string      // what the interface was sent that was no token
	served  chan struct{} // once for each request with a token, but for /go
	going   atomic.Bool   // what /go tells
}

func serveMaker(t *testing.T) (*maker, *testenv.Env) {
	t.Helper()
	m := &maker{served: make(chan struct{}, 100)}
	far := egresstest.NewFar(t)
	login, front := listen(t), listen(t)
	m.login, m.api = login.Addr().(*net.TCPAddr).Port, front.Addr().(*net.TCPAddr).Port
	issuer := fmt.Sprintf("https://login.test:%d", m.login)
	var err error
	m.server, err = op.NewProvider(&op.Config{CryptoKey: [32]byte{1}, CryptoKeyId: "key", AuthMethodPost: true}, kept{storage.NewStorageWithClients(storage.NewUserStore(issuer),
		map[string]*storage.Client{robot: storage.WebClient(robot, robotSecret, "https://client.example/")})},
		op.StaticIssuer(issuer), op.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	egresstest.Serve(t, login, far.Certificate(t, "login.test", time.Now().Add(time.Hour)), true, http.HandlerFunc(m.watch))
	egresstest.Serve(t, front, far.Certificate(t, "api.test", time.Now().Add(time.Hour)), true, http.HandlerFunc(m.serve))
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, far.PEM, 0o644); err != nil {
		t.Fatal(err)
	}
	ns := testenv.Names(t, map[string]string{"login.test.": "127.0.0.1", "api.test.": "127.0.0.1"})
	return m, testenv.Start(t, testenv.Config{
		DNS: ns.Addr, Flags: []string{"--roots", roots},
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: login.test, ports: [%d]}\n  - {host: api.test, ports: [%d]}\n", m.login, m.api),
	})
}

// watch remembers the tokens that the server gives.
func (m *maker) watch(w http.ResponseWriter, r *http.Request) {
	kept := httptest.NewRecorder()
	m.server.ServeHTTP(kept, r)
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if json.Unmarshal(kept.Body.Bytes(), &answer) == nil && answer.AccessToken != "" {
		m.mu.Lock()
		m.issued = append(m.issued, answer.AccessToken)
		m.mu.Unlock()
	}
	for name, values := range kept.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(kept.Code)
	_, _ = w.Write(kept.Body.Bytes())
}

// lives says whether the server still takes a token.
func (m *maker) lives(token string) bool {
	r := httptest.NewRequest(http.MethodPost, fmt.Sprintf("https://login.test:%d/oauth/introspect", m.login), strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(robot, robotSecret)
	w := httptest.NewRecorder()
	m.server.ServeHTTP(w, r)
	return w.Code == http.StatusOK && strings.Contains(w.Body.String(), `"active":true`)
}

// serve is the interface: it answers who comes with a token that lives.
func (m *maker) serve(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !m.lives(token) {
		m.mu.Lock()
		m.strange = append(m.strange, r.Method+" "+r.URL.Path+" "+token)
		m.mu.Unlock()
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.URL.Path == "/go" {
		fmt.Fprintln(w, m.going.Load())
		return
	}
	m.served <- struct{}{}
	_, _ = io.WriteString(w, "for you\n")
}

func (m *maker) tokens() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.issued...)
}

// A token is made for the stage by a server of others, works outside, is never
// inside, and is over for its maker when the stage has ended: also when the
// control plane was killed while it was lent.
func TestTokensAreMintedForAStage(t *testing.T) {
	m, e := serveMaker(t)
	cmd := e.Command("credential", "add", "crm", "--kind", "oauth", "--host", "api.test", "--port", strconv.Itoa(m.api), "--env", "CRM_TOKEN",
		"--set", fmt.Sprintf("token_url=https://login.test:%d/oauth/token", m.login), "--set", fmt.Sprintf("revoke_url=https://login.test:%d/revoke", m.login),
		"--set", "client_id="+robot, "--set", "scope=openid")
	cmd.Stdin = strings.NewReader(robotSecret + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
	work := func(more string) api.TaskRequest {
		return api.TaskRequest{
			Repo: bundle(t, e, small(t)),
			Agent: sh(fmt.Sprintf(`ask() { curl -sS -H "Authorization: Bearer $CRM_TOKEN" "https://api.test:%d/$1"; }
ask one; %s; env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'; echo done > done.txt`, m.api, more)),
			Policy: fmt.Sprintf("version: 1\nagent:\n  network:\n    allow:\n      - {host: api.test, ports: [%d], credential: crm}\n", m.api),
		}
	}
	over := func(got api.Task) {
		t.Helper()
		must(t, e, got, api.Succeeded, "")
		testenv.Until(t, time.Minute, "every token to be over for its maker", func() bool {
			for _, token := range m.tokens() {
				if m.lives(token) {
					return false
				}
			}
			return true
		})
		said := log(t, e, got.ID, "agent")
		for _, token := range append(m.tokens(), robotSecret) {
			if strings.Contains(said, token) {
				t.Errorf("the agent's log has %s", token)
			}
			if token != robotSecret { // a word that other files may have
				valueNowhere(t, e.Data, token)
			}
		}
	}

	got := run(t, e, work("true"))
	over(got)
	if said := log(t, e, got.ID, "agent"); !strings.HasPrefix(said, "for you\n") {
		t.Errorf("the agent's log:\n%s", tail(said))
	}
	export, err := e.CLI("audit", "export")
	if err != nil || !strings.Contains(export, "credential.minted") || !strings.Contains(export, "credential.unminted") || !strings.Contains(export, "revoked") {
		t.Errorf("the account does not tell what became of the token: %v", err)
	}
	before := len(m.tokens())
	if before == 0 {
		t.Error("no token was made")
	}

	// The same with a kill between two uses.
	for len(m.served) > 0 {
		<-m.served
	}
	made := submit(t, e, work("until ask go | grep -q true; do sleep 0.1; done; ask two"))
	select {
	case <-m.served:
	case <-time.After(patience):
		t.Fatal("the second task never asked")
	}
	e.Reborn("cofferdamd", e.Kill("cofferdamd"))
	m.going.Store(true)
	got = e.WaitTask(made.ID, patience)
	over(got)
	if said := log(t, e, got.ID, "agent"); strings.Count(said, "for you\n") != 2 {
		t.Errorf("the agent's log after a kill:\n%s", tail(said))
	}
	if len(m.tokens()) == before {
		t.Error("no token was made for the second task")
	}
	if len(m.strange) > 0 {
		t.Errorf("the interface was sent %q", m.strange)
	}
}

//go:build root

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// party is a relying party: it knows the issuer by its name, where the exported
// documents are served, and has an API that takes the run's token as a bearer.
type party struct {
	port   int
	client *http.Client

	mu      sync.Mutex
	bearers []string
}

// serveParty serves issuer.test from a folder, and api.test, over TLS, and starts
// a platform that trusts and reaches them.
func serveParty(t *testing.T, published string) (*party, *testenv.Env) {
	t.Helper()
	p := &party{}
	far := egresstest.NewFar(t)
	listen := func(name string, h http.Handler) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		egresstest.Serve(t, l, far.Certificate(t, name, time.Now().Add(time.Hour)), true, h)
		return l.Addr().String()
	}
	issuer := listen("issuer.test", http.FileServerFS(os.DirFS(published)))
	target := listen("api.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.bearers = append(p.bearers, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		fmt.Fprintln(w, "deployed")
	}))
	p.port = int(testPort(t, target))
	p.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, issuer)
		},
		TLSClientConfig: &tls.Config{RootCAs: far.Roots}, DisableKeepAlives: true,
	}}
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, far.PEM, 0o644); err != nil {
		t.Fatal(err)
	}
	zone := map[string]string{"api.test.": "127.0.0.1"}
	found, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip4", "registry.npmjs.org")
	if err != nil || len(found) == 0 {
		t.Fatalf("registry.npmjs.org: %v", err)
	}
	zone["registry.npmjs.org."] = found[0].Unmap().String()
	return p, testenv.Start(t, testenv.Config{
		DNS: testenv.Names(t, zone).Addr, Flags: []string{"--roots", roots, "--issuer", "https://issuer.test"},
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: api.test, ports: [%d]}\nceiling:\n  identity:\n    - {audience: sts.amazonaws.com, visible: true}\n    - audience: https://vault.test\n", p.port),
	})
}

func testPort(t *testing.T, address string) uint16 {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(a.Port)
}

// verify has go-oidc judge a token by what is published, and gives its claims.
func (p *party) verify(t *testing.T, token, audience string) map[string]any {
	t.Helper()
	ctx := oidc.ClientContext(t.Context(), p.client)
	provider, err := oidc.NewProvider(ctx, "https://issuer.test")
	if err != nil {
		t.Fatal(err)
	}
	id, err := provider.Verifier(&oidc.Config{ClientID: audience}).Verify(ctx, token)
	if err != nil {
		t.Fatalf("a token for %s: %v", audience, err)
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// A stage asks for its run's token as a stock toolkit does and as curl does; a
// relying party that reads the exported documents takes it. What is not visible
// is not seen, and yet carried where a rule lends it.
func TestRunAsksForItsToken(t *testing.T) {
	published := t.TempDir()
	p, e := serveParty(t, published)
	export := func() {
		t.Helper()
		if out, err := e.CLI("identity", "export", published); err != nil {
			t.Fatalf("export: %v\n%s", err, out)
		}
	}
	export()
	cmd := e.Command("credential", "add", "deploy", "--kind", "oidc", "--set", "audience=https://api.test", "--host", "api.test", "--port", fmt.Sprint(p.port), "--shared")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
	task := submit(t, e, api.TaskRequest{
		Repo: bundle(t, e, small(t)), Setup: "env | grep ACTIONS_ID && exit 1\ncd /tmp && npm install --no-audit --no-fund @actions/core >&2",
		Agent: sh(strings.ReplaceAll(`set -u
ask() { curl -s -m 60 -H "Authorization: bearer $ACTIONS_ID_TOKEN_REQUEST_TOKEN" "$ACTIONS_ID_TOKEN_REQUEST_URL$1"; echo; }
turned() { tr 'A-Za-z' 'N-ZA-Mn-za-m'; }
echo "CURL $(ask '&audience=sts.amazonaws.com')" | tee /tmp/seen | turned
cat /tmp/seen
cat > /tmp/ask.mjs <<'END'
import * as core from '@actions/core'
console.log('STOCK ' + JSON.stringify({value: await core.getIDToken('sts.amazonaws.com')}))
END
node /tmp/ask.mjs | turned
echo "HIDDEN $(ask '&audience=https://vault.test')"
echo "UNKNOWN $(ask '&audience=other')"
echo "NONE $(ask '')"
echo "ALTERED $(curl -s -m 60 -H "Authorization: bearer x$ACTIONS_ID_TOKEN_REQUEST_TOKEN" "$ACTIONS_ID_TOKEN_REQUEST_URL&audience=sts.amazonaws.com")"
curl -s -m 60 https://api.test:PORT/v1; curl -s -m 60 https://api.test:PORT/v1
`, "PORT", fmt.Sprint(p.port))),
		Policy: fmt.Sprintf(`version: 1
setup:
  network:
    allow:
      - {host: registry.npmjs.org, protocol: http, methods: [GET, HEAD]}
agent:
  identity:
    - {audience: sts.amazonaws.com, visible: true}
    - audience: https://vault.test
  network:
    allow:
      - {host: api.test, ports: [%d], paths: [/v1], credential: deploy}
`, p.port),
	})
	got := e.WaitTask(task.ID, patience)
	must(t, e, got, api.Succeeded, "")
	text := log(t, e, task.ID, "agent")
	tokens := map[string]string{}
	// What was handed over is masked in the log, so the test has it told turned
	// round.
	for _, m := range regexp.MustCompile(`(CURL|STOCK) \{"value":"([^"*]+)"\}`).FindAllStringSubmatch(strings.Map(turned, text), -1) {
		tokens[m[1]] = m[2]
	}
	if len(tokens) != 2 || tokens["CURL"] == tokens["STOCK"] {
		t.Fatalf("tokens %d in\n%s", len(tokens), text)
	}
	for who, token := range tokens {
		if strings.Contains(text, token) || !strings.Contains(text, `CURL {"value":"***`) {
			t.Errorf("%s: the log has the token as it is", who)
		}
		c := p.verify(t, token, "sts.amazonaws.com")
		if c["sub"] != "project:-:repository:bundle:ref:HEAD:stage:agent" || c["task"] != task.ID || c["commit"] != got.Commit || c["worker"] != got.Worker || c["worker"] == "" || c["policy_digest"] != got.PolicyDigest || c["agent"] != "command" {
			t.Errorf("%s: %v", who, c)
		}
	}
	for _, want := range []string{
		`HIDDEN {"title":"Forbidden"`, `visible: true`, `UNKNOWN {"title":"Forbidden"`, `under agent.identity`,
		`NONE {"title":"Bad Request"`, `ALTERED {"title":"Forbidden"`, `not the one of this stage`, "deployed\ndeployed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	p.mu.Lock()
	bearers := p.bearers
	p.mu.Unlock()
	if len(bearers) != 2 || bearers[0] == bearers[1] {
		t.Fatalf("carried %d tokens", len(bearers))
	}
	for _, b := range bearers {
		if strings.Contains(text, b) {
			t.Error("a token that is not visible was seen inside")
		}
		p.verify(t, b, "https://api.test")
	}
	handedOver(t, e, task.ID, tokens)

	// A key that is rotated takes nothing from what was given.
	if out, err := e.CLI("identity", "rotate"); err != nil {
		t.Fatalf("rotate: %v\n%s", err, out)
	}
	export()
	p.verify(t, tokens["CURL"], "sts.amazonaws.com")
}

// turned undoes tr 'A-Za-z' 'N-ZA-Mn-za-m'.
func turned(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z':
		return 'a' + (r-'a'+13)%26
	case r >= 'A' && r <= 'Z':
		return 'A' + (r-'A'+13)%26
	}
	return r
}

// handedOver looks at the receipt: it lists what was seen, and holds none of it.
func handedOver(t *testing.T, e *testenv.Env, id string, tokens map[string]string) {
	t.Helper()
	text, err := e.CLI("task", "receipt", id)
	if err != nil {
		t.Fatal(err)
	}
	var receipt struct {
		Body struct {
			HandedOver []struct {
				Audience, Stage, Subject string
				Tokens                   int
			} `json:"handedOver"`
		} `json:"body"`
	}
	if err := json.Unmarshal([]byte(text), &receipt); err != nil {
		t.Fatal(err)
	}
	list := receipt.Body.HandedOver
	if len(list) != 1 || list[0].Audience != "sts.amazonaws.com" || list[0].Stage != "agent" || list[0].Tokens != 2 {
		t.Errorf("handed over %+v", list)
	}
	for _, token := range tokens {
		if bytes.Contains([]byte(text), []byte(token)) {
			t.Error("the receipt holds a token")
		}
	}
	if n := strings.Count(text, `"kind":"identity.minted"`); n != 4 {
		t.Errorf("%d tokens are on record", n)
	}
}

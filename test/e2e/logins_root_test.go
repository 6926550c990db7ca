//go:build root

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
)

// secretPart is in every token of a login. mend looks for it inside.
const secretPart = "cfd-real-key-0123456789"

// vendor renews logins: it takes each refresh token once.
type vendor struct {
	mu      sync.Mutex
	refresh map[string]bool
	access  []string
	refused int
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Refresh string `json:"refresh_token"`
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if json.NewDecoder(r.Body).Decode(&q) != nil || !v.refresh[q.Refresh] {
		v.refused++
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	delete(v.refresh, q.Refresh)
	n := len(v.access)
	next, access := fmt.Sprintf("rt-%s-%d", secretPart, n+1), accessToken(n+1, time.Now().Add(time.Hour))
	v.refresh[next], v.access = true, append(v.access, access)
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": access, "refresh_token": next, "expires_in": 3600, "token_type": "Bearer"})
}

// accessToken is one that says itself when it is over.
func accessToken(n int, until time.Time) string {
	return "h." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d,"n":%d}`, until.Unix(), n)) + "." + secretPart
}

// TestLogins runs the real Claude Code and the real Codex with logins of
// subscriptions: one in the tool's own folder, one of our own. The model's server
// sees access tokens that were renewed, and the sandbox sees none of anything.
func TestLogins(t *testing.T) {
	s := startScripted(t, modeltest.Options{Steps: mend()})
	v := &vendor{refresh: map[string]bool{"rt-" + secretPart + "-c": true, "rt-" + secretPart + "-x": true}}
	s.login.Store(v)
	for _, name := range []string{"claude", "codex"} {
		if out, err := s.env.CLI("agent", "install", name); err != nil {
			t.Fatalf("agent install %s: %v\n%s", name, err, out)
		}
	}
	dir := s.home(t)
	file := filepath.Join(dir, ".credentials.json")
	over := time.Now().Add(-time.Minute)
	text := fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"sk-ant-oat01-%[1]s-old","refreshToken":"rt-%[1]s-c","expiresAt":%[2]d,"scopes":["user:inference"]},"mcpOAuth":{"kept":true}}`, secretPart, over.UnixMilli())
	s.write(t, file, text)
	s.addLogin(t, "my-claude", "claude-login", "", "--dir", dir)
	s.addLogin(t, "my-codex", "codex-login", fmt.Sprintf(`{"OPENAI_API_KEY":null,"tokens":{"id_token":"a.b.%[1]s","access_token":%[2]q,"refresh_token":"rt-%[1]s-x","account_id":"acc-1"}}`,
		secretPart, accessToken(0, over)))

	// Claude's is named, since there is a key of its vendor; Codex's is found.
	for _, agent := range []api.Agent{
		{Name: "claude", ModelURL: s.url, Credential: "my-claude"},
		{Name: "codex", Model: "scripted", ModelURL: s.url + "/v1"},
	} {
		t.Run(agent.Name, func(t *testing.T) {
			before := len(s.Seen())
			got := run(t, s.env, api.TaskRequest{Repo: bundle(t, s.env, small(t)), Prompt: "Mend the answer.", Agent: agent, Verify: "./check.sh"})
			must(t, s.env, got, api.Succeeded, "")
			s.sawTheLogin(t, v, agent.Name, s.Seen()[before:])
			s.insideSawNothing(t, got)
			if m := got.Model; m == nil || m.Mode != "direct" || m.Credential != "my-"+agent.Name || m.Kind != agent.Name+"-login" {
				t.Errorf("the task says %+v", m)
			}
			if out, err := s.env.CLI("task", "show", got.ID); err != nil || !strings.Contains(out, "direct, my-"+agent.Name+" ("+agent.Name+"-login) at https://model.test") {
				t.Errorf("task show: %v\n%s", err, out)
			}
			if out, err := s.env.CLI("task", "receipt", got.ID); err != nil || !strings.Contains(out, "my-"+agent.Name) || strings.Contains(out, secretPart) {
				t.Errorf("task receipt: %v\n%s", err, out)
			}
		})
	}
	now, err := os.ReadFile(file)
	if err != nil || !v.good(string(now)) || !strings.Contains(string(now), `"kept":true`) || strings.Contains(string(now), "-old") {
		t.Errorf("%v: the login is %s", err, now)
	}
	if v.refused > 0 || len(v.access) != 2 {
		t.Errorf("renewed %d times, refused %d times", len(v.access), v.refused)
	}

	// Signed out by the vendor, the account says what to do.
	s.write(t, file, text)
	got := run(t, s.env, api.TaskRequest{Repo: bundle(t, s.env, small(t)), Prompt: "Mend the answer.", Agent: api.Agent{Name: "claude", ModelURL: s.url, Credential: "my-claude"}})
	must(t, s.env, got, api.Failed, "policy.credential")
	if out, err := s.env.CLI("task", "receipt", got.ID); err != nil || !strings.Contains(out, "sign in again") || strings.Contains(out, secretPart) {
		t.Errorf("signed out: %v\n%s", err, out)
	}
	s.insideSawNothing(t, got)
}

// TestModelGateway runs the real Claude Code by a gateway of models: it reaches
// that alone, with that's key alone.
func TestModelGateway(t *testing.T) {
	c := harnessCases()[0]
	s := startAgents(t, modeltest.Options{Steps: mend()}, c)
	s.keepFor(t, harnessCase{header: "Authorization", prefix: "Bearer "}, "ai-gateway", realKey)
	policy := fmt.Sprintf("version: 1\nagent:\n  access:\n    mode: gateway\n    gateway: {credential: ai-gateway, anthropic: %q}\n", s.url)
	got := run(t, s.env, api.TaskRequest{Repo: bundle(t, s.env, small(t)), Prompt: "Mend the answer.", Agent: api.Agent{Name: "claude"}, Verify: "./check.sh", Policy: policy})
	checkHarness(t, s, c, got)
	sawOnlyTheRealKey(t, s)
	if m := got.Model; m == nil || m.Mode != "gateway" || m.Credential != "ai-gateway" || m.URL != s.url {
		t.Errorf("the task says %+v", m)
	}
	for _, l := range got.Leases {
		if l.Credential != "ai-gateway" {
			t.Errorf("lent %s", l.Credential)
		}
	}
}

// home is a folder of the control plane's user, as of a person it runs as.
func (s *scripted) home(t *testing.T) string {
	t.Helper()
	at, err := os.MkdirTemp("", "cfd-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(at) })
	if at, err = filepath.EvalSymlinks(at); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(at, "claude")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	uid := s.service(t)
	for _, p := range []string{at, dir} {
		if err := errors.Join(os.Chmod(p, 0o755), os.Chown(p, uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// service is the control plane's user.
func (s *scripted) service(t *testing.T) int {
	t.Helper()
	is, err := os.Stat(filepath.Join(s.env.Data, "cofferdamd"))
	if err != nil {
		t.Fatal(err)
	}
	return int(is.Sys().(*syscall.Stat_t).Uid)
}

// write writes a login as its owner's tool would.
func (s *scripted) write(t *testing.T, file, text string) {
	t.Helper()
	uid := s.service(t)
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chown(file, uid, uid)); err != nil {
		t.Fatal(err)
	}
}

// addLogin puts a login into the vault.
func (s *scripted) addLogin(t *testing.T, name, kind, value string, args ...string) {
	t.Helper()
	cmd := s.env.Command(append([]string{
		"credential", "add", name, "--kind", kind, "--host", "model.test", "--port", fmt.Sprint(s.port), "--set", "token_url=" + s.url + "/oauth/token",
	}, args...)...)
	cmd.Stdin = strings.NewReader(value)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
}

// good says whether a text has a refresh token that may still be used.
func (v *vendor) good(text string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for token := range v.refresh {
		if strings.Contains(text, `"`+token+`"`) {
			return true
		}
	}
	return false
}

// sawTheLogin looks at what reached the model's server.
func (s *scripted) sawTheLogin(t *testing.T, v *vendor, agent string, seen []modeltest.Seen) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	asked := 0
	for _, q := range seen {
		if bytes.Contains(q.Body, []byte(secretPart)) {
			t.Errorf("the body of %s holds a token: somebody inside knows it", q.Path)
		}
		if !strings.HasSuffix(q.Path, "/messages") && !strings.Contains(q.Path, "/responses") {
			continue
		}
		asked++
		if !slices.Contains(v.access, q.Key) || q.Header.Get("X-Api-Key") != "" {
			t.Errorf("%s %s came with the key %q", q.Method, q.Path, q.Key)
		}
		if agent == "claude" && !strings.Contains(q.Header.Get("Anthropic-Beta"), "oauth-") || agent == "codex" && q.Header.Get("Chatgpt-Account-Id") != "acc-1" {
			t.Errorf("%s does not ask as one that is signed in: %v", agent, q.Header)
		}
	}
	if asked < 3 {
		t.Errorf("the model was asked %d times", asked)
	}
}

// insideSawNothing looks at what a sandbox could see, and at what is kept.
func (s *scripted) insideSawNothing(t *testing.T, got api.Task) {
	t.Helper()
	for _, stage := range got.Stages {
		if stage.Name != "agent" || stage.Reason == "policy.credential" {
			continue // which ended before anything ran
		}
		if text := log(t, s.env, got.ID, "agent"); strings.Contains(text, secretPart) || strings.Contains(text, "found:") || strings.Contains(text, "rt-") {
			t.Errorf("the log is\n%s", text)
		}
	}
	err := s.env.Client.WatchTask(context.Background(), got.ID, 0, func(ev api.Event) error {
		if bytes.Contains(ev.Data, []byte(secretPart)) {
			t.Errorf("an event of type %s has a token", ev.Type)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

package server

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/credentials"
	"github.com/cofferdam/cofferdam/internal/server/policies"
)

// site is a server over working fakes, with a token for each kind of caller.
type site struct {
	*memory
	fleet  *machines
	engine *engine
	server *Server
	http   *httptest.Server
	log    *safeBuffer
	tokens map[string]string // "alice", "bob", "admin", "worker", "gateway"
	vault  *vault
	judge  *judge
}

// safeBuffer may be read while the server logs.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newSite(t testing.TB) *site { return newSiteWith(t, func(*Options) {}) }

// newSiteWith lets the test put other rooms behind the door.
func newSiteWith(t testing.TB, change func(*Options)) *site {
	t.Helper()
	s := &site{memory: newMemory(), fleet: newMachines(), engine: &engine{}, log: &safeBuffer{}, tokens: map[string]string{}}
	ids := identity.New(s.memory, time.Now)
	for user, role := range map[string]identity.Role{"alice": identity.User, "bob": identity.User, "admin": identity.Admin, "worker": identity.Worker, "gateway": identity.Gateway} {
		_, secret, err := ids.Issue(t.Context(), identity.Request{User: user, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		s.tokens[user] = secret.Reveal()
	}
	o := Options{
		Boot: "boot1", Version: "v1", AuditKeys: func() (string, []string) { return "cofferdam+00000000+AAAA", nil }, Log: slog.New(slog.NewJSONHandler(s.log, nil)), Identities: ids, Now: time.Now,
		Tunnel: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			subject, err := Subject(r)
			if err != nil {
				t.Errorf("tunnel: %v", err)
			}
			_, _ = io.WriteString(w, "tunnel of "+subject)
		}),
		Needs: Needs{
			Tasks: s.memory, Events: s.memory, Engine: s.engine, Policies: linePolicies{}, Blobs: blobs{s.memory}, Owners: s.memory,
			Places: s.fleet, Commands: s.fleet, Console: s.fleet, Files: s.fleet, Single: shrinking{}, Workers: s.fleet, Agents: s.fleet, Harnesses: noHarnesses{}, Audit: account{s.memory},
		},
	}
	s.judge = newJudge()
	o.Needs.Policy = &policies.Desk{Judge: s.judge, Projects: s.judge, Audit: account{s.memory}, Now: time.Now}
	o.Needs.History = s.memory
	o.Needs.Denials = s.memory
	o.Needs.Removal = removing{s.memory}
	s.vault = &vault{}
	var err error
	o.Needs.Credentials, err = credentials.New(credentials.Options{
		Vault: s.vault, Leases: s.vault, Machines: s.vault, Grants: s.vault, Life: time.Minute, Now: time.Now, Log: o.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	change(&o)
	if s.server, err = New(o); err != nil {
		t.Fatal(err)
	}
	s.fleet.reports = []fleet.Report{{Worker: s.fleet.Workers()[0]}}
	s.http = httptest.NewServer(s.server)
	t.Cleanup(func() {
		s.server.Close()
		s.http.Close()
	})
	return s
}

// as returns a client that speaks for user.
func (s *site) as(t testing.TB, user string) *client.Client {
	t.Helper()
	c, err := client.New(s.http.URL, s.tokens[user], client.WithPatience(0))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask makes a raw request.
func (s *site) ask(t *testing.T, user, method, path, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.http.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if tok := s.tokens[user]; tok != "" {
		req.Header.Set("Authorization", "Bearer "+tok)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// problem asks and expects a failure.
func (s *site) problem(t *testing.T, user, method, path, body string, header ...string) api.Problem {
	t.Helper()
	status, h, text := s.ask(t, user, method, path, body, header...)
	var p api.Problem
	if err := json.Unmarshal([]byte(text), &p); err != nil || status < 400 {
		t.Fatalf("%s %s: no problem: %d %q", method, path, status, text)
	}
	if got := h.Get("Content-Type"); got != api.ProblemType {
		t.Errorf("%s %s: content type %q", method, path, got)
	}
	if p.Status != status || p.Code == "" || p.Title == "" || p.Type != "about:blank" || p.Request == "" || p.Request != h.Get("Cofferdam-Request") {
		t.Errorf("%s %s: incomplete problem %+v", method, path, p)
	}
	return p
}

const aTask = `{"repo":{"url":"https://example.com/r.git"},"agent":{"name":"command","argv":["true"]}}`

func (s *site) newTask(t *testing.T, user string) api.Task {
	t.Helper()
	tk, _, err := s.as(t, user).CreateTask(t.Context(), api.TaskRequest{
		Repo: api.Repo{URL: "https://example.com/r.git"}, Agent: api.Agent{Name: "command", Argv: []string{"true"}},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

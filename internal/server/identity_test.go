package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/identity/issuer"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/runidentity"
	"github.com/cofferdam/cofferdam/internal/task"
)

// oneRun is a task that runs, for the issuer, and an account that takes anything.
type oneRun struct{}

func (oneRun) Record(context.Context, string, string, string, string, any) error { return nil }

func (oneRun) Task(_ context.Context, id string) (task.Task, error) {
	return task.Task{ID: id, State: task.Running, RequestedBy: "alice"}, nil
}

func (oneRun) SandboxWorker(context.Context, string) (string, error) { return "w-1", nil }

func newIssuing(t *testing.T, url string) (*site, *issuer.Issuer) {
	t.Helper()
	var i *issuer.Issuer
	s := newSiteWith(t, func(o *Options) {
		var err error
		run := oneRun{}
		if i, err = issuer.Open(issuer.Options{URL: url, Dir: t.TempDir(), Runs: run, Audit: run, Now: time.Now}); err != nil {
			t.Fatal(err)
		}
		o.Hosts = append(o.Hosts, "issuer.example")
		o.Needs.Desks = []operation.Desk{&runidentity.Desk{Issuer: i}}
	})
	return s, i
}

// Who may call what, as in TestPermissions.
func TestIdentityPermissions(t *testing.T) {
	s, _ := newIssuing(t, "https://issuer.example")
	callers := [6]string{"nobody", "bad", "alice", "admin", "worker", "gateway"}
	s.tokens["nobody"], s.tokens["bad"] = "", "cfd_x"
	rows := map[string][6]bool{
		"openid-configuration": {true, true, true, true, true, true},
		"identity-keys":        {true, true, true, true, true, true},
		"show-identity":        {false, false, true, true, false, false},
		"rotate-identity":      {false, false, false, true, false, false},
	}
	met := 0
	for _, op := range s.server.door.Operations() {
		row, ok := rows[op.ID]
		if !ok {
			continue
		}
		met++
		for i, caller := range callers {
			body := ""
			if op.Method == http.MethodPost {
				body = "{}"
			}
			status, _, text := s.ask(t, caller, op.Method, op.Path, body)
			if let := status != http.StatusUnauthorized && status != http.StatusForbidden; let != row[i] {
				t.Errorf("%s as %s: %d %s", op.ID, caller, status, text)
			}
		}
	}
	if met != len(rows) {
		t.Errorf("%d of %d operations", met, len(rows))
	}
}

// throughProxy asks the server as a proxy in front of the issuer's name does.
type throughProxy struct{ to string }

func (p throughProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.Host = r.URL.Host
	out.URL.Scheme, out.URL.Host = "http", strings.TrimPrefix(p.to, "http://")
	return http.DefaultTransport.RoundTrip(out)
}

// What the server publishes is what go-oidc reads.
func TestRelyingPartyReadsTheDocuments(t *testing.T) {
	s, i := newIssuing(t, "https://issuer.example")
	token, err := i.Token(t.Context(), task.Lent{Lease: task.Lease{ID: "l-a"}, Task: "t-a", Sandbox: "sb-a", Stage: task.Agent}, "aud")
	if err != nil {
		t.Fatal(err)
	}
	ctx := oidc.ClientContext(t.Context(), &http.Client{Transport: throughProxy{s.http.URL}})
	provider, err := oidc.NewProvider(ctx, "https://issuer.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Verifier(&oidc.Config{ClientID: "aud"}).Verify(ctx, token.Reveal()); err != nil {
		t.Error(err)
	}
	status, header, text := s.ask(t, "nobody", http.MethodGet, issuer.KeysPath, "")
	if status != 200 || header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "public, max-age=900" || strings.Contains(text, `"d"`) || strings.Contains(text, "$schema") {
		t.Errorf("%d %v %s", status, header, text)
	}
	c := s.as(t, "admin")
	doc, err := c.Published(t.Context(), client.IdentityKeysPath)
	if err != nil || string(doc) != text || !json.Valid(doc) {
		t.Errorf("exported %s, %v", doc, err)
	}
	have, err := c.RotateIdentity(t.Context(), api.IdentityRotation{Algorithm: "ES256"})
	if err != nil || len(have.Keys) != 2 || have.Keys[1].State != "next" || have.Keys[0].PublishedUntil == nil {
		t.Errorf("%+v %v", have, err)
	}
	if _, err := c.RotateIdentity(t.Context(), api.IdentityRotation{}); err == nil || !strings.Contains(err.Error(), "--now") {
		t.Errorf("twice: %v", err)
	}
	if now, err := s.as(t, "alice").RunIdentity(t.Context()); err != nil || now.Issuer != "https://issuer.example" || len(now.Keys) != 2 {
		t.Errorf("%+v %v", now, err)
	}
}

func TestNoIssuer(t *testing.T) {
	s, _ := newIssuing(t, "")
	for _, path := range []string{issuer.DiscoveryPath, issuer.KeysPath, "/v1/identity"} {
		if status, _, text := s.ask(t, "admin", http.MethodGet, path, ""); status != 404 || !strings.Contains(text, "--issuer") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, _, text := s.ask(t, "admin", http.MethodPost, "/v1/identity/rotate", "{}"); status != 409 || !strings.Contains(text, "--issuer") {
		t.Errorf("rotate: %d %s", status, text)
	}
}

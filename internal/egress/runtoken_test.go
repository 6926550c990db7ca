package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	requestToken = "placeholder-request-token"
	madeToken    = "eyJhbGciOiJSUzI1NiJ9.made"
	seenLease    = "l-seenseenseenseen"
	aws          = "sts.amazonaws.com"
)

// issuing lends a token for the visible lease.
type issuing func(ctx context.Context, sandbox string, lease task.Lease) (outbound.Secret, error)

func (f issuing) Value(ctx context.Context, sandbox string, lease task.Lease) (outbound.Secret, error) {
	return f(ctx, sandbox, lease)
}

func identityLease(id, audience, visible string) task.Lease {
	return task.Lease{
		ID: id, Credential: task.Identity{Audience: audience}.Name(), Kind: task.KindOIDC, Placeholder: requestToken,
		Settings: map[string]string{task.SettingAudience: audience, task.SettingVisible: visible}, Hosts: []string{task.TokenHost}, Ports: []uint16{443},
	}
}

// identified is a grant of a stage that has two audiences, and a rule that would
// allow everything of ours if rules had a say.
func identified() task.Grant {
	g := grantOf(task.Rule{ID: "all", Host: "**.cofferdam.internal", Ports: []uint16{80, 443, 8443}, Private: true})
	g.Leases = []task.Lease{
		identityLease(seenLease, aws, "true"), identityLease("l-hidehidehidehide", "https://vault.example", "false"),
		{ID: leaseID, Credential: "key", Header: "X-Api-Key", Placeholder: placeholder, Hosts: []string{"ok.test"}, Ports: []uint16{443}},
	}
	return g
}

// newToken is a rig with such a grant.
func newToken(t *testing.T, lender outbound.Lender) (*rig, *http.Client) {
	t.Helper()
	r := newRig(t, nil, func(o *Options) { o.Lender = lender })
	if err := r.gateway.SetGrant(identified()); err != nil {
		t.Fatal(err)
	}
	return r, r.trusting()
}

func (r *rig) trusting() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.pem)
	return r.http(&tls.Config{RootCAs: roots})
}

func gives(_ context.Context, sandbox string, lease task.Lease) (outbound.Secret, error) {
	if sandbox != testID || lease.ID != seenLease {
		return outbound.Secret{}, task.Fail(task.PolicyCredential, "another lease", nil)
	}
	return task.NewSecret(madeToken), nil
}

func (r *rig) askToken(c *http.Client, method, address string, header http.Header) (int, http.Header, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.ctx(), method, address, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header.Clone()
	res, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(body)
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"bearer " + token}} }

func TestTokenIsHandedOver(t *testing.T) {
	r, c := newToken(t, issuing(gives))
	status, header, body := r.askToken(c, "GET", task.TokenURL+"&audience="+aws, bearer(requestToken))
	var got map[string]string
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || got["value"] != madeToken || len(got) != 1 || header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %s %v", status, body, err)
	}
	rec := r.await("the token", func(rec task.EgressRecord) bool { return rec.Done && rec.Status == 200 })
	if rec.Lease != seenLease || rec.Name != task.TokenHost || rec.Path != task.TokenPath || rec.Rule != "agent.identity" || rec.Verdict != "allowed" || rec.Address != "" {
		t.Errorf("recorded %+v", rec)
	}
	r.await("the decision before it", func(rec task.EgressRecord) bool { return !rec.Done && rec.Lease == seenLease })
	if r.resolver.queries() > 0 {
		t.Error("a name of ours was looked up")
	}
}

func TestTokenIsRefused(t *testing.T) {
	r, c := newToken(t, issuing(gives))
	const good = task.TokenURL + "&audience=" + aws
	for name, w := range map[string]struct {
		method, url string
		header      http.Header
		status      int
		reason      task.Reason
		hint        string
	}{
		"no audience":               {"GET", task.TokenURL, bearer(requestToken), 400, task.InputInvalid, "audience="},
		"an empty one":              {"GET", task.TokenURL + "&audience=", bearer(requestToken), 400, task.InputInvalid, "audience="},
		"two":                       {"GET", good + "&audience=other", bearer(requestToken), 400, task.InputInvalid, "one audience"},
		"a query that is none":      {"GET", task.TokenURL + "&audience=" + aws + "&x=%zz", bearer(requestToken), 400, task.InputInvalid, "audience="},
		"not allowed":               {"GET", task.TokenURL + "&audience=other", bearer(requestToken), 403, task.PolicyCredential, "agent.identity"},
		"in another spelling":       {"GET", task.TokenURL + "&audience=STS.amazonaws.com", bearer(requestToken), 403, task.PolicyCredential, "agent.identity"},
		"not visible":               {"GET", task.TokenURL + "&audience=https://vault.example", bearer(requestToken), 403, task.PolicyCredential, "visible: true"},
		"no request token":          {"GET", good, nil, 403, task.PolicyCredential, "request token"},
		"an altered one":            {"GET", good, bearer(requestToken[:5] + "x" + requestToken[6:]), 403, task.PolicyCredential, "request token"},
		"a part of it":              {"GET", good, bearer(requestToken[:8]), 403, task.PolicyCredential, "request token"},
		"an empty one in its place": {"GET", good, bearer(""), 403, task.PolicyCredential, "request token"},
		"a credential's":            {"GET", good, bearer(placeholder), 403, task.PolicyCredential, "request token"},
		"as Basic":                  {"GET", good, http.Header{"Authorization": {"Basic " + requestToken}}, 403, task.PolicyCredential, "request token"},
		"two of them":               {"GET", good, http.Header{"Authorization": {"Bearer " + requestToken, "Bearer x"}}, 403, task.PolicyCredential, "request token"},
		"a wrong one and no word":   {"GET", task.TokenURL, bearer("x"), 403, task.PolicyCredential, "request token"},
		"posted":                    {"POST", good, bearer(requestToken), 403, task.PolicyDenied, "No rule"},
		"another path":              {"GET", "https://" + task.TokenHost + "/?audience=" + aws, bearer(requestToken), 403, task.PolicyDenied, "No rule"},
		"an escaped path":           {"GET", "https://" + task.TokenHost + "/tok%65n?audience=" + aws, bearer(requestToken), 403, task.PolicyDenied, "No rule"},
		"another name of ours":      {"GET", "https://other.cofferdam.internal/token?audience=" + aws, bearer(requestToken), 403, task.PolicyDenied, "No rule"},
		"the zone":                  {"GET", "https://cofferdam.internal/token?audience=" + aws, bearer(requestToken), 403, task.PolicyDenied, "No rule"},
		"plain":                     {"GET", "http://" + task.TokenHost + "/token?audience=" + aws, bearer(requestToken), 403, task.PolicyDenied, "No rule"},
	} {
		status, _, body := r.askToken(c, w.method, w.url, w.header)
		if status != w.status || code(t, body) != w.reason || !strings.Contains(body, w.hint) || strings.Contains(body, madeToken) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	for _, rec := range r.logged() {
		if rec.Verdict == "allowed" && !rec.Done || strings.Contains(rec.Path, aws) {
			t.Errorf("recorded %+v", rec)
		}
	}
	if r.resolver.queries() > 0 {
		t.Error("a name of ours was looked up")
	}
}

// A grant without any gives none, whatever the program says; what had one is cut
// when the stage ends.
func TestTokenEndsWithTheStage(t *testing.T) {
	r, c := newToken(t, issuing(gives))
	if status, _, _ := r.askToken(c, "GET", task.TokenURL+"&audience="+aws, bearer(requestToken)); status != 200 {
		t.Fatal(status)
	}
	for name, g := range map[string]task.Grant{
		"after the stage": {Sandbox: testID},
		"another stage": func() task.Grant {
			g := identified()
			g.Leases[0].Placeholder, g.Leases[1].Placeholder = "p2", "p2"
			return g
		}(),
		"no placeholder": func() task.Grant {
			g := identified()
			g.Leases[0].Placeholder, g.Leases[1].Placeholder = "", ""
			return g
		}(),
		"not from policy":   func() task.Grant { g := identified(); g.Leases = g.Leases[:1]; g.Leases[0].Credential = aws; return g }(),
		"of another kind":   func() task.Grant { g := identified(); g.Leases = g.Leases[:1]; g.Leases[0].Kind = ""; return g }(),
		"zero but for this": {Sandbox: testID, Leases: []task.Lease{{Placeholder: requestToken}}},
	} {
		if err := r.gateway.SetGrant(g); err != nil {
			t.Fatal(err)
		}
		status, _, body := r.askToken(r.trusting(), "GET", task.TokenURL+"&audience="+aws, bearer(requestToken))
		if status != 403 || code(t, body) != task.PolicyCredential {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

func TestTokenThatCannotBeHad(t *testing.T) {
	for name, w := range map[string]struct {
		lender outbound.Lender
		status int
		reason task.Reason
	}{
		"nobody lends": {nil, 503, task.InfraControlAway},
		"control plane away": {issuing(func(context.Context, string, task.Lease) (outbound.Secret, error) {
			return outbound.Secret{}, task.Fail(task.InfraControlAway, "away", nil)
		}), 503, task.InfraControlAway},
		"revoked, or no issuer": {issuing(func(context.Context, string, task.Lease) (outbound.Secret, error) {
			return outbound.Secret{}, task.Fail(task.PolicyCredential, "no", nil)
		}), 403, task.PolicyCredential},
		"nothing": {issuing(func(context.Context, string, task.Lease) (outbound.Secret, error) { return outbound.Secret{}, nil }), 403, task.PolicyCredential},
		"the placeholder back": {issuing(func(context.Context, string, task.Lease) (outbound.Secret, error) {
			return task.NewSecret(requestToken), nil
		}), 403, task.PolicyCredential},
		"it waits no longer than this": {issuing(func(ctx context.Context, _ string, _ task.Lease) (outbound.Secret, error) {
			if _, bound := ctx.Deadline(); !bound {
				return task.NewSecret(madeToken), nil
			}
			return outbound.Secret{}, context.DeadlineExceeded
		}), 503, task.InfraControlAway},
	} {
		r, c := newToken(t, w.lender)
		status, _, body := r.askToken(c, "GET", task.TokenURL+"&audience="+aws, bearer(requestToken))
		if status != w.status || code(t, body) != w.reason {
			t.Errorf("%s: %d %s", name, status, body)
		}
		r.await(name, func(rec task.EgressRecord) bool { return rec.Done && rec.Reason == w.reason && rec.Status == w.status })
	}
}

// What is no HTTP request over TLS for that very name is refused.
func TestTokenSpeaksHTTPOverTLSOnly(t *testing.T) {
	r, _ := newToken(t, issuing(gives))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.pem)
	const request = "GET /token?audience=" + aws + " HTTP/1.1\r\nHost: " + task.TokenHost + "\r\nAuthorization: bearer " + requestToken + "\r\n"
	for name, w := range map[string]struct{ sni, text, reason string }{
		"another SNI":     {"ok.test", request + "\r\n", "policy.name_mismatch"},
		"another Host":    {task.TokenHost, strings.Replace(request, "Host: "+task.TokenHost, "Host: ok.test", 1) + "\r\n", "policy.name_mismatch"},
		"two lengths":     {task.TokenHost, request + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "policy.protocol"},
		"another request": {task.TokenHost, strings.Replace(request, "GET ", "CONNECT ", 1) + "\r\n", "policy.protocol"},
	} {
		raw, err := r.client.DialName(r.ctx(), "tcp4", task.TokenHost, 443)
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: w.sni})
		if _, err := io.WriteString(conn, w.text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 403 || !strings.Contains(string(body), w.reason) {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
		res.Body.Close()
		conn.Close()
		r.await(name, denied(task.Reason(w.reason)))
	}
	raw, err := r.client.DialName(r.ctx(), "tcp4", task.TokenHost, 443)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := io.WriteString(raw, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(raw); len(got) > 0 {
		t.Errorf("without TLS: %q %v", got, err)
	}
	if _, err := r.client.DialName(r.ctx(), "tcp4", task.TokenHost, 8443); err == nil {
		t.Error("another port is taken")
	}
}

// A person's request to another host can't carry the request token along.
func TestRequestTokenLeavesNowhere(t *testing.T) {
	w := newWithin(t, false, hello)
	g := identified()
	g.Rules = []task.Rule{{ID: "free", Host: "ok.test", Ports: []uint16{w.port}, Protocol: task.ProtocolHTTP, Private: true}}
	if err := w.gateway.SetGrant(g); err != nil {
		t.Fatal(err)
	}
	res, body := w.do(w.inside(false), w.request("GET", w.url("/x"), header("Authorization", "Bearer "+requestToken)))
	if res.StatusCode != 403 || code(t, body) != task.PolicyCredential || len(w.far.take()) > 0 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

// FuzzTokenRequest: no request but one with the request token and the visible
// audience, once each, comes to a lease.
func FuzzTokenRequest(f *testing.F) {
	f.Add("v=1&audience="+aws, "bearer "+requestToken)
	f.Add("audience=%73ts.amazonaws.com&audience", "Bearer  "+requestToken)
	f.Add("audience=https://vault.example;audience="+aws, "BEARER "+requestToken+" ")
	f.Fuzz(func(t *testing.T, query, authorization string) {
		r := &http.Request{Method: "GET", URL: &url.URL{Path: task.TokenPath, RawQuery: query}, Header: http.Header{"Authorization": {authorization}}}
		got := wishOf(identified(), r)
		if got.lease == nil {
			if got.status < 400 || got.reason == task.ReasonNone || got.text == "" {
				t.Fatalf("%+v", got)
			}
			return
		}
		scheme, token, _ := strings.Cut(authorization, " ")
		q, err := url.ParseQuery(query)
		if err != nil || got.lease.ID != seenLease || !strings.EqualFold(scheme, "bearer") || token != requestToken || len(q["audience"]) != 1 || q["audience"][0] != aws {
			t.Fatalf("%q %q: %+v", query, authorization, got.lease)
		}
	})
}

package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	realKey     = "sk-real-0123456789"
	placeholder = "sk-placeholder-abcdef"
	leaseID     = "l-aaaaaaaaaaaaaaaa"
)

// lender lends one value, or fails.
type lender struct {
	err    error
	mu     sync.Mutex
	asked  int
	others []task.Secret // that are held for the sandbox too
}

func (l *lender) Held(string) []task.Secret { return l.others }

func (l *lender) Value(_ context.Context, sandbox string, lease task.Lease) (outbound.Secret, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if sandbox != testID || lease.ID != leaseID {
		return outbound.Secret{}, errors.New("another lease")
	}
	return task.NewSecret(realKey), l.err
}

// seen is one request as the far side read it.
type seen struct {
	method, uri, host, proto string
	header                   http.Header
}

// far is a server outside that keeps what it saw.
type far struct {
	*upstream
	mu   sync.Mutex
	seen []seen
}

func (f *far) keep(r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, seen{r.Method, r.RequestURI, r.Host, r.Proto, r.Header.Clone()})
}

// take gives what was seen since the last call.
func (f *far) take() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seen
	f.seen = nil
	return s
}

// keyed says whether any header of the requests holds the real value.
func keyed(all []seen) bool {
	for _, s := range all {
		if strings.Contains(fmt.Sprint(s), realKey) {
			return true
		}
	}
	return false
}

// within is a rig with servers outside that the gateway verifies, a rule about
// requests that lends a credential, and one that lends none.
type within struct {
	*rig
	authority *egresstest.Far
	lender    *lender
	far       *far
	port      uint16
}

// newWithin makes it; f makes what the far side answers, h2 says whether it
// speaks HTTP/2.
func newWithin(t *testing.T, h2 bool, f http.HandlerFunc, more ...task.Rule) *within {
	t.Helper()
	w := &within{authority: egresstest.NewFar(t), lender: &lender{}, far: &far{upstream: listen(t)}}
	w.port = w.far.port
	egresstest.Serve(t, w.far, w.authority.Certificate(t, "ok.test", time.Now().Add(time.Hour)), h2, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.far.keep(r)
		f(rw, r)
	}))
	w.rig = newRig(t, nil, func(o *Options) { o.Roots, o.Lender = w.authority.Roots, w.lender })
	w.grant(more...)
	return w
}

func (w *within) grant(more ...task.Rule) {
	w.t.Helper()
	g := grantOf(append([]task.Rule{
		{ID: "free", Host: "ok.test", Ports: []uint16{w.port}, Methods: []string{"GET", "HEAD", "POST"}, Paths: []string{"/free/**"}, Private: true},
		{ID: "api", Host: "ok.test", Ports: []uint16{w.port}, Methods: []string{"GET", "POST"}, Paths: []string{"/v1/**"}, Credential: "key", Private: true},
	}, more...)...)
	g.Leases = []task.Lease{{
		ID: leaseID, Credential: "key", Header: "X-Api-Key", Placeholder: placeholder, Hosts: []string{"ok.test"}, Ports: []uint16{w.port},
	}}
	if err := w.gateway.SetGrant(g); err != nil {
		w.t.Fatal(err)
	}
}

// inside is a client that trusts the sandbox's authority.
func (w *within) inside(h2 bool) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.pem)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(h2)
	tr := &http.Transport{DialContext: w.client.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: protocols, ExpectContinueTimeout: time.Minute}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func (w *within) url(path string) string { return fmt.Sprintf("https://ok.test:%d%s", w.port, path) }

func (w *within) request(method, url string, edit func(*http.Request)) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, url, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	if edit != nil {
		edit(r)
	}
	return r
}

func (w *within) do(c *http.Client, r *http.Request) (*http.Response, string) {
	w.t.Helper()
	res, err := c.Do(r)
	if err != nil {
		w.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return res, string(body)
}

func hello(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s", r.Method, r.RequestURI)
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// Every way to ask wrongly, over every way to speak: refused, for its reason,
// and the far side sees nothing; the connection goes on.
func TestRequestsAreDecidedOneByOne(t *testing.T) {
	for _, kind := range []struct {
		name            string
		inside, outside bool
	}{{"http1", false, false}, {"h2", true, true}, {"h2 to http1", true, false}, {"http1 to h2", false, true}} {
		t.Run(kind.name, func(t *testing.T) {
			w := newWithin(t, kind.outside, hello, private("plain.test", 80))
			client := w.inside(kind.inside)
			good := w.request("GET", w.url("/v1/x?q=1"), header("X-Api-Key", placeholder))
			for _, c := range []struct {
				name, method, path string
				edit               func(*http.Request)
				want               task.Reason
			}{
				{"method", "DELETE", "/v1/x", nil, task.PolicyDenied},
				{"method in lower case", "get", "/v1/x", nil, task.PolicyDenied},
				{"path", "GET", "/v2/x", nil, task.PolicyDenied},
				{"path above", "GET", "/v1/../v2/x", nil, task.PolicyDenied},
				{"path with an encoded slash", "GET", "/v1/..%2fv2", nil, task.PolicyDenied},
				{"host", "GET", "/v1/x", func(r *http.Request) { r.Host = "no.test" }, task.PolicyNameMismatch},
				{"host with another port", "GET", "/v1/x", func(r *http.Request) { r.Host = "ok.test:1" }, task.PolicyNameMismatch},
				{"an own key", "GET", "/v1/x", header("X-Api-Key", "sk-mine"), task.PolicyCredential},
				{"an own key beside", "GET", "/v1/x", header("Authorization", "Bearer mine"), task.PolicyCredential},
				{"two keys", "GET", "/v1/x", func(r *http.Request) { r.Header["X-Api-Key"] = []string{placeholder, placeholder} }, task.PolicyCredential},
				{"placeholder in another header", "GET", "/v1/x", header("X-Other", "a "+placeholder), task.PolicyCredential},
				{"placeholder in a cookie", "GET", "/v1/x", header("Cookie", "a="+placeholder), task.PolicyCredential},
				{"placeholder in Basic", "GET", "/v1/x", func(r *http.Request) { r.SetBasicAuth("x", placeholder) }, task.PolicyCredential},
				{"placeholder in the query", "GET", "/v1/x?k=" + placeholder, nil, task.PolicyCredential},
				{"placeholder in the path", "GET", "/v1/" + placeholder, nil, task.PolicyCredential},
				{"placeholder where nothing is lent", "GET", "/free/x", header("X-Api-Key", placeholder), task.PolicyCredential},
			} {
				res, body := w.do(client, w.request(c.method, w.url(c.path), c.edit))
				if res.StatusCode != 403 || code(t, body) != c.want {
					t.Errorf("%s: %d %s, want %s", c.name, res.StatusCode, body, c.want)
				}
				if got := w.far.take(); len(got) > 0 {
					t.Errorf("%s: the far side saw %+v", c.name, got)
				}
				// The same client goes on, and so does its connection where that is safe.
				if res, body := w.do(client, good.Clone(t.Context())); res.StatusCode != 200 || body != "GET /v1/x?q=1" {
					t.Fatalf("after %s: %d %q", c.name, res.StatusCode, body)
				}
				got := w.far.take()
				if len(got) != 1 || got[0].header.Get("X-Api-Key") != realKey || len(got[0].header["X-Api-Key"]) != 1 {
					t.Fatalf("after %s the far side saw %+v", c.name, got)
				}
			}
			if want := 4; kind.inside && int(w.far.accepted.Load()) > want {
				t.Errorf("%d connections outside for one inside", w.far.accepted.Load())
			}
			end := w.await("end of a request", func(r task.EgressRecord) bool { return r.Done && r.Request > 0 && r.Status == 200 })
			if end.Method != "GET" || end.Path != "/v1/x" || end.Lease != leaseID || end.Rule != "api" || end.Verdict != "allowed" || end.SNI != "ok.test" || end.BytesIn == 0 {
				t.Errorf("%+v", end)
			}
			for _, rec := range w.logged() {
				if strings.Contains(fmt.Sprintf("%+v", rec), realKey) {
					t.Errorf("the log has the value: %+v", rec)
				}
			}
		})
	}
}

// This is the test that fails when injection is switched off, or when a value
// goes where nothing is lent.
func TestTheValueGoesOnlyWhereItIsLent(t *testing.T) {
	w := newWithin(t, true, hello)
	client := w.inside(false)
	for _, c := range []struct {
		path string
		edit func(*http.Request)
		key  string
	}{
		{"/v1/a", header("X-Api-Key", placeholder), realKey},
		{"/v1/a", nil, realKey},
		{"/v1/a", header("Connection", "X-Api-Key"), realKey}, // asks for it to be taken off
		{"/free/a", nil, ""},
		{"/free/a", header("X-Api-Key", "mine"), "mine"},
	} {
		res, body := w.do(client, w.request("GET", w.url(c.path), c.edit))
		got := w.far.take()
		if res.StatusCode != 200 || len(got) != 1 || got[0].header.Get("X-Api-Key") != c.key {
			t.Errorf("%s: %d %s, the far side saw %+v, want key %q", c.path, res.StatusCode, body, got, c.key)
		}
	}
	if w.lender.asked != 3 {
		t.Errorf("%d values were lent for 3 requests", w.lender.asked)
	}
}

func TestWithoutALenderNothingGoes(t *testing.T) {
	w := newWithin(t, true, hello)
	for _, c := range []struct {
		err    error
		status int
		want   task.Reason
	}{
		{errors.New("no answer"), 503, task.InfraControlAway},
		{&task.Failure{Reason: task.PolicyCredential, Text: "revoked"}, 403, task.PolicyCredential},
	} {
		w.lender.err = c.err
		res, body := w.do(w.inside(true), w.request("GET", w.url("/v1/a"), nil))
		if got := w.far.take(); res.StatusCode != c.status || code(t, body) != c.want || len(got) > 0 {
			t.Errorf("%v: %d %s, the far side saw %+v", c.err, res.StatusCode, body, got)
		}
		w.await("end", func(r task.EgressRecord) bool { return r.Done && r.Reason == c.want && r.Request > 0 })
	}
}

// A far side that can't prove its name gets no request, and no value.
func TestFarSideMustProveItsName(t *testing.T) {
	other := egresstest.NewFar(t)
	for _, c := range []struct {
		name string
		cert func(*within) tls.Certificate
	}{
		{"another name", func(w *within) tls.Certificate {
			return w.authority.Certificate(t, "no.test", time.Now().Add(time.Hour))
		}},
		{"expired", func(w *within) tls.Certificate {
			return w.authority.Certificate(t, "bad.test", time.Now().Add(-time.Hour))
		}},
		{"unknown authority", func(*within) tls.Certificate { return other.Certificate(t, "bad.test", time.Now().Add(time.Hour)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWithin(t, true, hello)
			bad := &far{upstream: listen(t)}
			egresstest.Serve(t, bad, c.cert(w), true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { bad.keep(r) }))
			w.resolver.set("bad.test", addrs("127.0.0.1"))
			g := grantOf(task.Rule{ID: "bad", Host: "bad.test", Ports: []uint16{bad.port}, Credential: "key", Private: true})
			g.Leases = []task.Lease{{ID: leaseID, Credential: "key", Header: "X-Api-Key", Placeholder: placeholder, Hosts: []string{"bad.test"}, Ports: []uint16{bad.port}}}
			if err := w.gateway.SetGrant(g); err != nil {
				t.Fatal(err)
			}
			res, body := w.do(w.inside(true), w.request("GET", fmt.Sprintf("https://bad.test:%d/", bad.port), nil))
			if res.StatusCode != 502 || code(t, body) != task.EgressUntrusted || len(bad.take()) > 0 {
				t.Errorf("%d %s", res.StatusCode, body)
			}
			w.await("end", func(r task.EgressRecord) bool { return r.Done && r.Reason == task.EgressUntrusted })
		})
	}
}

// A value never goes over plain HTTP, and not beyond the credential's own
// binding, whatever the rule says.
func TestBindingAndPlainHTTP(t *testing.T) {
	u := httpServer(t)
	w := newWithin(t, true, hello)
	wide := task.Rule{ID: "wide", Host: "ok.test", Ports: []uint16{u.port, w.port}, Credential: "key", Private: true}
	w.grant(wide)
	res, body := w.do(w.inside(false), w.request("GET", fmt.Sprintf("http://ok.test:%d/v1/a", u.port), nil))
	if res.StatusCode != 403 || code(t, body) != task.PolicyCredential || u.bytes.Load() != 0 {
		t.Errorf("plain: %d %s, %d bytes outside", res.StatusCode, body, u.bytes.Load())
	}
	for name, lease := range map[string]task.Lease{
		"host":      {Hosts: []string{"no.test"}, Ports: []uint16{w.port}},
		"no host":   {Ports: []uint16{w.port}},
		"port":      {Hosts: []string{"ok.test"}, Ports: []uint16{443}},
		"no port":   {Hosts: []string{"ok.test"}},
		"method":    {Hosts: []string{"ok.test"}, Ports: []uint16{w.port}, Methods: []string{"POST"}},
		"path":      {Hosts: []string{"ok.test"}, Ports: []uint16{w.port}, Paths: []string{"/v9/**"}},
		"header":    {Hosts: []string{"ok.test"}, Ports: []uint16{w.port}, Header: "Transfer-Encoding"},
		"no header": {Hosts: []string{"ok.test"}, Ports: []uint16{w.port}, Header: " "},
	} {
		lease.ID, lease.Credential, lease.Placeholder = leaseID, "key", placeholder
		if lease.Header == "" {
			lease.Header = "X-Api-Key"
		}
		g := grantOf(wide)
		g.Leases = []task.Lease{lease}
		if err := w.gateway.SetGrant(g); err != nil {
			t.Fatal(err)
		}
		res, body := w.do(w.inside(true), w.request("GET", w.url("/v1/a"), nil))
		if got := w.far.take(); res.StatusCode != 403 || code(t, body) != task.PolicyCredential || len(got) > 0 {
			t.Errorf("%s: %d %s, the far side saw %+v", name, res.StatusCode, body, got)
		}
	}
}

// Redirects are the client's, and each is decided anew: the value never goes
// to where a redirect leads.
func TestRedirectsAreDecidedAnew(t *testing.T) {
	elsewhere := &far{upstream: listen(t)}
	var w *within
	w = newWithin(t, true, func(rw http.ResponseWriter, r *http.Request) {
		to := map[string]string{
			"/v1/denied": "https://no.test/", "/v1/plain": fmt.Sprintf("http://second.test:%d/", elsewhere.port),
			"/v1/tls": fmt.Sprintf("https://second.test:%d/", elsewhere.port), "/v1/path": "/v2/x",
		}[r.URL.Path]
		http.Redirect(rw, r, to, http.StatusFound)
	})
	egresstest.Serve(t, elsewhere, w.authority.Certificate(t, "second.test", time.Now().Add(time.Hour)), true, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		elsewhere.keep(r)
		hello(rw, r)
	}))
	w.grant(task.Rule{ID: "second", Host: "second.test", Ports: []uint16{elsewhere.port}, Methods: []string{"GET"}, Private: true})
	for path, want := range map[string]task.Reason{"/v1/denied": task.PolicyDenied, "/v1/path": task.PolicyDenied, "/v1/tls": task.PolicyCredential} {
		res, body := w.do(w.inside(true), w.request("GET", w.url(path), header("X-Api-Key", placeholder)))
		if res.StatusCode != 403 || code(t, body) != want {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
	if res, _ := w.do(w.inside(true), w.request("GET", w.url("/v1/tls"), nil)); res.StatusCode != 200 {
		t.Errorf("a redirect to an allowed host: %d", res.StatusCode)
	}
	if got := elsewhere.take(); len(got) != 1 || keyed(got) {
		t.Errorf("elsewhere saw %+v", got)
	}
}

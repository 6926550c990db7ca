package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	realKey     = "sk-real-0123456789"
	placeholder = "sk-placeholder-abcdef"
)

type hosts map[string]string

func (h hosts) Lookup(_ context.Context, name string) ([]netip.Addr, error) {
	if a, ok := h[name]; ok {
		return []netip.Addr{netip.MustParseAddr(a)}, nil
	}
	return nil, errors.New("no such host")
}

type lends struct {
	err   error
	asked atomic.Int64
}

func (l *lends) Value(context.Context, string, task.Lease) (Secret, error) {
	l.asked.Add(1)
	return task.NewSecret(realKey), l.err
}

// world is a server outside and a transport to it.
type world struct {
	t         *testing.T
	transport *Transport
	lender    *lends
	port      uint16
	url       string
	keys      chan string // that the server saw, one a request

	mu      sync.Mutex
	records []task.EgressRecord
	full    bool // the record takes nothing
}

func (w *world) record(r task.EgressRecord) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full {
		return errors.New("disk full")
	}
	w.records = append(w.records, r)
	return nil
}

func (w *world) find(fits func(task.EgressRecord) bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.IndexFunc(w.records, fits)
}

func newWorld(t *testing.T, edit func(*Options)) *world {
	t.Helper()
	w := &world{t: t, lender: &lends{}, keys: make(chan string, 100)}
	far := egresstest.NewFar(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.port = netip.MustParseAddrPort(l.Addr().String()).Port()
	w.url = fmt.Sprintf("https://model.test:%d", w.port)
	egresstest.Serve(t, l, far.Certificate(t, "model.test", time.Now().Add(time.Hour)), true, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.keys <- r.Header.Get("X-Api-Key")
		if w.find(func(rec task.EgressRecord) bool {
			return rec.Verdict == "allowed" && rec.Path == r.URL.Path && !rec.Done
		}) < 0 {
			t.Errorf("%s came without a record", r.URL.Path)
		}
		switch r.URL.Path {
		case "/v1/redirect":
			http.Redirect(rw, r, "https://other.test/", http.StatusFound)
		case "/v1/wait":
			rw.WriteHeader(200)
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(rw, "%s %s", r.URL.Path, body)
		}
	}))
	o := Options{
		Grant: task.Grant{Sandbox: "sb-aaaaaaaaaaaaaaaa", Rules: []task.Rule{
			{ID: "agent.model", Host: "model.test", Ports: []uint16{w.port}, Protocol: "http", Paths: []string{"/v1/**"}, Credential: "key", Private: true},
			{ID: "closed", Host: "closed.test", Ports: []uint16{w.port}, Protocol: "http"},
			{ID: "bad", Host: "bad.test", Ports: []uint16{w.port}, Protocol: "http", Private: true},
		}, Leases: []task.Lease{{
			ID: "l-aaaaaaaaaaaaaaaa", Credential: "key", Header: "X-Api-Key", Placeholder: placeholder, Hosts: []string{"model.test"}, Ports: []uint16{w.port},
		}}},
		Resolver: hosts{"model.test": "127.0.0.1", "closed.test": "127.0.0.1", "bad.test": "127.0.0.1"},
		Guard:    guard.New(nil, func() ([]netip.Addr, error) { return nil, nil }), Roots: far.Roots, Lender: w.lender, Record: w.record,
	}
	if edit != nil {
		edit(&o)
	}
	if w.transport, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.transport.Close)
	return w
}

// do sends a request and gives the body, or the reason for which there is none.
func (w *world) do(method, url string, edit func(*http.Request)) (string, task.Reason) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader("ask"))
	if err != nil {
		w.t.Fatal(err)
	}
	if edit != nil {
		edit(r)
	}
	client := &http.Client{Transport: w.transport, Timeout: time.Minute}
	res, err := client.Do(r)
	if err != nil {
		if strings.Contains(err.Error(), realKey) {
			w.t.Errorf("the error has the value: %v", err)
		}
		var f *task.Failure
		if !errors.As(err, &f) {
			w.t.Fatalf("not a failure: %v", err)
		}
		return "", f.Reason
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(body), task.ReasonNone
}

func TestTransport(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 3 {
		body, reason := w.do("POST", fmt.Sprintf("%s/v1/m%d", w.url, i), func(r *http.Request) { r.Header.Set("X-Api-Key", placeholder) })
		if body != fmt.Sprintf("/v1/m%d ask", i) || reason != task.ReasonNone || <-w.keys != realKey {
			t.Fatalf("%q, %q", body, reason)
		}
	}
	for what, c := range map[string]struct {
		url  string
		edit func(*http.Request)
		want task.Reason
	}{
		"host":            {"https://no.test/v1/x", nil, task.PolicyDenied},
		"port":            {"https://model.test/v1/x", nil, task.PolicyDenied},
		"path":            {w.url + "/v2/x", nil, task.PolicyDenied},
		"plain http":      {strings.Replace(w.url, "https", "http", 1) + "/v1/x", nil, task.PolicyCredential},
		"spoofed Host":    {w.url + "/v1/x", func(r *http.Request) { r.Host = "no.test" }, task.PolicyNameMismatch},
		"own key":         {w.url + "/v1/x", func(r *http.Request) { r.Header.Set("X-Api-Key", "mine") }, task.PolicyCredential},
		"another scheme":  {"ftp://model.test/v1/x", nil, task.PolicyProtocol},
		"with a user":     {strings.Replace(w.url, "model", "a:b@model", 1) + "/v1/x", nil, task.PolicyProtocol},
		"redirect":        {w.url + "/v1/redirect", nil, task.PolicyDenied},
		"private address": {fmt.Sprintf("https://closed.test:%d/", w.port), nil, task.PolicyAddress},
		"certificate":     {fmt.Sprintf("https://bad.test:%d/", w.port), nil, task.EgressUntrusted},
	} {
		if body, reason := w.do("POST", c.url, c.edit); reason != c.want {
			t.Errorf("%s: %q, %q, want %s", what, body, reason, c.want)
		}
		for len(w.keys) > 0 {
			if <-w.keys; what != "redirect" {
				t.Errorf("%s: the server was asked", what)
			}
		}
	}
	if w.find(func(r task.EgressRecord) bool {
		return r.Done && r.Status == 200 && r.Path == "/v1/m0" && r.Lease == "l-aaaaaaaaaaaaaaaa" && r.BytesIn > 0 && r.BytesOut == 3 && r.Rule == "agent.model"
	}) < 0 {
		t.Errorf("no record of the end: %+v", w.records)
	}
	if w.find(func(r task.EgressRecord) bool {
		return r.Verdict == "denied" && r.Reason == task.PolicyDenied && r.Name == "no.test"
	}) < 0 {
		t.Errorf("no record of a refusal")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(fmt.Sprintf("%+v", w.records), realKey) {
		t.Error("the record has the value")
	}
}

func TestTransportLendsOrRefuses(t *testing.T) {
	w := newWorld(t, nil)
	w.lender.err = errors.New("away")
	if _, reason := w.do("POST", w.url+"/v1/x", nil); reason != task.InfraControlAway {
		t.Errorf("away: %s", reason)
	}
	w.lender.err = task.Fail(task.PolicyCredential, "revoked", nil)
	if _, reason := w.do("POST", w.url+"/v1/x", nil); reason != task.PolicyCredential {
		t.Errorf("revoked: %s", reason)
	}
	w.lender.err = nil
	w.mu.Lock()
	w.full = true
	w.mu.Unlock()
	asked := w.lender.asked.Load()
	if _, reason := w.do("POST", w.url+"/v1/x", nil); reason != task.InfraStorage || w.lender.asked.Load() != asked {
		t.Errorf("no record: %s", reason)
	}
	if len(w.keys) > 0 {
		t.Error("the server was asked")
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a transport without anything")
	}
}

func TestCloseCutsTransport(t *testing.T) {
	w := newWorld(t, nil)
	r, err := http.NewRequestWithContext(t.Context(), "GET", w.url+"/v1/wait", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	w.transport.Close()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the stream ended as if it were whole")
	}
	if _, reason := w.do("GET", w.url+"/v1/x", nil); reason != task.PolicyDenied {
		t.Errorf("after the end: %s", reason)
	}
	if w.find(func(r task.EgressRecord) bool { return r.Done && r.Request == 1 && r.Path == "/v1/wait" }) < 0 {
		t.Error("no record of the end")
	}
}

func TestRoots(t *testing.T) {
	dir := t.TempDir()
	for text, ok := range map[string]bool{string(egresstest.NewFar(t).PEM): true, "": false, "garbage": false, "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n": false} {
		file := dir + "/roots.pem"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if pool, _, err := ReadRoots(file); (err == nil && pool != nil) != ok {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	if _, _, err := ReadRoots(dir + "/none"); err == nil {
		t.Error("a file that isn't there")
	}
	if pool, _, err := ReadRoots(""); pool != nil || err != nil {
		t.Errorf("no file: %v, %v", pool, err)
	}
}

// A pool that resumes a session still verifies the name.
func TestWireVerifies(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	wire := NewWire(WireOptions{Dial: (&net.Dialer{}).DialContext, Sessions: tls.NewLRUClientSessionCache(4), Name: "model.test"})
	defer wire.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := wire.RoundTrip(r)
	if err == nil {
		res.Body.Close()
	}
	if err == nil || Fault(err) != task.EgressUntrusted {
		t.Errorf("%v", err)
	}
}

package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/record"
	"github.com/cofferdam/cofferdam/internal/egress/refusal"
	"github.com/cofferdam/cofferdam/internal/task"
)

const testID = "sb-aaaaaaaaaaaaaaaa"

// rig is a gateway with one sandbox whose network is a second stack.
type rig struct {
	t        *testing.T
	gateway  *Gateway
	client   *egresstest.Client
	inside   *os.File
	pem      []byte
	records  string
	resolver *mapResolver
}

// mapResolver stands for the DNS outside, and counts what it is asked.
type mapResolver struct {
	mu     sync.Mutex
	hosts  map[string][]netip.Addr
	looked map[string]int
}

func (r *mapResolver) Lookup(_ context.Context, name string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looked[name]++
	if a := r.hosts[name]; len(a) > 0 {
		return a, nil
	}
	return nil, fmt.Errorf("%s: no such host", name)
}

func (r *mapResolver) set(name string, to []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts[name] = to
}

func (r *mapResolver) queries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.looked {
		n += c
	}
	return n
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

type option func(*Options)

func newRig(t *testing.T, rules []task.Rule, options ...option) *rig {
	t.Helper()
	r := &rig{t: t, records: t.TempDir(), resolver: &mapResolver{looked: map[string]int{}, hosts: map[string][]netip.Addr{
		"ok.test": addrs("127.0.0.1"), "no.test": addrs("127.0.0.1"), "evil.test": addrs("169.254.169.254"),
		"mixed.test": addrs("127.0.0.1", "169.254.169.254"), "private.test": addrs("10.9.8.7"), "metadata.google.internal": addrs("127.0.0.1"),
		"dead.test": addrs("127.0.0.1"), "second.test": addrs("127.0.0.9", "127.0.0.1"),
	}}}
	o := Options{
		Resolver: r.resolver, Records: r.records, SealKey: []byte("a key for tests only"),
		Guard: guard.New(nil, func() ([]netip.Addr, error) { return addrs("127.0.0.1"), nil }), Log: slog.New(slog.DiscardHandler),
		Stored: func(context.Context, string, names.Entry) error { return nil }, Broken: func(string) {},
	}
	for _, f := range options {
		f(&o)
	}
	var err error
	if r.gateway, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.gateway.Close)
	side, inside := egresstest.Pair(t)
	r.inside = inside
	device, err := duplicate(side)
	if err != nil {
		t.Fatal(err)
	}
	r.pem, _, err = r.gateway.Attach(Handed{Sandbox: testID, Device: device, Grant: grantOf(rules...)})
	if err != nil {
		t.Fatal(err)
	}
	r.client = egresstest.NewClient(t, inside)
	return r
}

func grantOf(rules ...task.Rule) task.Grant {
	return task.Grant{Task: "t-aaaaaaaaaaaaaaaa", Stage: task.Agent, Sandbox: testID, Rules: rules}
}

func private(host string, ports ...uint16) task.Rule {
	return task.Rule{ID: "rule:" + host, Host: host, Ports: ports, Private: true}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) logged() []task.EgressRecord {
	f, err := os.Open(record.Path(r.records, testID))
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	out, err := record.Read(f, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// await polls the records until one fits.
func (r *rig) await(what string, fits func(task.EgressRecord) bool) task.EgressRecord {
	r.t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for {
		all := r.logged()
		for _, rec := range all {
			if fits(rec) {
				return rec
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no record: %s; there are %+v", what, all)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func denied(reason task.Reason) func(task.EgressRecord) bool {
	return func(rec task.EgressRecord) bool { return rec.Verdict == "denied" && rec.Reason == reason }
}

// upstream is a server that counts what reaches it.
type upstream struct {
	net.Listener
	port     uint16
	accepted atomic.Int64
	bytes    atomic.Int64
}

type countingConn struct {
	net.Conn
	u *upstream
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.u.bytes.Add(int64(n))
	return n, err
}

func (u *upstream) Accept() (net.Conn, error) {
	c, err := u.Listener.Accept()
	if err != nil {
		return nil, err
	}
	u.accepted.Add(1)
	return &countingConn{c, u}, nil
}

// listen starts a listener on some port; the gateway is told to go there for
// any port by redirecting decisions, never addresses: tests use the real port.
func listen(t *testing.T) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &upstream{Listener: l, port: netip.MustParseAddrPort(l.Addr().String()).Port()}
}

// httpServer echoes method, host, path and body.
func httpServer(t *testing.T) *upstream {
	u := listen(t)
	s := &httptest.Server{Listener: u, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.URL.RequestURI(), body)
	})}}
	s.Start()
	t.Cleanup(s.Close)
	return u
}

// tlsServer is an HTTPS server; the pool trusts it.
func tlsServer(t *testing.T) (*upstream, *x509.CertPool) {
	u := listen(t)
	s := &httptest.Server{Listener: u, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s over %s", r.Host, r.Proto)
	})}, EnableHTTP2: true}
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return u, pool
}

func (r *rig) http(config *tls.Config) *http.Client {
	tr := &http.Transport{DialContext: r.client.DialContext, TLSClientConfig: config, ForceAttemptHTTP2: true}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

func (r *rig) get(c *http.Client, url string) (int, string) {
	r.t.Helper()
	res, err := c.Get(url)
	if err != nil {
		r.t.Fatalf("GET %s: %v", url, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatalf("GET %s: %v", url, err)
	}
	return res.StatusCode, string(body)
}

func code(t *testing.T, body string) task.Reason {
	t.Helper()
	var p refusal.Problem
	if strings.HasPrefix(body, "<?xml") { // to clients of AWS
		_, code, _ := strings.Cut(body, "<Code>")
		code, _, _ = strings.Cut(code, "</Code>")
		return task.Reason(code)
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if p.Host == "" || p.Port == 0 || p.Hint == "" {
		t.Errorf("incomplete problem %q", body)
	}
	return p.Code
}

package egress

import (
	"bufio"
	"bytes"
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

	"github.com/miekg/dns"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/record"
	"github.com/cofferdam/cofferdam/internal/policy"
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
		Decide: policy.Decide, Resolver: r.resolver, Records: r.records, SealKey: []byte("a key for tests only"),
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
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
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
	var p problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if p.Host == "" || p.Port == 0 || p.Hint == "" {
		t.Errorf("incomplete problem %q", body)
	}
	return p.Code
}

func TestPlainHTTPPasses(t *testing.T) {
	u := httpServer(t)
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	client := r.http(nil)
	for i := range 3 {
		status, body := r.get(client, fmt.Sprintf("http://ok.test:%d/a%%2Fb?x=%d;y", u.port, i))
		if want := fmt.Sprintf("GET ok.test:%d /a%%2Fb?x=%d;y ", u.port, i); status != 200 || body != want {
			t.Errorf("%d %q, want %q", status, body, want)
		}
	}
	res, err := client.Post(fmt.Sprintf("http://ok.test:%d/", u.port), "text/plain", strings.NewReader(strings.Repeat("b", 100_000)))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if len(body) < 100_000 {
		t.Errorf("a posted body came back as %d bytes", len(body))
	}
	if n := u.accepted.Load(); n != 1 {
		t.Errorf("%d connections upstream for one kept alive", n)
	}
	client.CloseIdleConnections()
	end := r.await("end", func(rec task.EgressRecord) bool { return rec.Done && rec.Protocol == "http" })
	if end.BytesOut != u.bytes.Load() || end.BytesIn < 100_000 || end.Verdict != "allowed" || end.Rule != "rule:ok.test" || end.Name != "ok.test" || end.Address != "127.0.0.1" {
		t.Errorf("record %+v, upstream saw %d bytes", end, u.bytes.Load())
	}
}

func TestSplicedTLSPasses(t *testing.T) {
	u, pool := tlsServer(t)
	r := newRig(t, []task.Rule{private("example.com", u.port)})
	r.resolver.hosts["example.com"] = addrs("127.0.0.1")
	status, body := r.get(r.http(&tls.Config{RootCAs: pool}), fmt.Sprintf("https://example.com:%d/", u.port))
	if status != 200 || !strings.Contains(body, "HTTP/2.0") {
		t.Errorf("%d %q", status, body)
	}
	r.await("allowed", func(rec task.EgressRecord) bool {
		return rec.Verdict == "allowed" && !rec.Done && rec.Name == "example.com"
	})
}

func TestDeniedSpeaks(t *testing.T) {
	r := newRig(t, nil)
	for _, url := range []string{"http://no.test/any/path?q", "https://no.test/", "http://1.2.3.4/", "https://1.2.3.4/", "http://[2001:db8::1]/", "http://198.18.77.77/"} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(r.pem)
		status, body := r.get(r.http(&tls.Config{RootCAs: roots}), url)
		if status != 403 || code(t, body) != task.PolicyDenied {
			t.Errorf("%s: %d %q", url, status, body)
		}
	}
	for _, port := range []uint16{22, 8080, 5432} {
		if c, err := r.client.DialName(r.ctx(), "tcp", "no.test", port); err == nil {
			c.Close()
			t.Errorf("port %d is open", port)
		} else if !strings.Contains(err.Error(), "refused") {
			t.Errorf("port %d: %v, want a reset", port, err)
		}
	}
	if n := r.resolver.queries(); n != 0 {
		t.Errorf("%d names were looked up outside: %v", n, r.resolver.looked)
	}
	r.await("name", func(rec task.EgressRecord) bool {
		return rec.Name == "no.test" && rec.Port == 22 && rec.Reason == task.PolicyDenied
	})
	r.await("address", func(rec task.EgressRecord) bool { return rec.Address == "1.2.3.4" && rec.Reason == task.PolicyDenied })
}

func TestNothingIsLookedUpForTheInside(t *testing.T) {
	r := newRig(t, []task.Rule{private("ok.test", 443)})
	for i := range 50 {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeHTTPS, dns.TypeMX, dns.TypeSRV, dns.TypeNS, dns.TypeANY} {
			q := new(dns.Msg)
			q.SetQuestion(fmt.Sprintf("secret%d.evil.example.", i), kind)
			reply, err := r.client.Ask(r.ctx(), q)
			if err != nil {
				t.Fatal(err)
			}
			address := kind == dns.TypeA || kind == dns.TypeAAAA
			if reply.Rcode != dns.RcodeSuccess || (len(reply.Answer) == 1) != address || reply.Id != q.Id {
				t.Errorf("%s: %v", dns.TypeToString[kind], reply)
			}
		}
	}
	if n := r.resolver.queries(); n != 0 {
		t.Errorf("%d look-ups", n)
	}
}

func TestOtherNameServersAreRefusedAtOnce(t *testing.T) {
	r := newRig(t, []task.Rule{{ID: "r", Host: "8.8.8.8", Ports: []uint16{53}}})
	for _, to := range []string{"8.8.8.8:53", "[2001:4860:4860::8888]:53", "1.1.1.1:5353", "9.9.9.9:443", "198.18.0.1:123"} {
		c, err := r.client.Packet(netip.MustParseAddrPort(to))
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		// The error of one packet is told with the next.
		for begun := time.Now(); err == nil && time.Since(begun) < 10*time.Second; time.Sleep(time.Millisecond) {
			_, err = c.Write([]byte("................"))
		}
		if err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v, want an ICMP error", to, err)
		}
		c.Close()
	}
	if c, err := r.client.Dial(r.ctx(), netip.MustParseAddrPort("8.8.8.8:53")); err == nil {
		c.Close()
		t.Error("DNS over TCP to another server is open")
	}
	r.await("udp", func(rec task.EgressRecord) bool {
		return rec.Protocol == "dns" && rec.Address == "8.8.8.8" && rec.Reason == task.PolicyProtocol
	})
	r.await("v6", func(rec task.EgressRecord) bool {
		return rec.Address == "2001:4860:4860::8888" && rec.Reason == task.PolicyProtocol
	})
	r.await("tcp", func(rec task.EgressRecord) bool {
		return rec.Conn > 0 && rec.Address == "8.8.8.8" && rec.Reason == task.PolicyProtocol
	})
}

func TestNameServiceOverTCP(t *testing.T) {
	r := newRig(t, nil)
	conn, err := r.client.Dial(r.ctx(), netip.MustParseAddrPort("198.18.0.1:53"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	co := &dns.Conn{Conn: conn}
	for range 3 {
		q := new(dns.Msg)
		q.SetQuestion("Over.TCP.test.", dns.TypeA)
		if err := co.WriteMsg(q); err != nil {
			t.Fatal(err)
		}
		reply, err := co.ReadMsg()
		if err != nil || len(reply.Answer) != 1 || reply.Question[0].Name != "Over.TCP.test." {
			t.Fatalf("%v, %v", reply, err)
		}
	}
}

func TestNamesKeepTheirAddressAndAreCapped(t *testing.T) {
	r := newRig(t, nil, func(o *Options) { o.Limits.Names = 3 })
	first, err := r.client.Lookup(r.ctx(), "a.test", dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	r.client.Lookup(r.ctx(), "b.test", dns.TypeA)
	r.client.Lookup(r.ctx(), "c.test", dns.TypeAAAA)
	if again, _ := r.client.Lookup(r.ctx(), "A.test", dns.TypeA); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if addr, err := r.client.Lookup(r.ctx(), "d.test", dns.TypeA); err == nil {
		t.Errorf("the fourth of three names got %s", addr)
	}
	r.await("cap", denied(task.LimitNames))
}

func TestNameIsNotToldBeforeItIsStored(t *testing.T) {
	var stored sync.Map
	fail := atomic.Bool{}
	r := newRig(t, nil, func(o *Options) {
		o.Stored = func(_ context.Context, id string, e names.Entry) error {
			if fail.Load() {
				return fmt.Errorf("no worker")
			}
			stored.Store(e.Name, id)
			return nil
		}
	})
	if _, err := r.client.Lookup(r.ctx(), "a.test", dns.TypeA); err != nil {
		t.Fatal(err)
	}
	if id, ok := stored.Load("a.test"); !ok || id != testID {
		t.Error("told, not stored")
	}
	fail.Store(true)
	if addr, err := r.client.Lookup(r.ctx(), "b.test", dns.TypeA); err == nil {
		t.Errorf("told %s, which nobody stored", addr)
	}
	if _, err := r.client.Lookup(r.ctx(), "a.test", dns.TypeA); err != nil {
		t.Errorf("a stored name needs nobody: %v", err)
	}
	fail.Store(false)
	if _, err := r.client.Lookup(r.ctx(), "b.test", dns.TypeA); err != nil {
		t.Errorf("once the worker is back: %v", err)
	}
}

func TestGuardedAddresses(t *testing.T) {
	u := httpServer(t)
	r := newRig(t, []task.Rule{
		private("evil.test", 80, u.port), private("mixed.test", 80, u.port), private("metadata.google.internal", 80, u.port),
		{ID: "p", Host: "private.test", Ports: []uint16{80}}, {ID: "n", Host: "ok.test", Ports: []uint16{80, u.port}},
		private("169.254.169.254", 80), private("100.100.100.200", 80), private("fd00:ec2::254", 80), private("198.18.0.1", 80), private("198.18.99.99", 80),
		private("64:ff9b::a9fe:a9fe", 80),
	})
	for url, want := range map[string]task.Reason{
		"http://evil.test/": task.PolicyAddress, "http://mixed.test/": task.PolicyAddress, "http://private.test/": task.PolicyAddress,
		"http://ok.test/": task.PolicyAddress, "http://metadata.google.internal/computeMetadata/v1/": task.PolicyAddress,
		"http://169.254.169.254/latest/meta-data/": task.PolicyAddress, "http://100.100.100.200/": task.PolicyAddress,
		"http://[fd00:ec2::254]/": task.PolicyAddress, "http://[64:ff9b::a9fe:a9fe]/": task.PolicyAddress,
		"http://169.254.170.2/": task.PolicyDenied, "http://198.18.0.1/": task.PolicyDenied, "http://198.18.99.99/": task.PolicyDenied,
	} {
		status, body := r.get(r.http(nil), url)
		if status != 403 || code(t, body) != want {
			t.Errorf("%s: %d %q, want %s", url, status, body, want)
		}
	}
	if r.resolver.looked["metadata.google.internal"] != 0 {
		t.Error("a metadata name was looked up")
	}
	if u.accepted.Load() != 0 {
		t.Error("the upstream was reached")
	}
}

func TestUnreachableAndUnresolved(t *testing.T) {
	gone := listen(t)
	gone.Close()
	r := newRig(t, []task.Rule{private("dead.test", 80, 443, gone.port), private("nowhere.test", 80)})
	if status, body := r.get(r.http(nil), "http://nowhere.test/"); status != 502 || code(t, body) != task.EgressUnresolved {
		t.Errorf("unresolved: %d %q", status, body)
	}
	if c, err := r.client.DialName(r.ctx(), "tcp", "dead.test", gone.port); err == nil {
		c.Close()
		t.Error("a dead upstream is open inside")
	}
	end := r.await("unreachable", func(rec task.EgressRecord) bool { return rec.Done && rec.Reason == task.EgressUnreachable })
	if end.Name != "dead.test" || end.Verdict != "allowed" {
		t.Errorf("%+v", end)
	}
}

// raw sends bytes and gives everything that comes back.
func (r *rig) raw(name string, port uint16, send string) string {
	r.t.Helper()
	c, err := r.client.DialName(r.ctx(), "tcp", name, port)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := io.WriteString(c, send); err != nil {
		r.t.Fatal(err)
	}
	all, _ := io.ReadAll(c)
	return string(all)
}

func TestMismatchesAreRefused(t *testing.T) {
	u := httpServer(t)
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	for what, request := range map[string]string{
		"host":         "GET / HTTP/1.1\r\nHost: no.test\r\n\r\n",
		"port":         "GET / HTTP/1.1\r\nHost: ok.test:1\r\n\r\n",
		"no host":      "GET / HTTP/1.0\r\n\r\n",
		"absolute":     "GET http://no.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n",
		"https":        "GET https://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n",
		"connect":      "CONNECT no.test:443 HTTP/1.1\r\nHost: no.test:443\r\n\r\n",
		"connect self": "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test\r\n\r\n",
		"h2c":          "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\r\n",
		"empty line":   "\r\nGET / HTTP/1.1\r\nHost: no.test\r\n\r\n",
		"two hosts":    "GET / HTTP/1.1\r\nHost: ok.test\r\nHost: no.test\r\n\r\n",
		"preface":      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		answer := r.raw("ok.test", u.port, request)
		if strings.Contains(answer, " 200 ") {
			t.Errorf("%s passed: %q", what, answer)
		}
		if strings.Contains(what, "host") && what == "host" && !strings.Contains(answer, string(task.PolicyNameMismatch)) {
			t.Errorf("%s: %q does not say why", what, answer)
		}
	}
	// A good request first, another host on the same connection.
	answer := r.raw("ok.test", u.port, "GET /good HTTP/1.1\r\nHost: ok.test\r\n\r\nGET /bad HTTP/1.1\r\nHost: no.test\r\n\r\n")
	if !strings.Contains(answer, "GET ok.test /good") || !strings.Contains(answer, "403") || strings.Contains(answer, "GET no.test") {
		t.Errorf("second request: %q", answer)
	}
	rec := r.await("request", func(rec task.EgressRecord) bool {
		return rec.HostName == "no.test" && rec.Reason == task.PolicyNameMismatch
	})
	if rec.Name != "ok.test" || rec.Verdict != "denied" {
		t.Errorf("%+v", rec)
	}
	only := int64(len("GET /good HTTP/1.1\r\nHost: ok.test\r\n\r\n"))
	if n := u.bytes.Load(); n > only+64 {
		t.Errorf("%d bytes reached the upstream, the one good request has %d", n, only)
	}
}

func TestTLSNamesMustAgree(t *testing.T) {
	u, pool := tlsServer(t)
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	dial := func(name string, config *tls.Config) error {
		conn, err := r.client.DialName(r.ctx(), "tcp6", name, u.port)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(15 * time.Second))
		config.RootCAs = pool
		if config.ServerName != name {
			config.InsecureSkipVerify = true
		}
		c := tls.Client(conn, config)
		if err := c.Handshake(); err != nil {
			return err
		}
		if !c.ConnectionState().PeerCertificates[0].Equal(mustCert(t, pool)) {
			return fmt.Errorf("answered by the gateway")
		}
		return nil
	}
	if err := dial("ok.test", &tls.Config{ServerName: "ok.test", InsecureSkipVerify: true}); err != nil {
		t.Errorf("the same name: %v", err)
	}
	before := u.bytes.Load()
	for _, c := range []struct {
		name   string
		config *tls.Config
	}{
		{"ok.test", &tls.Config{ServerName: "no.test"}}, {"ok.test", &tls.Config{ServerName: ""}}, {"ok.test", &tls.Config{ServerName: "ok.test.evil.example"}},
		{"ok.test", &tls.Config{ServerName: "127.0.0.1"}},
	} {
		if err := dial(c.name, c.config); err == nil {
			t.Errorf("to %s with name %q passed", c.name, c.config.ServerName)
		}
	}
	rec := r.await("mismatch", func(rec task.EgressRecord) bool { return rec.SNI == "no.test" && rec.Done })
	if rec.Verdict != "denied" || rec.Reason != task.PolicyNameMismatch || rec.BytesOut != 0 {
		t.Errorf("%+v", rec)
	}
	if n := u.bytes.Load() - before; n != 0 {
		t.Errorf("%d bytes of mismatched connections reached the upstream", n)
	}
}

func TestAgrees(t *testing.T) {
	for _, c := range []struct {
		name, address, sni, host string
		tls, http                bool
	}{
		{name: "a.test", sni: "a.test", host: "A.test", tls: true, http: true},
		{name: "a.test", sni: "", host: "a.test.:8080", http: true},
		{name: "a.test", sni: "a.test.", host: "a.test:80"},
		{name: "a.test", sni: "b.test", host: "b.test"},
		{name: "a.test", sni: "xa.test", host: ""},
		{address: "192.0.2.1", sni: "", host: "192.0.2.1:8080", tls: true, http: true},
		{address: "192.0.2.1", sni: "a.test", host: "a.test"},
		{address: "192.0.2.1", sni: "192.0.2.1", host: "192.0.2.2"},
		{address: "2001:db8::1", sni: "", host: "[2001:db8:0::1]:8080", tls: true, http: true},
		{address: "2001:db8::1", sni: "a.test", host: "[2001:db8::2]"},
		{address: "2001:db8::1", sni: "a.test", host: "[2001:db8::1%eth0]"},
		{name: "a.test", sni: "A", host: "a.test:"},
		{name: "a.test", sni: "A", host: "a.test:8080:8080"},
		{sni: "", host: ""},
	} {
		con := &connection{name: c.name, address: c.address, to: netip.MustParseAddrPort("198.18.1.1:8080")}
		if got := con.agrees(c.sni); got != c.tls {
			t.Errorf("%+v: SNI agrees: %v", c, got)
		}
		if got := con.sameHost(c.host); got != c.http {
			t.Errorf("%+v: Host agrees: %v", c, got)
		}
	}
}

func mustCert(t *testing.T, pool *x509.CertPool) *x509.Certificate {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return s.Certificate() // httptest has one certificate for all servers
}

func TestServerMaySpeakFirst(t *testing.T) {
	u := listen(t)
	go func() {
		for {
			c, err := u.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprint(c, "220 ready\r\n")
				line, _ := bufio.NewReader(c).ReadString('\n')
				fmt.Fprintf(c, "you said %s", line)
			}()
		}
	}()
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(15 * time.Second))
	b := bufio.NewReader(c)
	if line, err := b.ReadString('\n'); line != "220 ready\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprint(c, "HELO me\r\n")
	if rest, err := io.ReadAll(b); string(rest) != "you said HELO me\r\n" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestClientMaySpeakFirstAndHalfClose(t *testing.T) {
	u := listen(t)
	go func() {
		for {
			c, err := u.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				all, _ := io.ReadAll(c)
				c.Write(bytes.ToUpper(all))
			}()
		}
	}()
	r := newRig(t, []task.Rule{private("second.test", u.port)})
	for _, send := range []string{"ruok", "\x00\x01binary", "hello there\nsecond", "line\n" + strings.Repeat("long ", 200_000)} {
		c, err := r.client.DialName(r.ctx(), "tcp", "second.test", u.port)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(c, send)
		c.CloseWrite()
		if back, err := io.ReadAll(c); string(back) != strings.ToUpper(send) || err != nil {
			t.Errorf("%.20q: %d bytes back, %v", send, len(back), err)
		}
		c.Close()
	}
	// 127.0.0.9 was tried first, and each address dialled has its own record.
	r.await("first address", func(rec task.EgressRecord) bool { return rec.Address == "127.0.0.9" && !rec.Done })
	r.await("second address", func(rec task.EgressRecord) bool { return rec.Address == "127.0.0.1" && rec.Done && rec.BytesIn > 0 })
}

func TestGrantCutsWhatWasOpen(t *testing.T) {
	u := listen(t)
	go func() {
		for {
			c, err := u.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, c)
		}
	}()
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(15 * time.Second))
	c.Write([]byte("\x00some bytes"))
	if err := r.gateway.SetGrant(grantOf(private("ok.test", u.port))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("more")); err != nil {
		t.Errorf("the same grant cut a connection: %v", err)
	}
	if err := r.gateway.SetGrant(task.Grant{Sandbox: testID}); err != nil {
		t.Fatal(err)
	}
	before := u.bytes.Load()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	c.Write([]byte("late"))
	if after := u.bytes.Load(); after != before {
		t.Errorf("%d bytes passed after the grant was taken", after-before)
	}
	if c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port); err == nil {
		c.Close()
		t.Error("a new connection passes")
	}
	end := r.await("end", func(rec task.EgressRecord) bool { return rec.Done })
	if end.BytesOut != before || end.Stage != task.Agent {
		t.Errorf("%+v, upstream saw %d bytes", end, before)
	}
	if err := r.gateway.SetGrant(task.Grant{Sandbox: "sb-bbbbbbbbbbbbbbbb"}); err == nil {
		t.Error("an unknown sandbox takes a grant")
	}
}

func TestConnectionsAreCapped(t *testing.T) {
	u := listen(t)
	r := newRig(t, []task.Rule{private("ok.test", u.port)}, func(o *Options) { o.Limits.Connections = 4 })
	for range 4 {
		c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port); err == nil {
		c.Close()
		t.Error("the fifth of four passes")
	}
	r.await("cap", denied(task.LimitConnections))
}

func TestRecordIsWrittenBeforeTheDial(t *testing.T) {
	u := listen(t)
	seen := make(chan int, 1)
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	go func() {
		c, err := u.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		n := 0
		for _, rec := range r.logged() {
			if rec.Verdict == "allowed" && rec.Name == "ok.test" && rec.Address == "127.0.0.1" {
				n++
			}
		}
		seen <- n
	}()
	c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := <-seen; n != 1 {
		t.Errorf("when the upstream accepted there were %d records", n)
	}
}

func TestNoRecordNoDial(t *testing.T) {
	u := listen(t)
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	r.gateway.way(testID).records.Close() // a log that takes nothing, as with a full disk
	if c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port); err == nil {
		c.Close()
		t.Error("a connection without a record")
	}
	if u.accepted.Load() != 0 {
		t.Error("dialled without a record")
	}
}

func TestUpgradePasses(t *testing.T) {
	u := listen(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := b.ReadString('\n')
		fmt.Fprintf(c, "echo %s", line)
	})}
	go server.Serve(u)
	t.Cleanup(func() { server.Close() })
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(15 * time.Second))
	fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	b := bufio.NewReader(c)
	res, err := http.ReadResponse(b, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, %v", res, err)
	}
	fmt.Fprint(c, "ping\n")
	if line, err := b.ReadString('\n'); line != "echo ping\n" {
		t.Errorf("%q, %v", line, err)
	}
}

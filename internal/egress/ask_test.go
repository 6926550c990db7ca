package egress

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// person answers what a gateway asks, when a test says so.
type person struct {
	asked  chan task.Held
	answer chan said
	gone   chan task.Held // whose asking ended before there was an answer
}

type said struct {
	answer task.HeldAnswer
	err    error
}

func newPerson() *person {
	return &person{asked: make(chan task.Held, 100), answer: make(chan said), gone: make(chan task.Held, 100)}
}

func (p *person) Ask(ctx context.Context, h task.Held) (task.HeldAnswer, error) {
	p.asked <- h
	select {
	case s := <-p.answer:
		return s.answer, s.err
	case <-ctx.Done():
		p.gone <- h
		return task.HeldAnswer{}, task.Fail(task.InfraControlAway, "too late", ctx.Err())
	}
}

func (p *person) await(t *testing.T) task.Held {
	t.Helper()
	return receive(t, p.asked)
}

func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
	}
	return v
}

// askRig is a rig whose grant asks about the unknown, and whose upstream pub.test
// has a public address that the gateway's dial leads to this machine.
func askRig(t *testing.T, p *person, unknown task.Unknown, rules ...task.Rule) *rig {
	t.Helper()
	r := newRig(t, nil, func(o *Options) { o.Asker = p })
	r.resolver.set("pub.test", addrs("203.0.113.7"))
	r.resolver.set("example.com", addrs("203.0.113.7"))
	real := r.gateway.dial
	r.gateway.dial = func(ctx context.Context, a []netip.Addr, port uint16, before func(netip.AddrPort) error) (*net.TCPConn, netip.AddrPort, error) {
		if !slices.Equal(a, addrs("203.0.113.7")) {
			return real(ctx, a, port, before)
		}
		if err := before(netip.AddrPortFrom(a[0], port)); err != nil {
			return nil, netip.AddrPort{}, err
		}
		return real(ctx, addrs("127.0.0.1"), port, func(netip.AddrPort) error { return nil })
	}
	g := grantOf(rules...)
	g.Unknown = unknown
	if err := r.gateway.SetGrant(g); err != nil {
		t.Fatal(err)
	}
	return r
}

var asking = task.Unknown{Mode: task.UnknownAsk, Wait: time.Minute}

type got struct {
	status int
	body   string
	err    error
}

// fetch begins a request, which may be held.
func (r *rig) fetch(url string, config *tls.Config) <-chan got {
	out := make(chan got, 1)
	client := r.http(config)
	go func() {
		res, err := client.Get(url)
		if err != nil {
			out <- got{err: err}
			return
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		out <- got{res.StatusCode, string(body), err}
	}()
	return out
}

func port(u *upstream) string {
	return netip.AddrPortFrom(netip.IPv4Unspecified(), u.port).String()[len("0.0.0.0"):]
}

func TestHeldConnectionIsAllowed(t *testing.T) {
	u := httpServer(t)
	p := newPerson()
	r := askRig(t, p, asking)
	out := r.fetch("http://pub.test"+port(u)+"/some/path?secret=1", nil)
	h := p.await(t)
	want := task.EgressAsk{Name: "pub.test", Port: u.port, Protocol: "http", Seen: "http", Method: "GET", Path: "/some/path"}
	if h.EgressAsk != want || h.Sandbox != testID || h.Use == "" {
		t.Errorf("asked %+v", h)
	}
	if r.resolver.queries() != 0 || u.accepted.Load() != 0 {
		t.Error("something was looked up or dialled before the answer")
	}
	p.answer <- said{answer: task.HeldAnswer{Allow: true, Once: true, ID: "ap-1"}}
	if g := receive(t, out); g.err != nil || g.status != 200 || g.body != "GET pub.test"+port(u)+" /some/path?secret=1 " {
		t.Errorf("%+v", g)
	}
	r.await("decision", func(rec task.EgressRecord) bool {
		return rec.Verdict == "allowed" && rec.Rule == "ask/ap-1" && rec.Name == "pub.test" && rec.Address == "203.0.113.7"
	})
	// Once is this connection: the next one is asked about again.
	out = r.fetch("http://pub.test"+port(u)+"/some/path", nil)
	p.await(t)
	p.answer <- said{answer: task.HeldAnswer{Reason: task.ApprovalDenied}}
	if g := receive(t, out); g.status != 403 || code(t, g.body) != task.ApprovalDenied {
		t.Errorf("%+v", g)
	}
}

// An answer for one request of plain HTTP is for that request, whatever else is
// sent on the connection.
func TestOnceIsOneRequest(t *testing.T) {
	u := httpServer(t)
	p := newPerson()
	r := askRig(t, p, asking)
	out := make(chan string, 1)
	go func() {
		out <- r.raw("pub.test", u.port, "GET /a HTTP/1.1\r\nHost: pub.test"+port(u)+"\r\n\r\nGET /a HTTP/1.1\r\nHost: pub.test"+port(u)+"\r\n\r\n")
	}()
	p.await(t)
	p.answer <- said{answer: task.HeldAnswer{Allow: true, Once: true, ID: "ap-1"}}
	if answer := receive(t, out); strings.Count(answer, " 200 ") != 1 {
		t.Errorf("%q", answer)
	}
	go func() {
		out <- r.raw("pub.test", u.port, "GET /a/../b HTTP/1.1\r\nHost: pub.test"+port(u)+"\r\n\r\n")
	}()
	p.await(t)
	p.answer <- said{answer: task.HeldAnswer{Allow: true, Once: true, ID: "ap-2"}}
	if answer := receive(t, out); strings.Contains(answer, " 200 ") {
		t.Errorf("%q", answer)
	}
}

func TestHeldTLS(t *testing.T) {
	u, pool := tlsServer(t)
	p := newPerson()
	r := askRig(t, p, asking)
	config := &tls.Config{RootCAs: pool}
	out := r.fetch("https://example.com"+port(u)+"/", config)
	if h := p.await(t); h.Seen != "tls" || h.Protocol != "tls" || h.Path != "" || h.Name != "example.com" {
		t.Errorf("asked %+v", h)
	}
	p.answer <- said{answer: task.HeldAnswer{Allow: true, ID: "d-1"}}
	if g := receive(t, out); g.err != nil || !strings.HasPrefix(g.body, "hello example.com") {
		t.Errorf("%+v", g)
	}
	// A name in the ClientHello that is not the one asked for is no question.
	c, err := r.client.DialName(r.ctx(), "tcp", "pub.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = tls.Client(c, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true}).HandshakeContext(r.ctx())
	r.await("mismatch", denied(task.PolicyNameMismatch))
	if len(p.asked) != 0 {
		t.Error("asked about a mismatch")
	}
}

func TestHeldIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		said   said
		status int
		reason task.Reason
	}{
		"denied":             {said{answer: task.HeldAnswer{Reason: task.ApprovalDenied}}, 403, task.ApprovalDenied},
		"the zero answer":    {said{}, 403, task.ApprovalDenied},
		"expired":            {said{answer: task.HeldAnswer{Reason: task.ApprovalExpired}}, 403, task.ApprovalExpired},
		"control plane away": {said{err: task.Fail(task.InfraControlAway, "away", nil)}, 503, task.InfraControlAway},
		"allowed by nobody":  {said{answer: task.HeldAnswer{Allow: true}}, 403, task.ApprovalDenied},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPerson()
			r := askRig(t, p, asking)
			out := r.fetch("http://pub.test/x", nil)
			p.await(t)
			p.answer <- c.said
			if g := receive(t, out); g.err != nil || g.status != c.status || code(t, g.body) != c.reason {
				t.Errorf("%+v", g)
			}
			r.await("refusal", func(rec task.EgressRecord) bool {
				return rec.Reason == c.reason && rec.Method == "GET" && rec.Path == "/x" && rec.Verdict == "denied"
			})
			if r.resolver.queries() != 0 {
				t.Error("looked up")
			}
		})
	}
}

// Where no answer could help, nobody is asked.
func TestNobodyIsAsked(t *testing.T) {
	p := newPerson()
	within := asking
	within.Within = [][]task.Rule{{{Host: "pub.test", Ports: []uint16{80}}}}
	r := askRig(t, p, within)
	for url, want := range map[string]task.Reason{
		"http://169.254.169.254/": task.PolicyAddress, "http://10.0.0.1/": task.PolicyAddress,
		"http://metadata.google.internal/": task.PolicyAddress, "http://other.test/": task.PolicyDenied, "http://198.18.77.77/": task.PolicyDenied,
	} {
		if g := receive(t, r.fetch(url, nil)); g.status != 403 || code(t, g.body) != want {
			t.Errorf("%s: %+v, want %s", url, g, want)
		}
	}
	if _, err := r.client.DialName(r.ctx(), "tcp", "pub.test", 53); err == nil {
		t.Error("a name server was reached")
	}
	if answer := r.raw("pub.test", 80, "nothing of HTTP\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
		t.Errorf("%q", answer)
	}
	r.await("protocol", denied(task.PolicyProtocol))
	if len(p.asked) != 0 {
		t.Errorf("asked %+v", <-p.asked)
	}
}

// Whatever a person answers, private addresses stay closed.
func TestAllowedIsGuarded(t *testing.T) {
	p := newPerson()
	r := askRig(t, p, asking)
	for _, host := range []string{"evil.test", "mixed.test", "private.test", "ok.test"} {
		out := r.fetch("http://"+host+"/", nil)
		p.await(t)
		p.answer <- said{answer: task.HeldAnswer{Allow: true, ID: "d-1"}}
		if g := receive(t, out); g.status != 403 || code(t, g.body) != task.PolicyAddress {
			t.Errorf("%s: %+v", host, g)
		}
	}
}

// A sandbox holds sixteen connections and no more; those that are given up make
// room.
func TestHeldAreBounded(t *testing.T) {
	p := newPerson()
	r := askRig(t, p, asking)
	var conns []net.Conn
	for range heldMost {
		c, err := r.client.DialName(r.ctx(), "tcp", "pub.test", 443)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		go func() { _ = tls.Client(c, &tls.Config{ServerName: "pub.test"}).HandshakeContext(r.ctx()) }()
		p.await(t)
	}
	if g := receive(t, r.fetch("http://pub.test/", nil)); g.status != 429 || code(t, g.body) != task.LimitRequests {
		t.Errorf("%+v", g)
	}
	conns[0].Close()
	receive(t, p.gone)
	deadline := time.Now().Add(15 * time.Second)
	for len(p.asked) == 0 { // until the place is free
		out := r.fetch("http://pub.test/", nil)
		select {
		case <-out:
		case h := <-p.asked:
			p.asked <- h
		}
		if time.Now().After(deadline) {
			t.Fatal("no room was made")
		}
	}
	for _, c := range conns[1:] {
		c.Close()
	}
}

// What persons answer is added to a grant and taken out of it without harm to
// other connections; what passes under a decision that is taken back is cut.
func TestWithdrawnDecisionCuts(t *testing.T) {
	echo := listen(t)
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	p := newPerson()
	r := askRig(t, p, asking, private("ok.test", echo.port))
	open := func(name string) net.Conn {
		t.Helper()
		c, err := r.client.DialName(r.ctx(), "tcp", name, echo.port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "ssh-like words\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	alive := func(c net.Conn) bool {
		c.SetDeadline(time.Now().Add(15 * time.Second))
		_, err := io.WriteString(c, "x")
		for b := []byte{0}; err == nil && b[0] != 'x'; {
			_, err = c.Read(b)
		}
		return err == nil
	}
	normal := open("ok.test")
	first := open("pub.test")
	if h := p.await(t); h.Seen != "tcp" || h.Protocol != "tcp" {
		t.Errorf("asked %+v", h)
	}
	p.answer <- said{answer: task.HeldAnswer{Allow: true, ID: "d-1"}}
	once := open("pub.test")
	p.await(t)
	p.answer <- said{answer: task.HeldAnswer{Allow: true, Once: true, ID: "ap-2"}}
	if !alive(normal) || !alive(first) || !alive(once) {
		t.Fatal("not open")
	}
	grant := grantOf(private("ok.test", echo.port))
	grant.Unknown = asking
	rule, _ := task.ApprovalMatch{Host: "pub.test", Port: echo.port, Protocol: "tcp"}.Rule("d-1")
	with := grant
	with.Rules = append(slices.Clone(grant.Rules), rule)
	if err := r.gateway.SetGrant(with); err != nil {
		t.Fatal(err)
	}
	third := open("pub.test") // nobody is asked any more
	if !alive(normal) || !alive(first) || !alive(once) || !alive(third) {
		t.Error("an answer cut something")
	}
	grant.Withdrawn = []string{"ask/ap-2"}
	if err := r.gateway.SetGrant(grant); err != nil {
		t.Fatal(err)
	}
	if alive(first) || alive(once) || alive(third) {
		t.Error("what was taken back goes on")
	}
	if !alive(normal) {
		t.Error("another connection was cut")
	}
	// An answer that comes later than its withdrawal allows nothing.
	late := open("pub.test")
	p.await(t)
	p.answer <- said{answer: task.HeldAnswer{Allow: true, ID: "ap-2"}}
	r.await("late", func(rec task.EgressRecord) bool { return rec.Reason == task.ApprovalDenied })
	if alive(late) {
		t.Error("a withdrawn answer allowed")
	}
}

// Any other change of the grant cuts everything, connections that wait included.
func TestGrantCutsHeld(t *testing.T) {
	p := newPerson()
	r := askRig(t, p, asking)
	out := r.fetch("http://pub.test/", nil)
	p.await(t)
	if err := r.gateway.SetGrant(grantOf()); err != nil {
		t.Fatal(err)
	}
	receive(t, p.gone)
	if g := receive(t, out); g.err == nil {
		t.Errorf("%+v", g)
	}
}

func TestLogOnly(t *testing.T) {
	u := httpServer(t)
	s, pool := tlsServer(t)
	p := newPerson()
	r := askRig(t, p, task.Unknown{Mode: task.UnknownLog})
	g := grantOf()
	g.Unknown = task.Unknown{Mode: task.UnknownLog}
	g.Leases = []task.Lease{{ID: "l-1", Credential: "k", Header: "Authorization", Prefix: "Bearer ", Placeholder: "placeholder-1", Hosts: []string{"pub.test"}, Ports: []uint16{u.port}}}
	if err := r.gateway.SetGrant(g); err != nil {
		t.Fatal(err)
	}
	if g := receive(t, r.fetch("http://pub.test"+port(u)+"/x", nil)); g.status != 200 {
		t.Errorf("%+v", g)
	}
	if g := receive(t, r.fetch("https://example.com"+port(s)+"/x", &tls.Config{RootCAs: pool})); g.status != 200 {
		t.Errorf("%+v", g)
	}
	r.await("record", func(rec task.EgressRecord) bool {
		return rec.Rule == "log-only" && rec.Verdict == "allowed" && rec.Name == "pub.test"
	})
	if g := receive(t, r.fetch("http://ok.test"+port(u)+"/", nil)); g.err == nil && g.status == 200 {
		t.Errorf("a private address was reached: %+v", g)
	}
	// A placeholder goes nowhere.
	req, _ := http.NewRequest(http.MethodGet, "http://pub.test"+port(u)+"/x", nil)
	req.Header.Set("Authorization", "Bearer placeholder-1")
	res, err := r.http(nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 403 || code(t, string(body)) != task.PolicyCredential {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if len(p.asked) != 0 {
		t.Error("somebody was asked")
	}
}

// The line of a request is hostile.
func FuzzRequestLine(f *testing.F) {
	for _, s := range []string{"GET / HTTP/1.1\r\n", "POST http://a/b?c HTTP/1.1\n", "CONNECT a:1 HTTP/1.1\n", "\r\nGET /%2e HTTP/1.0\n", "OPTIONS * HTTP/1.1\n", "GET /\x1b[2J HTTP/1.1\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		method, path, ok := requestLine(data)
		if ok && (method == "" || !strings.HasPrefix(path, "/") || !printable(path) || strings.ContainsAny(path, "?")) {
			t.Errorf("%q: %q %q", data, method, path)
		}
	})
}

package egress

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

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
	for _, port := range []uint16{22, 8080, 9999} {
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

func TestGuardedAddresses(t *testing.T) {
	u := httpServer(t)
	r := newRig(t, []task.Rule{
		private("evil.test", 80, u.port), private("mixed.test", 80, u.port), private("metadata.google.internal", 80, u.port),
		{ID: "p", Host: "private.test", Ports: []uint16{80}},
		{ID: "n", Host: "ok.test", Ports: []uint16{80, u.port}},
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
	good := r.await("end of the good one", func(rec task.EgressRecord) bool { return rec.SNI == "ok.test" && rec.Done })
	for begun := time.Now(); u.bytes.Load() < good.BytesOut && time.Since(begun) < 10*time.Second; {
		time.Sleep(time.Millisecond)
	}
	before := u.bytes.Load()
	for _, c := range []struct {
		name   string
		config *tls.Config
	}{
		{"ok.test", &tls.Config{ServerName: "no.test"}},
		{"ok.test", &tls.Config{ServerName: ""}},
		{"ok.test", &tls.Config{ServerName: "ok.test.evil.example"}},
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

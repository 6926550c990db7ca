//go:build root

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestRefusesRoot(t *testing.T) {
	m := newMachine(t)
	out, err := exec.Command(m.program, "--data", t.TempDir()).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("must not run as root")) {
		t.Errorf("%v: %s", err, out)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.process.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "Uid:\t65534\t65534\t65534\t65534"} {
		if !bytes.Contains(status, []byte(want)) {
			t.Errorf("status lacks %q", want)
		}
	}
}

// secure makes a TLS server for a name, and the file that trusts it.
func secure(t *testing.T, l net.Listener, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello from "+name) }),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	go server.ServeTLS(l, "", "")
	t.Cleanup(func() { server.Close() })
	path := filepath.Join(t.TempDir(), "trust.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRealClients(t *testing.T) {
	m := newMachine(t)
	k, _ := m.keeper()
	ns, authority := attach(t, k, one)
	web, tlsWeb := count(t, 80), count(t, 443)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "hello over http")
	})}
	go server.Serve(web)
	t.Cleanup(func() { server.Close() })
	trust := secure(t, tlsWeb, "ok.test")
	if err := k.SetGrant(t.Context(), task.Grant{Sandbox: one, Rules: []task.Rule{rule("ok.test", 80, 443), rule("metadata.test", 80)}}); err != nil {
		t.Fatal(err)
	}
	curl := func(argv ...string) string {
		out, _ := ns.Run(append([]string{"curl", "-sS", "-m", "20", "-w", " [%{http_code}]"}, argv...)...)
		return out
	}
	for _, c := range []struct {
		want string
		argv []string
	}{
		{"hello over http [200]", []string{"http://ok.test/"}},
		{"hello over http [200]", []string{"-6", "http://ok.test/"}},
		{"hello from ok.test [200]", []string{"--cacert", trust, "https://ok.test/"}},
		{"hello from ok.test [200]", []string{"-6", "--cacert", trust, "https://ok.test/"}},
		{"hello over http [200]", []string{"-T", m.program, "http://ok.test/"}},
	} {
		if out := curl(c.argv...); out != c.want {
			t.Errorf("curl %v: %q", c.argv, out)
		}
	}
	queries, connections, bytes := m.queries.Load(), web.accepted.Load()+tlsWeb.accepted.Load(), web.bytes.Load()+tlsWeb.bytes.Load()
	for _, c := range []struct {
		want string
		argv []string
	}{
		{`"code":"policy.denied"`, []string{"http://secret.no.test/"}},
		{`"code":"policy.denied"`, []string{"-6", "http://secret.no.test/"}},
		{`"code":"policy.denied"`, []string{"--cacert", authority, "https://secret.no.test/x"}},
		{`"code":"policy.denied"`, []string{"-6", "--cacert", authority, "https://secret.no.test/x"}},
		{`"code":"policy.denied"`, []string{"http://169.254.169.254/latest/meta-data/"}},
		{`"code":"policy.denied"`, []string{"http://2852039166/"}},
		{`"code":"policy.denied"`, []string{"http://[fd00:ec2::254]/"}},
		{`"code":"policy.denied"`, []string{"http://[64:ff9b::a9fe:a9fe]/"}},
		{`"code":"policy.denied"`, []string{"http://" + "192.0.2.1" + "/"}},
		{`"code":"policy.denied"`, []string{"http://host.docker.internal/"}},
		{`[000]`, []string{"http://ok.test:8080/"}},
		{`[000]`, []string{"http://198.18.0.1:22/"}},
	} {
		if out := curl(c.argv...); !strings.Contains(out, c.want) {
			t.Errorf("curl %v: %q, want %s", c.argv, out, c.want)
		}
	}
	if now := m.queries.Load(); now != queries {
		t.Errorf("%d queries left for names that are not allowed", now-queries)
	}
	if now := web.accepted.Load() + tlsWeb.accepted.Load(); now != connections {
		t.Errorf("%d refused connections reached the servers", now-connections)
	}
	// These are allowed by name and refused for what they say.
	for _, c := range []struct {
		want string
		argv []string
	}{
		{`"code":"policy.name_mismatch"`, []string{"-H", "Host: no.test", "http://ok.test/"}},
		{`"code":"policy.name_mismatch"`, []string{"--cacert", authority, "--connect-to", "no.test:443:ok.test:443", "https://no.test/"}},
		{`"code":"policy.protocol"`, []string{"-x", "http://ok.test:80", "-p", "-k", "https://no.test/", "-v"}},
		{`"code":"policy.address"`, []string{"http://metadata.test/"}},
	} {
		out := curl(c.argv...)
		if c.argv[0] == "-x" {
			if !strings.Contains(out, "403") {
				t.Errorf("CONNECT: %q", out)
			}
			continue
		}
		if !strings.Contains(out, c.want) {
			t.Errorf("curl %v: %q, want %s", c.argv, out, c.want)
		}
	}
	if now := web.bytes.Load() + tlsWeb.bytes.Load(); now != bytes {
		t.Errorf("%d bytes of refused requests reached the servers", now-bytes)
	}
	if out, err := ns.Run("getent", "ahosts", "ok.test"); err != nil || !strings.Contains(out, "198.18.") || !strings.Contains(out, "fd00:cffe:1::") {
		t.Errorf("getent: %q, %v", out, err)
	}
	if out, err := ns.Run("ping", "-c1", "-W5", "198.18.0.1"); err != nil && !strings.Contains(out, "not found") && !strings.Contains(out, "No such file") {
		t.Errorf("ping of the gateway: %q, %v", out, err)
	}
	records, err := k.Records(t.Context(), one, 0)
	if err != nil || len(records) < 15 {
		t.Errorf("%d records, %v", len(records), err)
	}
}

func TestGatewayKilled(t *testing.T) {
	m := newMachine(t)
	k, stopKeeper := m.keeper()
	ns, _ := attach(t, k, one)
	u := count(t, 0)
	go func() {
		for {
			c, err := u.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	if err := k.SetGrant(t.Context(), task.Grant{Sandbox: one, Rules: []task.Rule{rule("ok.test", u.port)}}); err != nil {
		t.Fatal(err)
	}
	works := func() {
		t.Helper()
		c, err := ns.Dial("ok.test", u.port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(15 * time.Second))
		fmt.Fprint(c, "\x00ping")
		b := make([]byte, 5)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "\x00ping" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	works()
	open, err := ns.Dial("ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	addr, err := ns.Lookup("ok.test", dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	epoch := k.Epoch()
	for range 3 {
		m.kill()
		begun := time.Now()
		m.start()
		until(t, "a way out again", func() bool { return k.Epoch() == m.boot })
		works()
		t.Logf("the gateway's start to the first bytes: %s", time.Since(begun).Round(time.Millisecond))
	}
	if k.Epoch() == epoch {
		t.Error("same epoch")
	}
	if again, err := ns.Lookup("ok.test", dns.TypeA); again != addr {
		t.Errorf("ok.test moved from %s to %s: %v", addr, again, err)
	}
	open.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprint(open, "x")
	if n, err := open.Read(make([]byte, 1)); err == nil {
		t.Errorf("a connection through a killed gateway goes on: %d bytes", n)
	}
	// The worker is restarted; the gateway gives the device back, and the next one gets it.
	stopKeeper()
	works()
	var reopened atomic.Int64
	m.options.Reopen = func(string) (*os.File, error) {
		reopened.Add(1)
		return ns.Reopen()
	}
	k, stopKeeper = m.keeper()
	// The same grant again changes nothing, and returns once the sandbox is in step.
	same := task.Grant{Sandbox: one, Rules: []task.Rule{rule("ok.test", u.port)}}
	if err := k.SetGrant(t.Context(), same); err != nil {
		t.Fatal(err)
	}
	m.kill()
	m.start()
	until(t, "link", func() bool { return k.Epoch() == m.boot })
	works()
	if n := reopened.Load(); n != 0 {
		t.Errorf("the device was opened again %d times, though the gateway had it", n)
	}
	// Both are gone: the persistent device is opened again.
	stopKeeper()
	m.kill()
	m.start()
	k, _ = m.keeper()
	until(t, "link", func() bool { return k.Epoch() == m.boot })
	works()
	if again, err := ns.Lookup("ok.test", dns.TypeA); again != addr {
		t.Errorf("ok.test moved from %s to %s: %v", addr, again, err)
	}
}

func TestHostileFramesCutNobodyElse(t *testing.T) {
	m := newMachine(t)
	k, _ := m.keeper()
	good, _ := attach(t, k, one)
	bad, _ := attach(t, k, two)
	u := count(t, 0)
	go func() {
		for {
			c, err := u.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	for _, id := range []string{one, two} {
		if err := k.SetGrant(t.Context(), task.Grant{Sandbox: id, Rules: []task.Rule{rule("ok.test", u.port)}}); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := good.Dial("ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(60 * time.Second))
	sendFrames(t, bad, 50_000)
	fmt.Fprint(conn, "\x00still")
	b := make([]byte, 6)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "\x00still" {
		t.Errorf("the neighbour's connection: %q, %v", b, err)
	}
	if boot := m.readBoot(); boot != m.boot || m.process.Process.Signal(syscall.Signal(0)) != nil {
		t.Error("the gateway died")
	}
	if c, err := bad.Dial("ok.test", u.port); err != nil {
		t.Errorf("the hostile sandbox itself: %v", err)
	} else {
		c.Close()
	}
}

// sendFrames writes frames of all kinds of wrongness into the device.
func sendFrames(t *testing.T, ns *egresstest.Namespace, n int) {
	t.Helper()
	err := ns.Do(func() error {
		iface, err := net.InterfaceByName("tap0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		random := mathrand.New(mathrand.NewPCG(1, 2))
		to := &unix.SockaddrLinklayer{Ifindex: iface.Index}
		for range n {
			unix.Sendto(fd, egresstest.Frame(random), 0, to)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDownload prints what the machine moves; it asserts that nothing is lost.
func TestDownload(t *testing.T) {
	m := newMachine(t)
	k, _ := m.keeper()
	ns, _ := attach(t, k, one)
	const size = 2 << 30
	l, err := net.Listen("tcp", outside+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				chunk := make([]byte, 256<<10)
				for sent := 0; sent < size; sent += len(chunk) {
					if _, err := c.Write(chunk); err != nil {
						return
					}
				}
			}()
		}
	}()
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	if err := k.SetGrant(t.Context(), task.Grant{Sandbox: one, Rules: []task.Rule{rule("ok.test", port)}}); err != nil {
		t.Fatal(err)
	}
	drain := func(what string, c net.Conn, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		begun := time.Now()
		buf := make([]byte, 256<<10)
		total := 0
		for {
			n, err := c.Read(buf)
			total += n
			if err != nil {
				break
			}
		}
		took := time.Since(begun)
		t.Logf("%s: %.2f GB/s", what, float64(total)/took.Seconds()/1e9)
		if total != size {
			t.Errorf("%s: %d bytes of %d", what, total, size)
		}
	}
	for range 2 {
		direct, err := net.Dial("tcp", l.Addr().String())
		drain("loopback", direct, err)
		through, err := ns.Dial("ok.test", port)
		drain("through the gateway", through, err)
	}
}

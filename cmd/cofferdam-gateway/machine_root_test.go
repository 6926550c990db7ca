//go:build root

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
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

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/keeper"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	gatewayUser = 65534
	outside     = "127.77.0.1" // where the test's servers listen
)

// machine is an installation's network part: the built gateway, a keeper, a
// fake DNS outside, servers that count.
type machine struct {
	t       *testing.T
	program string
	data    string
	dns     string
	queries *atomic.Int64
	process *exec.Cmd
	boot    string
	log     *os.File
	options keeper.Options
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root")
	}
	dir, err := os.MkdirTemp("", "cofferdam-gateway-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &machine{t: t, program: filepath.Join(dir, "cofferdam-gateway"), data: filepath.Join(dir, "data"), queries: new(atomic.Int64)}
	if out, err := exec.Command("go", "build", "-o", m.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, d := range []string{dir, m.data} {
		os.MkdirAll(d, 0o711)
		os.Chmod(d, 0o711)
	}
	if err := os.Mkdir(filepath.Join(m.data, "gateway"), 0o700); err != nil {
		t.Fatal(err)
	}
	os.Chown(filepath.Join(m.data, "gateway"), gatewayUser, gatewayUser)
	os.Chmod(m.program, 0o755)
	if m.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			all, _ := os.ReadFile(m.log.Name())
			t.Logf("the gateway's log:\n%.60000s", all)
		}
		m.log.Close()
	})
	m.serveDNS()
	m.options = keeper.Options{
		Socket: filepath.Join(m.data, "gateway", "gateway.sock"), State: filepath.Join(m.data, "worker", "egress"),
		Records: filepath.Join(m.data, "gateway", "egress"), Log: slog.New(slog.DiscardHandler),
	}
	m.start()
	return m
}

// serveDNS answers every name with the servers' address and counts.
func (m *machine) serveDNS() {
	m.t.Helper()
	conn, err := net.ListenPacket("udp", outside+":0")
	if err != nil {
		m.t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m.queries.Add(1)
		r := new(dns.Msg)
		r.SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			ip := net.ParseIP(outside)
			if strings.HasPrefix(q.Question[0].Name, "metadata") {
				ip = net.ParseIP("169.254.169.254")
			}
			r.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: ip}}
		}
		w.WriteMsg(r)
	})}
	go server.ActivateAndServe()
	m.t.Cleanup(func() { server.Shutdown() })
	m.dns = conn.LocalAddr().String()
}

// start starts the gateway as its unprivileged user and waits until it is ready.
func (m *machine) start(more ...string) {
	m.t.Helper()
	m.process = exec.Command(m.program, append([]string{"--data", m.data, "--dns", m.dns, "--debug"}, more...)...)
	m.process.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: gatewayUser, Gid: gatewayUser}}
	m.process.Stderr = m.log
	if err := m.process.Start(); err != nil {
		m.t.Fatal(err)
	}
	process := m.process
	m.t.Cleanup(func() { process.Process.Kill(); process.Wait() })
	until(m.t, "gateway", func() bool {
		boot := m.readBoot()
		if boot == "" || boot == m.boot {
			return false
		}
		m.boot = boot
		return true
	})
}

func (m *machine) readBoot() string {
	data, err := os.ReadFile(filepath.Join(m.data, "gateway", "boot.json"))
	var b struct{ Boot string }
	if err != nil || json.Unmarshal(data, &b) != nil {
		return ""
	}
	return b.Boot
}

// kill ends the gateway as a crash would.
func (m *machine) kill() {
	m.t.Helper()
	if err := m.process.Process.Signal(syscall.SIGKILL); err != nil {
		m.t.Fatal(err)
	}
	m.process.Wait()
}

func (m *machine) keeper() (*keeper.Keeper, func()) {
	m.t.Helper()
	k, err := keeper.New(m.options)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	stop := func() { cancel(); <-done }
	m.t.Cleanup(stop)
	return k, stop
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("not in time: ", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// counter is a listener that counts connections and bytes.
type counter struct {
	net.Listener
	port            uint16
	accepted, bytes atomic.Int64
}

type counted struct {
	net.Conn
	c *counter
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.c.bytes.Add(int64(n))
	return n, err
}

func (c *counter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.accepted.Add(1)
	return &counted{conn, c}, nil
}

func count(t testing.TB, port int) *counter {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", outside, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &counter{Listener: l, port: netip.MustParseAddrPort(l.Addr().String()).Port()}
}

func attach(t *testing.T, k *keeper.Keeper, id string) (*egresstest.Namespace, string) {
	t.Helper()
	ns, tap := egresstest.NewNamespace(t)
	authority, err := k.Attach(t.Context(), id, sandbox.Device{File: tap})
	if err != nil {
		t.Fatal(err)
	}
	tap.Close()
	t.Cleanup(func() { k.Detach(context.Background(), id) })
	path := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(path, authority, 0o644); err != nil {
		t.Fatal(err)
	}
	return ns, path
}

func rule(host string, ports ...uint16) task.Rule {
	return task.Rule{ID: "r:" + host, Host: host, Ports: ports, Private: true}
}

const (
	one = "sb-aaaaaaaaaaaaaaaa"
	two = "sb-bbbbbbbbbbbbbbbb"
)

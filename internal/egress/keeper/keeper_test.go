package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/service"

	"github.com/miekg/dns"

	"github.com/cofferdam/cofferdam/internal/egress"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/keeper"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

const id = "sb-aaaaaaaaaaaaaaaa"

// machine is a folder in which gateways and keepers come and go.
type machine struct {
	t       *testing.T
	dir     string
	epoch   atomic.Int64
	options keeper.Options
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, dir: t.TempDir()}
	m.options = keeper.Options{
		Socket: filepath.Join(m.dir, "gateway.sock"), State: filepath.Join(m.dir, "state"), Records: filepath.Join(m.dir, "egress"),
		Log: slog.New(slog.DiscardHandler), Wait: 10 * time.Second,
	}
	if err := os.Mkdir(m.options.Records, 0o700); err != nil {
		t.Fatal(err)
	}
	return m
}

type loopback struct{}

func (loopback) Lookup(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// startGateway starts a gateway with a new epoch; stop ends it without
// ceremony.
func (m *machine) startGateway() (g *egress.Gateway, stop func()) {
	m.t.Helper()
	service := service.New(fmt.Sprint("epoch-", m.epoch.Add(1)), []uint32{uint32(os.Geteuid())}, m.options.Log)
	g, err := egress.New(egress.Options{
		Resolver: loopback{}, Guard: guard.New(nil, nil), Records: m.options.Records,
		SealKey: []byte("a key for tests only"), Log: m.options.Log, Stored: service.Stored, Broken: service.Broken,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	os.Remove(m.options.Socket)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: m.options.Socket, Net: "unix"})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); service.Serve(ctx, l, g) }()
	stop = func() { cancel(); <-done; g.Close() }
	m.t.Cleanup(stop)
	return g, stop
}

func (m *machine) startKeeper() (k *keeper.Keeper, stop func()) {
	m.t.Helper()
	k, err := keeper.New(m.options)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	stop = func() { cancel(); <-done }
	m.t.Cleanup(stop)
	return k, stop
}

func (m *machine) ctx() context.Context {
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	m.t.Cleanup(cancel)
	return ctx
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("not in time: ", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// serve accepts and counts.
func serve(t *testing.T) (port uint16, accepted *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	accepted = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			fmt.Fprint(c, "hi")
			c.Close()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()).Port(), accepted
}

func grant(port uint16) task.Grant {
	return task.Grant{Sandbox: id, Stage: task.Agent, Rules: []task.Rule{{ID: "r", Host: "ok.test", Ports: []uint16{port}, Private: true}}}
}

func reaches(ctx context.Context, c *egresstest.Client, port uint16) error {
	conn, err := c.DialName(ctx, "tcp", "ok.test", port)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = conn.Read(make([]byte, 2))
	return err
}

func TestGatewayRestart(t *testing.T) {
	m := newMachine(t)
	_, stop := m.startGateway()
	k, _ := m.startKeeper()
	port, accepted := serve(t)
	side, inside := egresstest.Pair(t)
	pem, err := k.Attach(m.ctx(), id, sandbox.Device{File: side})
	if err != nil {
		t.Fatal(err)
	}
	client := egresstest.NewClient(t, inside)
	if err := reaches(m.ctx(), client, port); err == nil {
		t.Error("a new sandbox reaches something")
	}
	if err := k.SetGrant(m.ctx(), grant(port)); err != nil {
		t.Fatal(err)
	}
	if err := reaches(m.ctx(), client, port); err != nil {
		t.Fatal(err)
	}
	before := map[string]netip.Addr{}
	for i := range 20 {
		name := fmt.Sprintf("n%d.test", i)
		if before[name], err = client.Lookup(m.ctx(), name, dns.TypeA); err != nil {
			t.Fatal(err)
		}
	}
	records, err := k.Records(m.ctx(), id, 0)
	if err != nil || len(records) == 0 {
		t.Fatalf("%v, %v", records, err)
	}
	epoch := k.Epoch()
	for range 3 {
		stop()
		var g *egress.Gateway
		g, stop = m.startGateway()
		begun := time.Now()
		until(t, "attached again", func() bool { return len(g.Attached()) == 1 })
		t.Logf("attached again after %s", time.Since(begun))
		if err := reaches(m.ctx(), client, port); err != nil {
			t.Fatalf("after the restart: %v", err)
		}
	}
	if k.Epoch() == epoch {
		t.Error("the epoch is the same")
	}
	seen := map[netip.Addr]bool{}
	for name, addr := range before {
		again, err := client.Lookup(m.ctx(), name, dns.TypeA)
		if err != nil || again != addr {
			t.Errorf("%s stands at %s, before at %s (%v)", name, again, addr, err)
		}
		seen[addr] = true
	}
	if fresh, err := client.Lookup(m.ctx(), "fresh.test", dns.TypeA); err != nil || seen[fresh] {
		t.Errorf("a new name got %s: %v", fresh, err)
	}
	if n := accepted.Load(); n != 4 {
		t.Errorf("%d connections upstream, want 4", n)
	}
	again, err := k.Attach(m.ctx(), id, sandbox.Device{File: side})
	if err != nil || string(again) != string(pem) {
		t.Errorf("the authority changed: %v", err)
	}
	later, err := k.Records(m.ctx(), id, records[len(records)-1].Seq)
	if err != nil || len(later) == 0 || later[0].Seq != records[len(records)-1].Seq+1 {
		t.Errorf("the numbers don't go on: %+v, %v", later, err)
	}
}

func TestWorkerRestart(t *testing.T) {
	m := newMachine(t)
	g, stopGateway := m.startGateway()
	k, stop := m.startKeeper()
	port, _ := serve(t)
	side, inside := egresstest.Pair(t)
	if _, err := k.Attach(m.ctx(), id, sandbox.Device{File: side}); err != nil {
		t.Fatal(err)
	}
	side.Close()
	client := egresstest.NewClient(t, inside)
	if err := k.SetGrant(m.ctx(), grant(port)); err != nil {
		t.Fatal(err)
	}
	if err := reaches(m.ctx(), client, port); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := reaches(m.ctx(), client, port); err != nil {
		t.Errorf("without a worker what was granted passes on: %v", err)
	}
	k, stop = m.startKeeper()
	until(t, "link", func() bool { return k.Epoch() == "epoch-1" })
	if got := g.Attached(); len(got) != 1 {
		t.Fatalf("attached: %v", got)
	}
	if err := reaches(m.ctx(), client, port); err != nil {
		t.Errorf("after the worker's restart: %v", err)
	}
	if err := k.SetGrant(m.ctx(), grant(port)); err != nil {
		t.Fatal(err)
	}
	// The restarted worker got the device back, so it can hand it to the next gateway.
	stopGateway()
	g, _ = m.startGateway()
	until(t, "attached again", func() bool { return len(g.Attached()) == 1 })
	if err := reaches(m.ctx(), client, port); err != nil {
		t.Errorf("after the gateway's restart: %v", err)
	}
	stop()
	k, _ = m.startKeeper()
	if err := k.Detach(m.ctx(), id); err != nil {
		t.Fatal(err)
	}
	until(t, "detached", func() bool { return len(g.Attached()) == 0 })
	if err := k.Detach(m.ctx(), id); err != nil {
		t.Errorf("detached twice: %v", err)
	}
	if left, _ := os.ReadDir(m.options.State); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBothRestart(t *testing.T) {
	m := newMachine(t)
	_, stopGateway := m.startGateway()
	k, stopKeeper := m.startKeeper()
	port, _ := serve(t)
	side, inside := egresstest.Pair(t)
	if _, err := k.Attach(m.ctx(), id, sandbox.Device{File: side}); err != nil {
		t.Fatal(err)
	}
	client := egresstest.NewClient(t, inside)
	if err := k.SetGrant(m.ctx(), grant(port)); err != nil {
		t.Fatal(err)
	}
	addr, err := client.Lookup(m.ctx(), "ok.test", dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	stopKeeper()
	stopGateway()
	var reopened atomic.Int64
	m.options.Reopen = reopenBy(side, &reopened)
	g, _ := m.startGateway()
	m.startKeeper()
	until(t, "attached again", func() bool { return len(g.Attached()) == 1 })
	if reopened.Load() != 1 {
		t.Errorf("opened %d times", reopened.Load())
	}
	if err := reaches(m.ctx(), client, port); err != nil {
		t.Error(err)
	}
	if again, err := client.Lookup(m.ctx(), "ok.test", dns.TypeA); again != addr {
		t.Errorf("%s, before %s (%v)", again, addr, err)
	}
}

func TestGatewayAway(t *testing.T) {
	m := newMachine(t)
	g, stop := m.startGateway()
	m.options.Wait = 300 * time.Millisecond
	k, _ := m.startKeeper()
	side, inside := egresstest.Pair(t)
	if _, err := k.Attach(m.ctx(), id, sandbox.Device{File: side}); err != nil {
		t.Fatal(err)
	}
	client := egresstest.NewClient(t, inside)
	if len(g.Attached()) != 1 {
		t.Fatal("not attached")
	}
	stop()
	port, _ := serve(t)
	err := k.SetGrant(m.ctx(), grant(port))
	var f *task.Failure
	if !errors.As(err, &f) || f.Reason != task.InfraEgressAway {
		t.Errorf("%v, want %s", err, task.InfraEgressAway)
	}
	until(t, "no epoch of a gateway that is away", func() bool { return k.Epoch() == "" })
	if _, err := k.Attach(m.ctx(), "sb-bbbbbbbbbbbbbbbb", sandbox.Device{File: side}); !errors.As(err, &f) || f.Reason != task.InfraEgressAway {
		t.Errorf("attach: %v", err)
	}
	if kept := k.Kept(); len(kept) != 1 {
		t.Errorf("after a failed attach: %v", kept)
	}
	// What was stored counts once a gateway is there.
	g, stop = m.startGateway()
	until(t, "attached again", func() bool { return len(g.Attached()) == 1 })
	if err := reaches(m.ctx(), client, port); err != nil {
		t.Error(err)
	}
	stop()
	if err := k.Detach(m.ctx(), id); err != nil {
		t.Errorf("detach with the gateway away: %v", err)
	}
	g, _ = m.startGateway()
	until(t, "link", func() bool { return k.Epoch() != "" })
	if got := g.Attached(); len(got) != 0 {
		t.Errorf("attached: %v", got)
	}
}

func TestUnknownSandbox(t *testing.T) {
	m := newMachine(t)
	m.startGateway()
	k, _ := m.startKeeper()
	var f *task.Failure
	if err := k.SetGrant(m.ctx(), grant(80)); !errors.As(err, &f) || f.Reason != task.InputNotFound {
		t.Errorf("%v", err)
	}
	if err := k.Detach(m.ctx(), id); err != nil {
		t.Errorf("%v", err)
	}
	if r, err := k.Records(m.ctx(), id, 0); err != nil || len(r) != 0 {
		t.Errorf("%v, %v", r, err)
	}
	for _, bad := range []string{"", "../x", "sb-AAAAAAAAAAAAAAAA", "sb-aaaaaaaaaaaaaaaa/x"} {
		if _, err := k.Records(m.ctx(), bad, 0); err == nil {
			t.Errorf("records of %q", bad)
		}
		if _, err := k.Attach(m.ctx(), bad, sandbox.Device{File: os.Stdin}); err == nil {
			t.Errorf("attached %q", bad)
		}
	}
	// The gateway's folder is not trusted to hold files only.
	if err := os.Symlink("/etc/passwd", filepath.Join(m.options.Records, id+".jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Records(m.ctx(), id, 0); err == nil {
		t.Error("a link was followed")
	}
}

func TestTornAndCorruptJournals(t *testing.T) {
	m := newMachine(t)
	_, stopGateway := m.startGateway()
	k, stop := m.startKeeper()
	side, inside := egresstest.Pair(t)
	if _, err := k.Attach(m.ctx(), id, sandbox.Device{File: side}); err != nil {
		t.Fatal(err)
	}
	client := egresstest.NewClient(t, inside)
	addr, err := client.Lookup(m.ctx(), "a.test", dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	path := filepath.Join(m.options.State, id+".json")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"name":{"name":"torn.test","ind`)
	f.Close()
	other := filepath.Join(m.options.State, "sb-cccccccccccccccc.json")
	if err := os.WriteFile(other, []byte("not a journal\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stopGateway()
	var reopened atomic.Int64
	m.options.Reopen = reopenBy(side, &reopened)
	g, _ := m.startGateway()
	k, _ = m.startKeeper()
	until(t, "attached again", func() bool { return len(g.Attached()) == 1 })
	if got := k.Kept(); len(got) != 1 || got[0] != id {
		t.Errorf("kept: %v", got)
	}
	if again, err := client.Lookup(m.ctx(), "a.test", dns.TypeA); again != addr {
		t.Errorf("%s, before %s: %v", again, addr, err)
	}
	if _, err := client.Lookup(m.ctx(), "b.test", dns.TypeA); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(other + ".corrupt"); err != nil {
		t.Errorf("the corrupt journal is not kept as evidence: %v", err)
	}
}

func TestBrokenWayIsMended(t *testing.T) {
	m := newMachine(t)
	g, _ := m.startGateway()
	k, _ := m.startKeeper()
	side, inside := egresstest.Pair(t)
	if _, err := k.Attach(m.ctx(), id, sandbox.Device{File: side}); err != nil {
		t.Fatal(err)
	}
	client := egresstest.NewClient(t, inside)
	device, err := g.Device(id)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	g.Detach(id) // as when its stack failed
	port, _ := serve(t)
	if err := k.SetGrant(m.ctx(), grant(port)); err != nil {
		t.Fatalf("a grant for a sandbox that the gateway lost: %v", err)
	}
	if err := reaches(m.ctx(), client, port); err != nil {
		t.Error(err)
	}
}

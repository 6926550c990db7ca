//go:build root

package gvisor

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
)

// echoNetwork is a gateway that sends every IPv4 UDP datagram back.
type echoNetwork struct {
	mu      sync.Mutex
	taps    map[string]*os.File
	refuse  error
	detachs int
}

func (n *echoNetwork) Attach(_ context.Context, id string, device sandbox.Device) ([]byte, error) {
	if n.refuse != nil {
		return nil, n.refuse
	}
	fd, err := unix.FcntlInt(device.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	n.hold(id, fd)
	return []byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"), nil
}

func (n *echoNetwork) hold(id string, fd int) {
	if err := unix.SetNonblock(fd, true); err != nil {
		panic(err)
	}
	tap := os.NewFile(uintptr(fd), "tap")
	n.mu.Lock()
	n.taps[id] = tap
	n.mu.Unlock()
	go echo(tap)
}

func (n *echoNetwork) Detach(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.detachs++
	n.drop(id)
	return nil
}

// drop is what a killed gateway does.
func (n *echoNetwork) drop(id string) {
	if tap := n.taps[id]; tap != nil {
		tap.Close()
		delete(n.taps, id)
	}
}

// echo swaps the ends of each datagram; its checksums stay right.
func echo(tap *os.File) {
	frame := make([]byte, 1<<17)
	for {
		k, err := tap.Read(frame)
		if err != nil {
			return
		}
		f := frame[:k]
		if k < 42 || binary.BigEndian.Uint16(f[12:]) != 0x0800 || f[23] != 17 {
			continue
		}
		swap := func(a, b, size int) {
			for i := range size {
				f[a+i], f[b+i] = f[b+i], f[a+i]
			}
		}
		swap(0, 6, 6)
		swap(26, 30, 4)
		swap(34, 36, 2)
		if _, err := tap.Write(f); err != nil && errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

// askEcho sends datagrams until one comes back: the host may drop what is sent in
// the moment in which a device gets its holder.
const askEcho = `python3 -c '
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.2)
begun = time.time()
answer = "nothing"
for i in range(TRIES):
    s.sendto(b"ping", ("198.18.7.7", 4000))
    try:
        answer = s.recv(100).decode()
        break
    except OSError:
        pass
print(answer)
import sys; print(time.time() - begun, file=sys.stderr)'`

func ask(t *testing.T, d *Driver, id string, tries int) string {
	t.Helper()
	got := sandboxtest.Shell(t, d, id, strings.ReplaceAll(askEcho, "TRIES", strconv.Itoa(tries)))
	t.Logf("%q after %s s", got.Stdout, strings.TrimSpace(got.Stderr))
	return strings.TrimSpace(got.Stdout)
}

// TestDeviceOutlivesItsHolder proves what adoption of a network rests on: the
// sandbox's stack goes on when every holder of the device's descriptor has died
// and another opens it.
func TestDeviceOutlivesItsHolder(t *testing.T) {
	network := &echoNetwork{taps: map[string]*os.File{}}
	cfg := testConfig(t, testDir(t))
	cfg.Network = network
	d := open(t, cfg)
	id := sandboxtest.Create(t, d, sandbox.Spec{Network: true}).ID

	if got := ask(t, d, id, 50); got != "ping" {
		t.Fatalf("before: %q", got)
	}
	if tap, err := d.ReopenTAP(id); !errors.Is(err, unix.EBUSY) {
		t.Errorf("opening a device that is held: %v %v", tap, err)
	}
	network.drop(id)
	if got := ask(t, d, id, 5); got != "nothing" {
		t.Errorf("while nobody holds the device: %q", got)
	}
	tap, err := d.ReopenTAP(id)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(tap.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	tap.Close()
	network.hold(id, fd)
	if got := ask(t, d, id, 50); got != "ping" {
		t.Errorf("after: %q", got)
	}

	got := sandboxtest.Shell(t, d, id, `env | grep -c ca-certificates.crt; cat /etc/cofferdam/ca.pem; cat /proc/net/dev | grep -c :`)
	if !strings.Contains(got.Stdout, "MAA=") {
		t.Errorf("the authority: %+v", got)
	}
	if err := d.Destroy(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if network.detachs != 1 || len(network.taps) != 0 {
		t.Errorf("%d detached, %d held", network.detachs, len(network.taps))
	}
}

func TestGatewayRefuses(t *testing.T) {
	cfg := testConfig(t, testDir(t))
	cfg.Network = &echoNetwork{refuse: errors.New("no gateway answers")}
	d := open(t, cfg)
	if _, err := d.Create(t.Context(), sandbox.Spec{ID: sandboxtest.ID(), Network: true}); err == nil || !strings.Contains(err.Error(), "no gateway answers") {
		t.Errorf("create: %v", err)
	}
	wantNothing(t, d)
}

// wantNothing fails the test when the driver's folder or the machine holds
// anything of a sandbox.
func wantNothing(t *testing.T, d *Driver) {
	t.Helper()
	left, err := d.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		// Cgroups without our tag were here before, or are made beside us.
		if l.Kind != "cgroup" || strings.Contains(l.Name, d.cgroups.tag) {
			t.Errorf("left over: %+v", l)
		}
	}
	for _, dir := range []string{d.sandboxesDir(), d.runscRoot()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			t.Errorf("left over: %s/%s", dir, entry.Name())
		}
	}
	if entries := d.ledger.Entries(); len(entries) != 0 {
		t.Errorf("open records: %+v", entries)
	}
}

package egress

import (
	"math/rand/v2"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/task"
)

const neighbour = "sb-bbbbbbbbbbbbbbbb"

// Frames of all kinds of wrongness go in; nobody else notices.
func TestHostileFrames(t *testing.T) {
	r := newRig(t, nil)
	random := rand.New(rand.NewPCG(3, 4))
	raw, err := r.inside.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		// A frame for which there is no room is lost, as in a device.
		raw.Control(func(fd uintptr) { unix.Write(int(fd), egresstest.Frame(random)) })
	}
	if got := r.gateway.Attached(); len(got) != 1 {
		t.Fatalf("attached: %v", got)
	}
	// Its neighbour in the same gateway works at once.
	side, inside := egresstest.Pair(t)
	device, err := duplicate(side)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.gateway.Attach(Handed{Sandbox: neighbour, Device: device, Grant: task.Grant{Sandbox: neighbour}}); err != nil {
		t.Fatal(err)
	}
	if _, err := egresstest.NewClient(t, inside).Lookup(r.ctx(), "a.test", dns.TypeA); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
}

package keeper_test

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/sandbox"
)

// TestOwnLimitsOutliveBoth hands limits over with a sandbox; they hold after the
// worker and the gateway were restarted.
func TestOwnLimitsOutliveBoth(t *testing.T) {
	m := newMachine(t)
	_, stopGateway := m.startGateway()
	k, stop := m.startKeeper()
	side, inside := egresstest.Pair(t)
	if _, err := k.Attach(m.ctx(), id, sandbox.Device{File: side, MaxNames: 2, MaxConnections: 3}); err != nil {
		t.Fatal(err)
	}
	side.Close()
	client := egresstest.NewClient(t, inside)
	if _, err := client.Lookup(m.ctx(), "a.test", dns.TypeA); err != nil {
		t.Fatal(err)
	}
	stop()
	k, _ = m.startKeeper()
	if err := k.SetGrant(m.ctx(), grant(1)); err != nil { // With that it has the device again.
		t.Fatal(err)
	}
	stopGateway()
	g, _ := m.startGateway()
	until(t, "attached again", func() bool { return len(g.Attached()) == 1 })
	if _, err := client.Lookup(m.ctx(), "b.test", dns.TypeA); err != nil {
		t.Error(err)
	}
	if addr, err := client.Lookup(m.ctx(), "c.test", dns.TypeA); err == nil {
		t.Errorf("the third of two names got %s", addr)
	}
}

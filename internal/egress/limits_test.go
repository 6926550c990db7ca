package egress

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// TestOwnLimits: limit.names and limit.connections of one sandbox are what was
// handed over with it, below the gateway's own; another has the gateway's.
func TestOwnLimits(t *testing.T) {
	u := listen(t)
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	side, inside := egresstest.Pair(t)
	device, err := duplicate(side)
	if err != nil {
		t.Fatal(err)
	}
	grant := grantOf(private("ok.test", u.port))
	grant.Sandbox = neighbour
	if _, _, err := r.gateway.Attach(Handed{Sandbox: neighbour, Device: device, Grant: grant, MaxNames: 2, MaxConnections: 1}); err != nil {
		t.Fatal(err)
	}
	limited := egresstest.NewClient(t, inside)
	open, err := limited.DialName(r.ctx(), "tcp", "ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if c, err := limited.DialName(r.ctx(), "tcp", "ok.test", u.port); err == nil {
		c.Close()
		t.Error("the second connection of one passes")
	}
	if _, err := limited.Lookup(r.ctx(), "second.test", dns.TypeA); err != nil {
		t.Error(err)
	}
	if addr, err := limited.Lookup(r.ctx(), "third.test", dns.TypeA); err == nil {
		t.Errorf("the third of two names got %s", addr)
	}
	for range 3 {
		c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
		if err != nil {
			t.Fatalf("another sandbox: %v", err)
		}
		defer c.Close()
	}
	for most, own := range map[int]int64{5: 0, 7: -1, 9: 10} {
		if smaller(most, own) != most {
			t.Errorf("%d of %d", own, most)
		}
	}
}

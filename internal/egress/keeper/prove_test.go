package keeper_test

import (
	"errors"
	"testing"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// A grant whose leases are to be proved is not taken where they can't be: this
// gateway has nobody who lends. What is kept of it is proved by nobody again.
func TestProofIsAskedForOnce(t *testing.T) {
	m := newMachine(t)
	_, stop := m.startGateway()
	k, _ := m.startKeeper()
	side, _ := egresstest.Pair(t)
	if _, err := k.Attach(m.ctx(), id, sandbox.Device{File: side}); err != nil {
		t.Fatal(err)
	}
	g := grant(80)
	g.Leases, g.Prove = []task.Lease{{ID: "l-a", Credential: "c", Header: "X-Key", Placeholder: "p", Hosts: []string{"a.test"}, Ports: []uint16{443}}}, true
	for range 2 {
		var f *task.Failure
		if err := k.SetGrant(m.ctx(), g); !errors.As(err, &f) || f.Reason != task.InfraControlAway {
			t.Fatalf("%v", err)
		}
	}
	stop()
	again, _ := m.startGateway()
	until(t, "the sandbox to be handed over", func() bool { return len(again.Attached()) == 1 })
	g.Prove = false
	if err := k.SetGrant(m.ctx(), g); err != nil {
		t.Errorf("without the proof: %v", err)
	}
}

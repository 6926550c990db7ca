package fleet_test

import (
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// A machine that is set apart gets no sandbox and, quarantined, no loan; one that
// is forgotten has lost what it had, at once, and does not come back.
func TestMarkedWorkers(t *testing.T) {
	c := newControl(t, fleet.Options{Placement: &memory{where: map[string]string{}}, Grace: 200 * time.Millisecond})
	dir := t.TempDir()
	keep(t, newLink(t.TempDir(), c.url, "machine-1"))
	c.connected(t, 1)
	here := c.create(t, sandbox.Spec{})
	stop := keep(t, newLink(dir, c.url, "machine-2"))
	c.connected(t, 2)
	c.Mark(task.WorkerMark{Worker: "machine-1", State: task.WorkerDraining})
	there := c.create(t, sandbox.Spec{})
	holds := func(id string) bool {
		ok, err := c.Holds(t.Context(), id, "machines")
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if worker, err := c.Where(t.Context(), there); err != nil || worker != "machine-2" {
		t.Errorf("placed on %s, %v", worker, err)
	}
	if !holds(here) || !holds(there) {
		t.Error("draining takes loans away")
	}
	c.Mark(task.WorkerMark{Worker: "machine-2", State: task.WorkerQuarantined, Reason: "odd"})
	if !holds(here) || holds(there) {
		t.Error("what is on a quarantined machine is lent")
	}
	_, _, err := c.Create(t.Context(), sandbox.Spec{ID: newID()})
	wantReason(t, err, task.InfraWorkerLost)
	if _, err := c.Start(t.Context(), there, sh("c", "true")); err != nil {
		t.Errorf("its sandboxes don't go on: %v", err)
	}

	stop()
	c.connected(t, 1)
	c.Mark(task.WorkerMark{Worker: "machine-2", State: task.WorkerForgotten})
	_, err = c.Status(t.Context(), there, "c")
	wantReason(t, err, task.InfraSandboxLost)
	if err := c.Destroy(t.Context(), there); err != nil {
		t.Errorf("what is lost can't be forgotten: %v", err)
	}
	// It is refused as long as it is forgotten, and welcome after.
	keep(t, newLink(dir, c.url, "machine-2"))
	c.Mark(task.WorkerMark{Worker: "machine-1"})
	if worker, _, err := c.Create(t.Context(), sandbox.Spec{ID: newID()}); err != nil || worker != "machine-1" {
		t.Errorf("placed on %s, %v", worker, err)
	}
	if connected, known := c.Connected("machine-2"); connected || !known {
		t.Errorf("forgotten: connected %v, known %v", connected, known)
	}
	c.Mark(task.WorkerMark{Worker: "machine-2"})
	c.connected(t, 2)
}

// After a restart of the control plane whose a sandbox is can't be known until
// its worker is back: nobody is told that it is not theirs, so that a gateway
// which asks first asks again.
func TestHoldsBeforeTheWorkerIsBack(t *testing.T) {
	kept := &memory{where: map[string]string{}}
	before := newControl(t, fleet.Options{Placement: kept})
	keep(t, newLink(t.TempDir(), before.url, "machine-1"))
	before.connected(t, 1)
	id := before.create(t, sandbox.Spec{})
	after := newControl(t, fleet.Options{Placement: kept})
	ok, err := after.Holds(t.Context(), id, "machines")
	if ok {
		t.Error("a machine that is not here holds a sandbox")
	}
	wantReason(t, err, task.InfraWorkerLost)
	if ok, err := after.Holds(t.Context(), id, ""); ok || err != nil {
		t.Errorf("of nobody: %v, %v", ok, err)
	}
	after.Mark(task.WorkerMark{Worker: "machine-1", State: task.WorkerQuarantined})
	if ok, err := after.Holds(t.Context(), id, "machines"); ok || err != nil {
		t.Errorf("quarantined: %v, %v", ok, err)
	}
}

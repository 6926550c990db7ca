//go:build root

package gvisor

import (
	"sync/atomic"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// A sandbox that is destroyed while it is made is not made again for the caller
// who still waits for it: it would outlive the one who destroyed it.
func TestDestroyedWhileMadeStaysDestroyed(t *testing.T) {
	cfg := testConfig(t, testDir(t))
	var d *Driver
	var made atomic.Int64
	destroyed := make(chan error, 1)
	id := sandboxtest.ID()
	cfg.Step = func(step string) error {
		if step != "folder" || made.Add(1) > 1 {
			return nil
		}
		go func() { destroyed <- d.Destroy(t.Context(), id) }()
		sandboxtest.Eventually(t, "the destroy to come", func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.making[id].unwanted
		})
		return nil
	}
	d = open(t, cfg)
	_, err := d.Create(t.Context(), sandbox.Spec{ID: id})
	sandboxtest.WantReason(t, "create", err, task.InfraSandboxCreate)
	if err := <-destroyed; err != nil {
		t.Error(err)
	}
	if n := made.Load(); n != 1 {
		t.Errorf("made %d times", n)
	}
	wantNothing(t, d)
}

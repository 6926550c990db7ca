package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/ledger"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Destroy implements sandbox.Driver.
func (d *Driver) Destroy(ctx context.Context, id string) error {
	if !sandbox.ValidID(id) {
		return task.Fail(task.InputInvalid, fmt.Sprintf("sandbox id %q is not valid", id), nil)
	}
	for {
		d.mu.Lock()
		m, busy := d.making[id]
		if !busy {
			break // d.mu stays held.
		}
		if m.cancel != nil {
			m.unwanted = true
			m.cancel()
		}
		d.mu.Unlock()
		select {
		case <-m.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b := d.boxes[id]
	if b == nil && len(d.ledger.Of(id)) == 0 {
		d.mu.Unlock()
		return nil
	}
	m := &making{done: make(chan struct{})}
	d.making[id] = m
	d.mu.Unlock()

	if b != nil {
		b.mu.Lock()
		b.destroyed = true
		b.mu.Unlock()
		b.release()
	}
	err := d.tearDown(ctx, id)
	d.mu.Lock()
	delete(d.making, id)
	// When it failed the ledger's open records are what is left of it: Reconcile
	// tries again, and Audit tells.
	delete(d.boxes, id)
	d.mu.Unlock()
	close(m.done)
	if err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	return nil
}

// tearDown removes every host object that the ledger or the machine has of the
// sandbox, proves it gone and closes its record. It can be called again after it
// failed, and for a sandbox in any half-made state. What can be removed is
// removed even when something else can't.
func (d *Driver) tearDown(ctx context.Context, id string) error {
	steps := []struct {
		kinds []string
		do    func() error
	}{
		// The device goes with the namespace, and that with its last process.
		{[]string{"process", "namespace"}, func() error { return d.killAll(ctx, id) }},
		{[]string{"gateway"}, func() error { return d.detach(ctx, id) }},
		{[]string{"state"}, func() error { return d.removeState(id) }},
		{[]string{"cgroup"}, func() error { return d.cgroups.remove(ctx, id) }},
		{[]string{"folder"}, func() error { return removeFolder(d.folder(id)) }},
	}
	var failed error
	open := d.ledger.Of(id)
	closed := open[:0:0]
	for _, step := range steps {
		name := step.kinds[0]
		if err := errors.Join(d.cfg.Step("destroy."+name), step.do()); err != nil {
			failed = errors.Join(failed, err)
			if name == "process" {
				break // Nothing else may go while something runs on it.
			}
			continue
		}
		for _, entry := range open {
			if slices.Contains(step.kinds, entry.Kind) {
				closed = append(closed, entry)
			}
		}
	}
	if err := errors.Join(d.cfg.Step("destroyed"), d.ledger.Close(closed...)); err != nil {
		failed = errors.Join(failed, err)
	}
	return failed
}

func (d *Driver) detach(ctx context.Context, id string) error {
	if d.cfg.Network == nil {
		return nil
	}
	attached := slices.ContainsFunc(d.ledger.Of(id), func(e ledger.Entry) bool { return e.Kind == "gateway" })
	if !attached {
		return nil
	}
	return d.cfg.Network.Detach(ctx, id)
}

func removeFolder(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is still there", dir)
	}
	return nil
}

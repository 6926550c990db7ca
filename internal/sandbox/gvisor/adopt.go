package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/lower"
	"github.com/cofferdam/cofferdam/internal/task"
)

// adoptLimit is how many sandboxes are adopted at once.
const adoptLimit = 8

// Adopt finds the sandboxes of an earlier driver over the same folder. Those that
// live are taken over: their commands run on and their output can be attached to.
// Those that are half made, or whose time is over, are destroyed. It must be
// called once, before anything else. An error says what could not be cleaned up;
// the driver can be used all the same.
func (d *Driver) Adopt(ctx context.Context) error {
	ids := d.known()
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
		slots  = make(chan struct{}, adoptLimit)
	)
	for id := range ids {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := d.adopt(ctx, id); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	d.mu.Lock()
	d.adopted = true
	used := []string{}
	for _, b := range d.boxes {
		used = append(used, b.record.Lower) // Never changes.
	}
	d.mu.Unlock()
	return errors.Join(failed, d.endProbe(ctx), lower.Prune(d.lowerDir(), d.lower.Path, used))
}

// known are the sandboxes that the ledger or the folders speak of. A folder that
// the ledger does not know is left to Audit: it is not ours to remove.
func (d *Driver) known() map[string]bool {
	ids := map[string]bool{}
	for _, entry := range d.ledger.Entries() {
		if sandbox.ValidID(entry.Sandbox) {
			ids[entry.Sandbox] = true
		}
	}
	return ids
}

func (d *Driver) adopt(ctx context.Context, id string) error {
	r, err := readRecord(d.folder(id))
	if err != nil || r.Spec.ID != id {
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			d.log.Warn("sandbox: its record can't be read", "sandbox", id, "error", err)
		}
		d.log.Info("sandbox: remove a half-made one", "sandbox", id)
		if err := d.tearDown(ctx, id); err != nil {
			return fmt.Errorf("sandbox %s: %w", id, err)
		}
		return nil
	}
	b := &box{dir: d.folder(id), record: r}
	if err := d.reach(ctx, b); err != nil {
		d.log.Warn("sandbox: it died while no worker watched", "sandbox", id, "error", err)
		b.release()
		d.markDead(b)
	}
	d.mu.Lock()
	d.boxes[id] = b
	d.mu.Unlock()
	if b.dead() == nil {
		d.log.Info("sandbox: adopted", "sandbox", id, "pid", r.Sentry.PID)
		go d.watch(b)
	}
	return nil
}

// reach takes hold of a sandbox that should live.
func (d *Driver) reach(ctx context.Context, b *box) (err error) {
	if b.record.Dead != "" {
		return errGone
	}
	if b.record.Boot != bootID() {
		return fmt.Errorf("the machine was restarted: %w", errGone)
	}
	if b.pidfd, err = b.record.Sentry.watch(); err != nil {
		return err
	}
	if err := b.openFIFOs(); err != nil {
		return err
	}
	return b.dial(ctx, d.log)
}

// watch waits for the sandbox's kernel to end and marks it dead when nobody
// asked for that.
func (d *Driver) watch(b *box) {
	if !waitEnd(b.pidfd) {
		return // Released: destroyed, or left to the next driver.
	}
	d.mu.Lock()
	id := b.spec().ID
	asked := d.boxes[id] != b || d.making[id] != nil
	d.mu.Unlock()
	if asked {
		return
	}
	d.markDead(b)
	d.log.Warn("sandbox: its kernel ended", "sandbox", id, "reason", b.info().Reason)
}

func (d *Driver) markDead(b *box) {
	reason := task.InfraSandboxLost
	if d.cgroups.killedForMemory(b.record.Spec.ID) {
		reason = task.LimitMemory
	}
	b.mu.Lock()
	if b.record.Dead == "" {
		b.record.Dead = reason
	}
	r := b.record
	b.mu.Unlock()
	if err := writeRecord(b.dir, r); err != nil {
		d.log.Warn("sandbox: record its death", "sandbox", r.Spec.ID, "error", err)
	}
	// What still runs of it (the gofer) is of no use to anybody.
	ctx, cancel := context.WithTimeout(context.Background(), undoLimit)
	defer cancel()
	if err := d.killAll(ctx, r.Spec.ID); err != nil {
		d.log.Warn("sandbox: end what is left of a dead one", "sandbox", r.Spec.ID, "error", err)
	}
	if err := b.endCommands(r.Dead); err != nil {
		d.log.Warn("sandbox: record the end of its commands", "sandbox", r.Spec.ID, "error", err)
	}
}

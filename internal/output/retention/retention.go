// Package retention removes what tasks left: a whole task, or the bytes of its
// outputs, on request or when it is older than it is kept.
//
// Words. To remove a task is to remove its rows, logs, events, egress records
// and outputs. What its rows referred to becomes loose in the same step, and
// loose things are swept from the disk afterwards, each by itself: a blob only
// when no row refers to it any more. So a crash between any two steps leaves
// something loose, which the next sweep removes; and nothing that is referred to
// is ever loose alone.
//
// What stays of a removed task: its records in the audit, its receipt, which
// verifies as before, and a word that it was removed, by whom and when, with the
// digest of its idempotency key.
//
// Not promised: that bytes can't be recovered from the disk; that backups forget.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/output"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Rows is the record of tasks. Implemented by store. Every call may be repeated.
type Rows interface {
	// RemoveTask removes all rows of an ended task in one step; what was removed
	// before gives the first removal.
	RemoveTask(ctx context.Context, id, by string) (task.Removed, error)
	// RemoveOutputs lets go of the bytes of what an ended task left.
	RemoveOutputs(ctx context.Context, id string) error
	// Expired lists tasks that ended before a moment; with outputs, only those that
	// still have bytes.
	Expired(ctx context.Context, before time.Time, outputs bool, limit int) ([]string, error)
	// Untold lists the removals that the audit may not have; Told settles one.
	Untold(ctx context.Context) ([]task.Removed, error)
	Told(ctx context.Context, id string) error
	Loose
}

// Loose is what is to go from the disk. Implemented by store.
type Loose interface {
	Loose(ctx context.Context) (blobs []task.Digest, logs []string, err error)
	Referenced(ctx context.Context, d task.Digest) (bool, error)
	BlobSettled(ctx context.Context, d task.Digest) error
	RemoveLogs(ctx context.Context, id string) error
}

// Blobs are the bytes. Implemented by output.Blobs.
type Blobs interface {
	Remove(ctx context.Context, d task.Digest, referenced func(context.Context) (bool, error)) (output.Outcome, int64, error)
	Aged(ctx context.Context, before time.Time, yield func(task.Digest) error) error
}

// Recorder appends to the audit.
type Recorder interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
}

// Options say what is removed. All but the two durations are required.
type Options struct {
	Rows  Rows
	Blobs Blobs
	Audit Recorder
	Log   *slog.Logger
	Now   func() time.Time

	Tasks   time.Duration // how long ended tasks are kept; 0: for ever
	Outputs time.Duration // how long the bytes of their outputs are; 0: as long as the task
}

// Keeper removes. It is safe for concurrent use.
type Keeper struct {
	o  Options
	mu sync.Mutex // one sweep at a time
}

// New returns a Keeper.
func New(o Options) *Keeper { return &Keeper{o: o} }

const (
	orphanAge = 24 * time.Hour // of a blob that nothing ever referred to
	page      = 100            // tasks at a time
)

// Remove removes a task that has ended and sweeps. Removing it again finishes
// what was left and tells of the first time.
func (k *Keeper) Remove(ctx context.Context, id, by string) (task.Removal, error) {
	removed, err := k.o.Rows.RemoveTask(ctx, id, by)
	if err != nil {
		return task.Removal{}, err
	}
	// The rows are gone: what follows must be tried whether or not anybody waits.
	ctx = context.WithoutCancel(ctx)
	out := task.Removal{Removed: removed}
	if err := k.tell(ctx, removed); err != nil {
		return out, err
	}
	swept, err := k.Sweep(ctx)
	out.Freed, out.FreedBytes, out.Shared, out.Later = swept.Freed, swept.FreedBytes, swept.Shared, swept.Later
	if err != nil {
		k.o.Log.WarnContext(ctx, "what is loose is removed later", "error", err.Error())
		out.Later++
	}
	return out, nil
}

// tell records a removal in the account of the installation: that of the task is
// closed by its receipt.
func (k *Keeper) tell(ctx context.Context, r task.Removed) error {
	if err := k.o.Audit.Record(ctx, "", "task.removed/"+r.Task, "task.removed", "control plane", r); err != nil {
		return err
	}
	return k.o.Rows.Told(ctx, r.Task)
}

// Swept counts what a sweep did.
type Swept struct {
	Freed      int   // blobs and folders of logs that are gone
	FreedBytes int64 // of the blobs
	Shared     int   // blobs that something refers to
	Later      int   // what is still loose
}

// Sweep removes what is loose from the disk, each thing by itself; the error
// names what could not be.
func (k *Keeper) Sweep(ctx context.Context) (Swept, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var s Swept
	blobs, logs, err := k.o.Rows.Loose(ctx)
	if err != nil {
		return s, err
	}
	var errs []error
	for _, id := range logs {
		if err := k.o.Rows.RemoveLogs(ctx, id); err != nil {
			errs = append(errs, err)
			s.Later++
			continue
		}
		s.Freed++
	}
	for _, d := range blobs {
		if err := k.sweep(ctx, d, &s); err != nil {
			errs = append(errs, err)
			s.Later++
		}
	}
	return s, errors.Join(errs...)
}

func (k *Keeper) sweep(ctx context.Context, d task.Digest, s *Swept) error {
	o, size, err := k.o.Blobs.Remove(ctx, d, func(ctx context.Context) (bool, error) { return k.o.Rows.Referenced(ctx, d) })
	switch {
	case err != nil:
		return err
	case o == output.Pinned:
		s.Later++
		return nil
	case o == output.Referenced:
		s.Shared++
	default:
		s.Freed++
		s.FreedBytes += size
	}
	return k.o.Rows.BlobSettled(ctx, d)
}

// Pass does everything that is due now: what a crash left, what is older than it
// is kept, and blobs that nothing ever referred to.
func (k *Keeper) Pass(ctx context.Context) error {
	var errs []error
	untold, err := k.o.Rows.Untold(ctx)
	errs = append(errs, err)
	for _, r := range untold {
		errs = append(errs, k.tell(ctx, r))
	}
	if k.o.Tasks > 0 {
		errs = append(errs, k.expire(ctx, k.o.Tasks, false))
	}
	if k.o.Outputs > 0 {
		errs = append(errs, k.expire(ctx, k.o.Outputs, true))
	}
	_, err = k.Sweep(ctx)
	errs = append(errs, err, k.orphans(ctx))
	return errors.Join(errs...)
}

// expire removes page after page. One that can't be removed ends it: the next
// pass begins anew.
func (k *Keeper) expire(ctx context.Context, age time.Duration, outputs bool) error {
	for {
		ids, err := k.o.Rows.Expired(ctx, k.o.Now().Add(-age), outputs, page)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if outputs {
				err = k.o.Rows.RemoveOutputs(ctx, id)
			} else {
				var r task.Removed
				if r, err = k.o.Rows.RemoveTask(ctx, id, task.Retention); err == nil {
					err = k.tell(ctx, r)
				}
			}
			if err != nil {
				return err
			}
		}
	}
}

// orphans removes old blobs without a reference: what was uploaded and never
// used, and what a crash left between storing it and saying so.
func (k *Keeper) orphans(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.o.Blobs.Aged(ctx, k.o.Now().Add(-orphanAge), func(d task.Digest) error {
		_, _, err := k.o.Blobs.Remove(ctx, d, func(ctx context.Context) (bool, error) { return k.o.Rows.Referenced(ctx, d) })
		return err
	})
}

// Run does a pass now and whenever tick fires, until ctx ends.
func (k *Keeper) Run(ctx context.Context, tick <-chan time.Time) {
	for {
		if err := k.Pass(ctx); err != nil && ctx.Err() == nil {
			k.o.Log.WarnContext(ctx, "retention is tried again", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

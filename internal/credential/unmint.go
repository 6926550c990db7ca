package credential

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// How a minted value came to its end.
const (
	endRevoked = "revoked" // its provider ended it
	endOver    = "over"    // its time was over before that could be done
	endLasts   = "lasts"   // its provider has no way to end it: it lasts until its time
	endLost    = "lost"    // we were stopped while it was being made: nobody has it
)

// The times of revoking.
const (
	revokeTime  = 10 * time.Second // one try
	firstPause  = time.Second
	lastPause   = time.Minute
	idlePause   = time.Minute
	settleTime  = 5 * time.Second
	revokeMost  = 8                   // at one time
	replacedFor = Life + clockSlip/30 // gateways may have the value before so long
)

// pause is when a value that could not be revoked is tried again.
type pause struct {
	next  time.Time
	after time.Duration
}

// wiped is a value of the vault that was wiped, while what was made from it is
// revoked.
type wiped struct {
	long task.Secret
	at   time.Time
}

// ending is one try to revoke a value.
type ending struct{ done chan struct{} }

// remember keeps a value in memory that is about to be wiped, for as long as it
// is needed to revoke what was made from it.
func (l *Leases) remember(ctx context.Context, c task.Credential) {
	if k, ok := kindOf(c.Kind); !ok || !k.minted || k.once || c.Revoked != nil {
		return
	}
	if _, long, err := l.vault.active(ctx, c.Name, c.ID); err == nil {
		l.mints.mu.Lock()
		defer l.mints.mu.Unlock()
		l.mints.wiped[c.ID] = wiped{long, l.now()}
	}
}

// Run revokes, at who minted them, the values whose leases have ended or that
// were replaced, and tries again until it is done or they are over by themselves.
// It begins with what a process before this one left. It returns when ctx has
// ended and nothing is being minted any longer.
func (l *Leases) Run(ctx context.Context) {
	if l.with.MintRows == nil {
		return
	}
	for ctx.Err() == nil {
		wait, err := l.unmint(ctx, "")
		if err != nil && ctx.Err() == nil {
			l.with.Log.Warn("what was minted can't be looked at", "error", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.mints.kick:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	l.mints.running.Wait()
}

// Settle tries for a few seconds to revoke what was minted for a task whose
// leases have ended, so that its account has it. Run goes on with what is left,
// so a provider that does not answer is no error.
func (l *Leases) Settle(ctx context.Context, taskID string) error {
	defer l.known.Forget(taskID) // nothing of it is kept or shown after this
	if l.with.MintRows == nil {
		return nil
	}
	trying, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if _, err := l.unmint(trying, taskID); err != nil && trying.Err() == nil {
		return err
	}
	return nil
}

// unmint tries to revoke what is due, of one task or (empty) of all, and says
// when to look again.
func (l *Leases) unmint(ctx context.Context, taskID string) (time.Duration, error) {
	rows, err := l.with.MintRows.Mints(ctx, "")
	if err != nil {
		return firstPause, err
	}
	l.mints.forget(rows, l.now())
	wait := idlePause
	room := make(chan struct{}, revokeMost)
	var mu sync.Mutex
	var errs []error
	var running sync.WaitGroup
	for _, r := range rows {
		if taskID != "" && r.Lease.Task != taskID {
			continue
		}
		end, at, err := l.due(ctx, r, rows)
		if err != nil {
			errs = append(errs, err)
			wait = firstPause
			continue
		}
		if now := l.now(); at.After(now) {
			wait = min(wait, max(at.Sub(now), 10*time.Millisecond))
			continue
		}
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			err := l.end(ctx, r, end)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				wait = min(wait, firstPause)
			}
		})
	}
	running.Wait()
	return l.mints.soonest(wait, l.now()), errors.Join(errs...)
}

// due says when a value is to be ended, and how; a time in the future: not yet.
func (l *Leases) due(ctx context.Context, r task.MintedValue, all []task.MintedValue) (end string, at time.Time, err error) {
	now := l.now()
	l.mints.mu.Lock()
	mine, paused := l.mints.own[r.ID], l.mints.pauses[r.ID]
	l.mints.mu.Unlock()
	if r.Kept == nil || r.Until == nil {
		if mine {
			return "", now.Add(firstPause), nil
		}
		return endLost, now, nil
	}
	over := r.Until.Add(clockSlip)
	if now.After(over) {
		return endOver, now, nil
	}
	lent, err := l.rows.Lease(ctx, r.Lease.ID)
	if err != nil && task.ReasonOf(err) != task.InputNotFound {
		return "", now, err
	}
	at = over
	if err != nil || !lent.Active() || lent.Count != r.Lease.Count {
		at = now
	} else {
		for _, other := range all {
			if other.Lease.ID == r.Lease.ID && other.Lease.Count == r.Lease.Count && other.Kept != nil && other.Kept.After(*r.Kept) {
				at = min2(at, other.Kept.Add(replacedFor))
			}
		}
	}
	if paused.next.After(at) {
		at = paused.next
	}
	return endRevoked, at, nil
}

func min2(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// end ends one value: at its provider, on record, and then its row goes. Each
// step may be repeated.
func (l *Leases) end(ctx context.Context, r task.MintedValue, how string) error {
	l.mints.mu.Lock()
	if e := l.mints.endings[r.ID]; e != nil {
		l.mints.mu.Unlock()
		select {
		case <-e.done:
		case <-ctx.Done():
		}
		return nil
	}
	e := &ending{done: make(chan struct{})}
	l.mints.endings[r.ID] = e
	l.mints.mu.Unlock()
	defer func() {
		l.mints.mu.Lock()
		delete(l.mints.endings, r.ID)
		l.mints.mu.Unlock()
		close(e.done)
	}()
	if how == endRevoked {
		if err := l.recordMinted(ctx, r); err != nil {
			return err
		}
		switch err := l.revoke(ctx, r); {
		case errors.Is(err, ErrLasts):
			how = endLasts
		case err != nil:
			l.with.Log.Warn("a minted value is not revoked yet", "credential", r.Credential.Name, "lease", r.Lease.ID, "error", err)
			l.mints.delay(r.ID, l.now())
			return nil
		}
	}
	f := mintFactsOf(r)
	f.End = how
	if err := l.audit.Record(ctx, r.Lease.Task, "credential.unminted/"+r.ID, "credential.unminted", seenBy, f); err != nil {
		return err
	}
	return l.with.MintRows.DropMint(ctx, r.ID)
}

func (l *Leases) revoke(ctx context.Context, r task.MintedValue) error {
	m := l.with.Minters[r.Credential.Kind]
	if m == nil {
		return errors.New("this installation has no minter of its kind any longer")
	}
	value, err := l.vault.openMint(ctx, r)
	if err != nil {
		return err
	}
	_, long, err := l.vault.active(ctx, r.Credential.Name, r.Credential.ID)
	if err != nil {
		l.mints.mu.Lock()
		long = l.mints.wiped[r.Credential.ID].long
		l.mints.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, revokeTime)
	defer cancel()
	return m.Revoke(ctx, r.Credential, long, value)
}

// delay notes when a value is tried again.
func (m *mints) delay(id string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pauses[id]
	p.after = min(max(firstPause, 2*p.after), lastPause)
	p.next = now.Add(p.after)
	m.pauses[id] = p
}

// soonest is how long it is until a value is tried again, at most wait.
func (m *mints) soonest(wait time.Duration, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pauses {
		if d := p.next.Sub(now); d > 0 {
			wait = min(wait, d)
		}
	}
	return wait
}

// forget drops what is known of values and credentials that are gone.
func (m *mints) forget(rows []task.MintedValue, now time.Time) {
	ids, credentials := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		ids[r.ID], credentials[r.Credential.ID] = true, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.pauses {
		if !ids[id] {
			delete(m.pauses, id)
		}
	}
	for id, w := range m.wiped {
		if !credentials[id] && now.After(w.at.Add(Life)) { // one that is being made may need it
			delete(m.wiped, id)
		}
	}
}

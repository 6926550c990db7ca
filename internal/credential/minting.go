package credential

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// How long a provider is left alone after a failure.
const (
	pauseFaulty  = 3 * time.Second
	pauseRefused = 30 * time.Second
	pauseMost    = 5 * time.Minute
)

// mints is what this process knows of minting. Facts are in the rows.
type mints struct {
	mu      sync.Mutex
	flights map[string]*flight // by lease and count: one minting at a time
	failed  map[string]failed  // by lease and count
	own     map[string]bool    // values that are being made, by id
	endings map[string]*ending // values that are being revoked, by id
	pauses  map[string]pause   // values that could not be revoked, by id
	wiped   map[string]wiped
	running sync.WaitGroup
	kick    chan struct{}
}

func newMints() mints {
	return mints{
		flights: map[string]*flight{}, failed: map[string]failed{}, own: map[string]bool{}, endings: map[string]*ending{},
		pauses: map[string]pause{}, wiped: map[string]wiped{}, kick: make(chan struct{}, 1),
	}
}

// wake has Run look at what is to be revoked.
func (m *mints) wake() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// flight is one minting. What it came to is set when done closes.
type flight struct {
	done  chan struct{}
	given task.Given
	err   error
}

// failed is a minting that failed; the same is told until a time.
type failed struct {
	err   error
	until time.Time
}

// minting is one lease's part in minting.
type minting struct {
	minter Minter
	kind   kind
	of     task.Credential
	long   task.Secret
	lent   task.Lent
}

func (m minting) key() string { return fmt.Sprintf("%s/%d", m.lent.ID, m.lent.Count) }

// mint gives the value that was minted for a lease, or has one minted.
func (l *Leases) mint(ctx context.Context, k kind, c task.Credential, long task.Secret, lent task.Lent) (task.Given, error) {
	m := minting{minter: l.with.Minters[c.Kind], kind: k, of: c, long: long, lent: lent}
	if m.minter == nil || l.with.MintRows == nil && !k.once {
		return task.Given{}, task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q is of kind %s, which this installation does not mint", c.Name, c.Kind), nil)
	}
	if k.once {
		return l.mintOnce(ctx, m)
	}
	given, renew, err := l.held(ctx, m)
	if err != nil || !given.Value.Empty() && !renew {
		return given, err
	}
	f, err := l.fly(m)
	if !given.Value.Empty() {
		return given, nil // the next one is made behind who asks
	}
	if err != nil {
		return task.Given{}, err
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return task.Given{}, task.Fail(task.InfraCredential, fmt.Sprintf("credential %q: its provider did not answer in time", c.Name), ctx.Err())
	}
	if f.err != nil {
		return task.Given{}, f.err
	}
	// The lease may have ended while the provider was asked.
	if now, err := l.rows.Lease(ctx, lent.ID); err != nil || !now.Active() || now.Count != lent.Count {
		return task.Given{}, task.Fail(task.PolicyCredential, "this lease is not lent to this sandbox, or it has ended", nil)
	}
	return f.given, nil
}

// held gives the newest value of the lease that may still be given away, which is
// on record then, and whether it is time for the next.
func (l *Leases) held(ctx context.Context, m minting) (given task.Given, renew bool, err error) {
	rows, err := l.with.MintRows.Mints(ctx, m.lent.ID)
	if err != nil {
		return task.Given{}, false, err
	}
	var best *task.MintedValue
	for i, r := range rows {
		if r.Kept != nil && r.Until != nil && r.Lease.Count == m.lent.Count && (best == nil || r.Until.After(*best.Until)) {
			best = &rows[i]
		}
	}
	if best == nil {
		return task.Given{}, false, nil
	}
	d, renew := left(*best, l.now())
	if d < time.Second {
		return task.Given{}, false, nil
	}
	value, err := l.vault.openMint(ctx, *best)
	if err != nil {
		return task.Given{}, false, err
	}
	return task.Given{Value: value, Keep: min(Life, d)}, renew, l.recordMinted(ctx, *best)
}

// fly begins a minting, or finds the one that is under way. It goes on when who
// asked is gone: the next one who asks finds its value.
func (l *Leases) fly(m minting) (*flight, error) {
	key := m.key()
	l.mints.mu.Lock()
	defer l.mints.mu.Unlock()
	if f := l.mints.flights[key]; f != nil {
		return f, nil
	}
	if bad, ok := l.mints.failed[key]; ok && l.now().Before(bad.until) {
		return nil, bad.err
	}
	f := &flight{done: make(chan struct{})}
	l.mints.flights[key] = f
	l.mints.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), mintTime)
		defer cancel()
		f.given, f.err = l.make(ctx, m)
		l.mints.mu.Lock()
		delete(l.mints.flights, key)
		l.mints.mu.Unlock()
		close(f.done)
	})
	return f, nil
}

// make mints a value: intent, question, value kept, record.
func (l *Leases) make(ctx context.Context, m minting) (task.Given, error) {
	// A minting that ended just now may have brought one.
	if given, renew, err := l.held(ctx, m); err != nil || !given.Value.Empty() && !renew {
		return given, err
	}
	value := task.MintedValue{ID: newMintID(), Lease: m.lent, Credential: m.of, Begun: l.moment()}
	l.mints.claim(value.ID, true)
	defer l.mints.claim(value.ID, false)
	if err := l.with.MintRows.BeginMint(ctx, value); err != nil {
		return task.Given{}, err
	}
	made, err := l.ask(ctx, m, value.ID)
	// What is done with the answer is not bound to the time of the question.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mintTime)
	defer cancel()
	if err != nil {
		return task.Given{}, errors.Join(err, l.with.MintRows.DropMint(ctx, value.ID))
	}
	at := l.moment()
	until := made.Until.UTC().Truncate(time.Microsecond)
	l.vault.writing.RLock()
	value.Sealed, err = l.vault.sealMint(ctx, value.ID, m.lent, m.of, made.Value)
	if err == nil {
		err = l.with.MintRows.KeepMint(ctx, value.ID, value.Sealed, at, until)
	}
	l.vault.writing.RUnlock()
	if err != nil {
		// What can't be kept can't be revoked later.
		return task.Given{}, errors.Join(err, m.minter.Revoke(ctx, m.of, m.long, made.Value))
	}
	value.Kept, value.Until = &at, &until
	if err := l.recordMinted(ctx, value); err != nil {
		return task.Given{}, err
	}
	l.mints.wake() // for the value before it, and for a lease that ended meanwhile
	d, _ := left(value, at)
	return task.Given{Value: made.Value, Keep: min(Life, max(d, time.Second))}, nil
}

// ask has the provider make a value, and remembers a failure.
func (l *Leases) ask(ctx context.Context, m minting, id string) (Minted, error) {
	made, err := m.minter.Mint(ctx, m.of, m.long, m.lent)
	if err == nil {
		if text := made.fit(l.now(), m.kind.once); text != "" {
			err = task.Fail(task.InfraCredential, fmt.Sprintf("credential %q: its provider gave %s", m.of.Name, text), nil)
			if !made.Value.Empty() {
				if rerr := m.minter.Revoke(ctx, m.of, m.long, made.Value); rerr != nil {
					l.with.Log.Warn("a minted value that is not used could not be revoked", "credential", m.of.Name, "error", rerr)
				}
			}
		}
	}
	if err == nil {
		return made, nil
	}
	if err = l.quiet(m, err); task.ReasonOf(err) == task.LimitRequests {
		return Minted{}, err // who asks waits; the next one need not
	}
	l.with.Log.Warn("a credential's value was not minted", "credential", m.of.Name, "lease", m.lent.ID, "error", err)
	return Minted{}, l.fail(ctx, m, id, err)
}

// quiet makes an error one that may be told: with a reason, without the vault's
// value.
func (l *Leases) quiet(m minting, err error) error {
	long := m.long.Reveal()
	switch {
	case long != "" && strings.Contains(err.Error(), long):
		return task.Fail(task.InfraCredential, fmt.Sprintf("credential %q: its provider repeated the key in what it answered", m.of.Name), nil)
	case task.ReasonOf(err) == task.ReasonNone:
		return task.Fail(task.InfraCredential, fmt.Sprintf("credential %q can't be minted now", m.of.Name), err)
	}
	return err
}

// fail remembers a failure, so that a provider is not asked over and over, and
// puts it on record where it is another one than before.
func (l *Leases) fail(ctx context.Context, m minting, id string, err error) error {
	if r := task.ReasonOf(err); r != task.PolicyCredential && r != task.InfraCredential {
		return err // of ours: nobody outside was asked
	}
	pause := pauseFaulty
	if task.ReasonOf(err) == task.PolicyCredential {
		pause = pauseRefused
	}
	if later, ok := errors.AsType[*Later](err); ok {
		pause = min(max(pause, later.After), pauseMost)
	}
	l.mints.mu.Lock()
	last, known := l.mints.failed[m.key()]
	if len(l.mints.failed) >= maxFailed {
		clear(l.mints.failed)
	}
	l.mints.failed[m.key()] = failed{err: err, until: l.now().Add(pause)}
	l.mints.mu.Unlock()
	if known && last.err.Error() == err.Error() {
		return err
	}
	f := mintFactsOf(task.MintedValue{ID: id, Lease: m.lent, Credential: m.of})
	f.Reason = task.ReasonOf(err)
	if told, ok := errors.AsType[*task.Failure](err); ok {
		f.Text = told.Text
	}
	return errors.Join(err, l.audit.Record(context.WithoutCancel(ctx), m.lent.Task, "credential.not_minted/"+id, "credential.not_minted", seenBy, f))
}

// maxFailed bounds the failures that are remembered.
const maxFailed = 4096

// mintOnce has a value made for one request. There is nothing to keep and
// nothing to revoke.
func (l *Leases) mintOnce(ctx context.Context, m minting) (task.Given, error) {
	l.mints.mu.Lock()
	bad, ok := l.mints.failed[m.key()]
	l.mints.mu.Unlock()
	if ok && l.now().Before(bad.until) {
		return task.Given{}, bad.err
	}
	ctx, cancel := context.WithTimeout(ctx, mintTime)
	defer cancel()
	made, err := l.ask(ctx, m, newMintID())
	if err != nil {
		return task.Given{}, err
	}
	f := mintFactsOf(task.MintedValue{Lease: m.lent, Credential: m.of, Begun: l.moment()})
	f.Once = true
	err = l.audit.Record(ctx, m.lent.Task, "credential.minted/"+m.key(), "credential.minted", seenBy, f)
	return task.Given{Value: made.Value, Once: true}, err
}

func (m *mints) claim(id string, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mine {
		m.own[id] = true
	} else {
		delete(m.own, id)
	}
}

func newMintID() string {
	var raw [10]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand since Go 1.24)
	return "m-" + strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))
}

// mintFacts are the facts of a value that was minted, was not, or is over. None
// is ever the value.
type mintFacts struct {
	Task       string            `json:"task"`
	Attempt    int               `json:"attempt"`
	Stage      task.StageName    `json:"stage"`
	Sandbox    string            `json:"sandbox"`
	Lease      string            `json:"lease"`
	Count      int               `json:"count"`
	Credential string            `json:"credential"`
	Kind       string            `json:"kind"`
	Settings   map[string]string `json:"settings,omitempty"`
	Value      string            `json:"value,omitempty"` // its id
	From       time.Time         `json:"from,omitzero"`
	Until      *time.Time        `json:"until,omitempty"`
	Once       bool              `json:"once,omitempty"` // one for each request
	End        string            `json:"end,omitempty"`  // one of the end constants
	Reason     task.Reason       `json:"reason,omitempty"`
	Text       string            `json:"text,omitempty"`
}

func mintFactsOf(m task.MintedValue) mintFacts {
	return mintFacts{
		Task: m.Lease.Task, Attempt: m.Lease.Attempt, Stage: m.Lease.Stage, Sandbox: m.Lease.Sandbox, Lease: m.Lease.ID, Count: m.Lease.Count,
		Credential: m.Credential.Name, Kind: m.Credential.Kind, Settings: m.Credential.Settings, Value: m.ID, From: m.Begun, Until: m.Until,
	}
}

func (l *Leases) recordMinted(ctx context.Context, m task.MintedValue) error {
	return l.audit.Record(ctx, m.Lease.Task, "credential.minted/"+m.ID, "credential.minted", seenBy, mintFactsOf(m))
}

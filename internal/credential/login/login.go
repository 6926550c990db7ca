package login

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/credential/login/claude"
	"github.com/cofferdam/cofferdam/internal/credential/login/codex"
	"github.com/cofferdam/cofferdam/internal/credential/login/folder"
	"github.com/cofferdam/cofferdam/internal/credential/login/tokens"
	"github.com/cofferdam/cofferdam/internal/credential/provider"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The settings of both kinds.
const (
	settingDir    = "dir"
	settingURL    = "token_url"
	settingClient = "client_id"
)

const (
	early   = 5 * time.Minute  // before its end a token is renewed, as the tools do it
	renewal = 75 * time.Second // all of one: the tool's lock, the question, the write
)

// vendor is what is known of one tool.
type vendor struct {
	tool  string // how a person calls it
	again string // what a person does to sign in again
	file  string
	read  func(text []byte) (tokens.Tokens, error)
	write func(text []byte, t tokens.Tokens, now time.Time) ([]byte, error)
	// until is when an access token says that it is over; nil: it can't be told.
	until   func(access string) time.Time
	lock    func(ctx context.Context, f *folder.Folder, l *folder.Lock) error
	writing func(ctx context.Context, f *folder.Folder, l *folder.Lock) error
}

func vendorOf(kind string) vendor {
	if kind == task.KindCodexLogin {
		return vendor{
			tool: "Codex", again: "codex login", file: codex.File, read: codex.Read, write: codex.Write, until: codex.Until,
			lock: codex.Lock, writing: codex.Writing,
		}
	}
	return vendor{
		tool: "Claude Code", again: "claude, then /login", file: claude.File, read: claude.Read, write: claude.Write,
		lock: claude.Lock, writing: claude.Writing,
	}
}

// Vault keeps logins of our own. Implemented by credential.Vault.
type Vault interface {
	// Newest is the value of a credential as it is now.
	Newest(ctx context.Context, c task.Credential) (task.Secret, error)
	// Renew puts another value in its place.
	Renew(ctx context.Context, c task.Credential, value task.Secret) error
}

// Options are what a Minter works with. All are required but Log.
type Options struct {
	Ask   provider.Provider
	Vault Vault
	Now   func() time.Time
	Log   *slog.Logger
}

// Minter lends access tokens. It implements credential.Minter, and is safe for
// concurrent use.
type Minter struct {
	Options
	mu      sync.Mutex
	turns   map[string]*turn // by credential
	running sync.WaitGroup
}

// turn is one login while it is looked at.
type turn struct {
	busy chan struct{} // has a place for who has the turn
	// renewed is what a vendor gave and could not be written yet.
	renewed *renewed
}

// renewed are tokens in place of those with another refresh token.
type renewed struct {
	of tokens.Tokens
	to tokens.Tokens
}

// New returns a minter.
func New(o Options) *Minter {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Minter{Options: o, turns: map[string]*turn{}}
}

// Wait waits for renewals that are under way. Nobody may ask for one any longer.
func (m *Minter) Wait() { m.running.Wait() }

func (m *Minter) turnOf(id string) *turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.turns[id]
	if t == nil {
		t = &turn{busy: make(chan struct{}, 1)}
		m.turns[id] = t
	}
	return t
}

// Mint implements credential.Minter. A renewal goes on when who asked for it is
// gone: its answer must not be lost.
func (m *Minter) Mint(ctx context.Context, c task.Credential, _ task.Secret, _ task.Lent) (credential.Minted, error) {
	type result struct {
		made credential.Minted
		err  error
	}
	t, done := m.turnOf(c.ID), make(chan result, 1)
	select {
	case t.busy <- struct{}{}:
	case <-ctx.Done():
		return credential.Minted{}, m.slow(c)
	}
	m.running.Go(func() {
		defer func() { <-t.busy }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewal)
		defer cancel()
		made, err := m.mint(ctx, c, t)
		done <- result{made, err}
	})
	select {
	case r := <-done:
		return r.made, r.err
	case <-ctx.Done():
		return credential.Minted{}, m.slow(c)
	}
}

func (m *Minter) slow(c task.Credential) error {
	return task.Fail(task.InfraCredential, fmt.Sprintf("credential %q: its login is being renewed, which takes its time", c.Name), nil)
}

// Revoke implements credential.Minter. The token is the person's own: to end it
// would sign them out.
func (m *Minter) Revoke(context.Context, task.Credential, task.Secret, task.Secret) error {
	return credential.ErrLasts
}

// mint gives the access token of a login, renewed when it is due.
func (m *Minter) mint(ctx context.Context, c task.Credential, t *turn) (credential.Minted, error) {
	v := vendorOf(c.Kind)
	src, err := m.open(ctx, c, v)
	if err != nil {
		return credential.Minted{}, err
	}
	defer src.close()
	now, err := m.have(ctx, c, v, src)
	if err == nil && m.fresh(now) && t.renewed == nil {
		return minted(now), nil
	}
	// What can't be read may just be being written: under the lock it is whole.
	if err := src.lock(ctx); err != nil {
		return credential.Minted{}, m.failed(c, v, err)
	}
	if now, err = m.have(ctx, c, v, src); err != nil {
		return credential.Minted{}, err
	}
	if r := t.renewed; r != nil {
		if same(r.of, now) {
			now, err = m.keep(ctx, c, v, src, t)
			if err != nil {
				return credential.Minted{}, err
			}
		}
		t.renewed = nil // or somebody signed in meanwhile
	}
	if m.fresh(now) {
		return minted(now), nil
	}
	was := now
	got, err := m.ask(ctx, c, v, now)
	if err != nil {
		// A tool that asked without a lock may have been first.
		if again, rerr := m.have(ctx, c, v, src); rerr == nil && !same(again, now) && m.fresh(again) {
			return minted(again), nil
		}
		if !got.Refresh.Empty() && !same(got, now) { // no use today, but the old one is used up
			now.Refresh = got.Refresh
			t.renewed = &renewed{of: was, to: now}
			if _, kerr := m.keep(ctx, c, v, src, t); kerr == nil {
				t.renewed = nil
			}
		}
		return credential.Minted{}, err
	}
	t.renewed = &renewed{of: was, to: got}
	if now, err = m.keep(ctx, c, v, src, t); err != nil {
		return credential.Minted{}, err
	}
	t.renewed = nil
	m.Log.Info("a login was renewed", "credential", c.Name, "until", now.Until)
	return minted(now), nil
}

func minted(t tokens.Tokens) credential.Minted {
	return credential.Minted{Value: t.Access, Until: t.Until}
}

func same(a, b tokens.Tokens) bool { return a.Refresh.Reveal() == b.Refresh.Reveal() }

func (m *Minter) fresh(t tokens.Tokens) bool { return t.Until.Sub(m.Now()) > early }

// have reads the tokens of a source.
func (m *Minter) have(ctx context.Context, c task.Credential, v vendor, src source) (tokens.Tokens, error) {
	text, err := src.read(ctx)
	if err != nil {
		return tokens.Tokens{}, m.failed(c, v, err)
	}
	t, err := v.read(text)
	if err != nil {
		return t, task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q: the login of %s %v; sign in again: %s", c.Name, v.tool, err, src.advice(v)), nil)
	}
	return t, nil
}

// failed tells why a source can't be used.
func (m *Minter) failed(c task.Credential, v vendor, err error) error {
	if _, ok := errors.AsType[*task.Failure](err); ok {
		return err
	}
	r := task.PolicyCredential // a person must mend it
	if errors.Is(err, folder.ErrBusy) {
		r = task.InfraCredential
	}
	return task.Fail(r, fmt.Sprintf("credential %q: the login of %s in the folder that its setting dir names: %v", c.Name, v.tool, err), nil)
}

// keep writes what a vendor gave, unless the source has another login by now. It
// goes on for a while after ctx has ended: what is not written is lost.
func (m *Minter) keep(ctx context.Context, c task.Credential, v vendor, src source, t *turn) (tokens.Tokens, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	kept := t.renewed.to
	err := src.change(ctx, func(text []byte) ([]byte, error) {
		have, err := v.read(text)
		if err == nil && !same(have, t.renewed.of) {
			kept = have
			return nil, nil // signed in, or renewed, by somebody else: theirs stays
		}
		return v.write(text, t.renewed.to, m.Now())
	})
	if err != nil {
		return tokens.Tokens{}, task.Fail(task.InfraCredential, fmt.Sprintf("credential %q: the login of %s was renewed and can't be written back, so that it is not used: %v", c.Name, v.tool, err), nil)
	}
	return kept, nil
}

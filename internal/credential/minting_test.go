package credential

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/store/minted"
	"github.com/cofferdam/cofferdam/internal/task"
)

const oauthSecret = "REALVALUE client secret"

// mintery is a provider in memory.
type mintery struct {
	mu      sync.Mutex
	now     func() time.Time
	life    time.Duration
	made    int
	live    map[string]string // value → the secret it was made with
	err     error             // of minting
	stuck   error             // of revoking
	gate    chan struct{}     // nil: minting does not wait
	entered chan struct{}
	longs   []string // that values were revoked with
}

func newMintery(now func() time.Time) *mintery {
	return &mintery{now: now, life: time.Hour, live: map[string]string{}, entered: make(chan struct{}, 100)}
}

func (m *mintery) Mint(_ context.Context, _ task.Credential, long task.Secret, _ task.Lent) (Minted, error) {
	m.entered <- struct{}{}
	if m.gate != nil {
		<-m.gate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return Minted{}, m.err
	}
	m.made++
	v := fmt.Sprintf("REALVALUE-minted-%d", m.made)
	m.live[v] = long.Reveal()
	return Minted{Value: task.NewSecret(v), Until: m.now().Add(m.life)}, nil
}

func (m *mintery) Revoke(_ context.Context, _ task.Credential, long, value task.Secret) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck != nil {
		return m.stuck
	}
	m.longs = append(m.longs, long.Reveal())
	delete(m.live, value.Reveal())
	return nil
}

func (m *mintery) do(change func(*mintery)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// mintRig is a rig whose oauth credentials are minted in memory.
func mintRig(t *testing.T) (*rig, *mintery) {
	t.Helper()
	r := newRig(t)
	m := newMintery(r.moment)
	r.mintWith(m)
	return r, m
}

// moment is the clock without moving it.
func (r *rig) moment() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *rig) mintWith(m Minter) {
	r.leases = NewLeases(r.vault, r.store, r.audit, r.moment, Minting{Minters: map[string]Minter{task.KindOAuth: m}, MintRows: minted.New(r.store.Base())})
}

func (r *rig) addOAuth() task.Credential {
	return r.add(func(q *task.CredentialRequest) {
		q.Kind, q.Header, q.Value = task.KindOAuth, "", task.NewSecret(oauthSecret)
		q.Settings = map[string]string{"token_url": "https://as.example/token", "client_id": "me"}
	})
}

func (r *rig) rows() []task.MintedValue {
	r.t.Helper()
	rows, err := r.leases.with.MintRows.Mints(r.t.Context(), "")
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// minted asks for the value of a lease.
func (r *rig) minted(l task.Lent) task.Given {
	r.t.Helper()
	g, err := r.leases.Value(r.t.Context(), l.Sandbox, l.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

func TestMintedOnceKeptAndRevoked(t *testing.T) {
	r, m := mintRig(t)
	r.addOAuth()
	u := use(r.task("alice"), task.Agent)
	l := r.lend(u, "key")[0]
	m.gate = make(chan struct{})
	values := make(chan task.Given, 8)
	for range cap(values) {
		go func() {
			g, err := r.leases.Value(context.WithoutCancel(t.Context()), l.Sandbox, l.ID)
			if err != nil {
				t.Error(err)
			}
			values <- g
		}()
	}
	<-m.entered
	close(m.gate)
	for range cap(values) {
		if g := <-values; g.Value.Reveal() != "REALVALUE-minted-1" || g.Keep != Life || g.Once {
			t.Errorf("given %+v", g)
		}
	}
	// A restart mints nothing anew.
	r.reopen(func() {})
	r.mintWith(m)
	if g := r.minted(l); g.Value.Reveal() != "REALVALUE-minted-1" || m.made != 1 {
		t.Errorf("after a restart: %d were minted", m.made)
	}
	if rows := r.rows(); len(rows) != 1 || strings.Contains(string(rows[0].Sealed), "REALVALUE") {
		t.Errorf("rows %+v", rows)
	}
	if err := r.leases.End(t.Context(), u.Task, u.Sandbox, task.EndedStage); err != nil {
		t.Fatal(err)
	}
	if err := r.leases.Settle(t.Context(), u.Task); err != nil {
		t.Fatal(err)
	}
	if len(m.live) != 0 || len(r.rows()) != 0 || m.longs[0] != oauthSecret {
		t.Errorf("left: %v, %v", m.live, r.rows())
	}
	if r.records("credential.minted") != 1 || r.records("credential.unminted") != 1 || !strings.Contains(r.export(), `"end":"revoked"`) || strings.Contains(r.export(), "REALVALUE") {
		t.Errorf("the account: %s", r.export())
	}
	// The stage is taken up again: another value.
	l = r.lend(u, "key")[0]
	if g := r.minted(l); g.Value.Reveal() != "REALVALUE-minted-2" {
		t.Error("the value before is given again")
	}
}

func TestRenewedBeforeItsEnd(t *testing.T) {
	r, m := mintRig(t)
	r.addOAuth()
	u := use(r.task("alice"), task.Agent)
	l := r.lend(u, "key")[0]
	r.minted(l)
	// Close to its end a gateway may keep it for less, and the next is made behind
	// who asks.
	r.pass(time.Hour - clockSlip - 30*time.Second)
	if g := r.minted(l); g.Value.Reveal() != "REALVALUE-minted-1" || g.Keep != 30*time.Second {
		t.Errorf("given %+v", g)
	}
	r.leases.mints.running.Wait()
	if g := r.minted(l); g.Value.Reveal() != "REALVALUE-minted-2" || g.Keep != Life {
		t.Errorf("renewed: %+v", g)
	}
	// The one before is revoked once no gateway can hold it any longer.
	if wait, err := r.leases.unmint(t.Context(), ""); err != nil || len(m.live) != 2 || wait <= 0 {
		t.Errorf("%d live, next look in %s, %v", len(m.live), wait, err)
	}
	r.pass(replacedFor + time.Second)
	if _, err := r.leases.unmint(t.Context(), ""); err != nil || len(m.live) != 1 || len(r.rows()) != 1 {
		t.Errorf("live %v, %v", m.live, err)
	}
	// A provider that fails meanwhile is not noticed until the value is over.
	m.do(func(m *mintery) { m.err = task.Fail(task.InfraCredential, "down", &Later{After: time.Hour}) })
	r.pass(time.Hour - clockSlip - 2*time.Minute)
	if g := r.minted(l); g.Value.Reveal() != "REALVALUE-minted-2" {
		t.Errorf("given %+v", g)
	}
	r.leases.mints.running.Wait()
	r.pass(2 * time.Minute)
	_, err := r.leases.Value(t.Context(), l.Sandbox, l.ID)
	wants(t, err, task.InfraCredential, "down")
	// It is left alone for as long as it said, up to a bound.
	asked := len(m.entered)
	r.pass(pauseMost - 3*time.Minute)
	_, err = r.leases.Value(t.Context(), l.Sandbox, l.ID)
	wants(t, err, task.InfraCredential, "down")
	if len(m.entered) != asked {
		t.Error("it was asked too soon")
	}
	m.do(func(m *mintery) { m.err = nil })
	r.pass(pauseMost)
	if g := r.minted(l); g.Value.Reveal() != "REALVALUE-minted-3" {
		t.Errorf("given %+v", g)
	}
	if r.records("credential.not_minted") != 1 {
		t.Errorf("%d records of one failure", r.records("credential.not_minted"))
	}
}

// A credential that is revoked ends what was made from it, with the secret that
// is wiped at once; what can't be revoked is tried again until it is over.
func TestRevokedWithItsCredential(t *testing.T) {
	r, m := mintRig(t)
	r.addOAuth()
	u := use(r.task("alice"), task.Agent)
	l := r.lend(u, "key")[0]
	r.minted(l)
	m.do(func(m *mintery) { m.stuck = errors.New("down") })
	if _, ended, err := r.leases.Revoke(t.Context(), "key", "admin", true); err != nil || len(ended) != 1 {
		t.Fatalf("ended %v, %v", ended, err)
	}
	_, err := r.leases.Value(t.Context(), l.Sandbox, l.ID)
	wants(t, err, task.PolicyCredential, "ended")
	if wait, err := r.leases.unmint(t.Context(), ""); err != nil || len(m.live) != 1 || wait != firstPause {
		t.Errorf("live %v, again in %s, %v", m.live, wait, err)
	}
	m.do(func(m *mintery) { m.stuck = nil })
	if _, err := r.leases.unmint(t.Context(), ""); err != nil || len(m.live) != 1 {
		t.Errorf("it was tried again at once: %v, %v", m.live, err)
	}
	r.pass(firstPause)
	if _, err := r.leases.unmint(t.Context(), ""); err != nil || len(m.live) != 0 || m.longs[0] != oauthSecret {
		t.Errorf("live %v with %q, %v", m.live, m.longs, err)
	}
	// The name is free: another key, other values. Values of the old one are gone.
	r.addOAuth()
	if l2 := r.lend(use(r.task("alice"), task.Agent), "key")[0]; r.minted(l2).Value.Reveal() != "REALVALUE-minted-2" {
		t.Error("not minted with the new one")
	}
	// One that never can be revoked is forgotten when it is over.
	m.do(func(m *mintery) { m.stuck = ErrLasts })
	if _, _, err := r.leases.Revoke(t.Context(), "key", "admin", false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.leases.unmint(t.Context(), ""); err != nil || len(r.rows()) != 0 || !strings.Contains(r.export(), `"end":"lasts"`) {
		t.Errorf("rows %v, %v", r.rows(), err)
	}
}

func TestOverByItself(t *testing.T) {
	r, m := mintRig(t)
	r.addOAuth()
	u := use(r.task("alice"), task.Agent)
	l := r.lend(u, "key")[0]
	r.minted(l)
	m.do(func(m *mintery) { m.stuck = errors.New("down") })
	if err := r.leases.End(t.Context(), u.Task, "", task.EndedCancelled); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := r.leases.unmint(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
	}
	if len(r.rows()) != 0 || !strings.Contains(r.export(), `"end":"over"`) {
		t.Errorf("rows %v", r.rows())
	}
}

// The lease ends while its value is being made: nobody gets it, and it is
// revoked.
func TestEndsWhileItIsMinted(t *testing.T) {
	r, m := mintRig(t)
	r.addOAuth()
	u := use(r.task("alice"), task.Agent)
	l := r.lend(u, "key")[0]
	m.gate = make(chan struct{})
	got := make(chan error, 1)
	go func() {
		_, err := r.leases.Value(context.WithoutCancel(t.Context()), l.Sandbox, l.ID)
		got <- err
	}()
	<-m.entered
	if err := r.leases.End(t.Context(), u.Task, "", task.EndedCancelled); err != nil {
		t.Fatal(err)
	}
	if _, err := r.leases.unmint(t.Context(), ""); err != nil || len(r.rows()) != 1 {
		t.Errorf("what is being made was ended: %v", err)
	}
	close(m.gate)
	wants(t, <-got, task.PolicyCredential, "ended")
	if _, err := r.leases.unmint(t.Context(), ""); err != nil || len(m.live) != 0 || len(r.rows()) != 0 {
		t.Errorf("live %v, rows %v, %v", m.live, r.rows(), err)
	}
}

// A row whose value was taken from another one, or whose lease or address was
// altered, gives nothing away and is sent to nobody.
func TestAlteredMint(t *testing.T) {
	for name, change := range map[string]string{
		"another provider": `UPDATE minted_values SET record = replace(record, 'as.example', 'evil.example')`,
		"another sandbox":  `UPDATE minted_values SET record = replace(record, '"sandbox":"sb-', '"sandbox":"sc-')`,
		"another count":    `UPDATE minted_values SET count = count + 1`,
		"other bytes":      `UPDATE minted_values SET sealed = substr(sealed, 1, 40)`,
	} {
		t.Run(name, func(t *testing.T) {
			r, m := mintRig(t)
			r.addOAuth()
			u := use(r.task("alice"), task.Agent)
			l := r.lend(u, "key")[0]
			r.minted(l)
			if _, err := r.store.Base().Write.ExecContext(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			if name != "another count" { // which is only another value's
				_, err := r.leases.Value(t.Context(), l.Sandbox, l.ID)
				wants(t, err, task.InfraVault, "altered")
			}
			if err := r.leases.End(t.Context(), u.Task, "", task.EndedTask); err != nil {
				t.Fatal(err)
			}
			if _, err := r.leases.unmint(t.Context(), ""); err != nil || len(m.longs) != 0 {
				t.Errorf("it was sent: %v, %v", m.longs, err)
			}
		})
	}
}

func TestUnknownMinter(t *testing.T) {
	r, _ := mintRig(t)
	r.addOAuth()
	l := r.lend(use(r.task("alice"), task.Agent), "key")[0]
	r.leases = NewLeases(r.vault, r.store, r.audit, r.moment, Minting{})
	_, err := r.leases.Value(t.Context(), l.Sandbox, l.ID)
	wants(t, err, task.PolicyCredential, "does not mint")
}

// Run revokes by itself when a lease ends, and begins with what a process before
// it left.
func TestRunRevokes(t *testing.T) {
	r, m := mintRig(t)
	r.addOAuth()
	u := use(r.task("alice"), task.Agent)
	r.minted(r.lend(u, "key")[0])
	other := use(r.task("alice"), task.Agent)
	r.minted(r.lend(other, "key")[0])
	if err := r.leases.End(t.Context(), u.Task, "", task.EndedStage); err != nil {
		t.Fatal(err)
	}
	r.mintWith(m) // a new process, which nobody woke
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.leases.Run(ctx)
	}()
	left := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); len(r.rows()) != n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("rows %v", r.rows())
			}
		}
	}
	left(1)
	if err := r.leases.End(t.Context(), other.Task, "", task.EndedStage); err != nil {
		t.Fatal(err)
	}
	left(0)
	stop()
	<-done
	if len(m.live) != 0 || r.records("credential.unminted") != 2 {
		t.Errorf("live %v", m.live)
	}
}

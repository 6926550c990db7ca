package credential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cofferdam/cofferdam/internal/credential/seal"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/keys"
	"github.com/cofferdam/cofferdam/internal/store/minted"
	"github.com/cofferdam/cofferdam/internal/store/vault"
	"github.com/cofferdam/cofferdam/internal/task"
)

// settle ends a rotation that was broken off, as a start of the control plane does.
func settle(ctx context.Context, s *store.Store, dir string) error {
	return seal.Settle(ctx, filepath.Join(dir, "keys", "vault.key"), func(ctx context.Context, id string) (bool, error) {
		return keys.New(s.Base()).Rotated(ctx, task.KeyVault, id)
	})
}

// keepMint keeps a minted value of the credential, as a lease would.
func (r *rig) keepMint(c task.Credential, value string) {
	r.t.Helper()
	rows := minted.New(r.store.Base())
	lent := task.Lent{Lease: task.Lease{ID: "l-1"}, Task: "t-1", Sandbox: "sb-1", Count: 1}
	m := task.MintedValue{ID: "m-1", Lease: lent, Credential: c, Begun: r.tick()}
	if err := rows.BeginMint(r.t.Context(), m); err != nil {
		r.t.Fatal(err)
	}
	sealed, err := r.vault.sealMint(r.t.Context(), m.ID, m.Lease, m.Credential, task.NewSecret(value))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := rows.KeepMint(r.t.Context(), m.ID, sealed, r.tick(), r.tick()); err != nil {
		r.t.Fatal(err)
	}
}

// opens looks at every sealed value there is.
func (r *rig) opens(when string, c task.Credential) {
	r.t.Helper()
	if _, v, err := r.vault.active(r.t.Context(), c.Name, c.ID); err != nil || v.Reveal() != realValue {
		r.t.Errorf("%s: the credential: %v", when, err)
	}
	list, err := minted.New(r.store.Base()).Mints(r.t.Context(), "")
	if err != nil || len(list) != 1 {
		r.t.Fatalf("%s: %d minted values, %v", when, len(list), err)
	}
	if v, err := r.vault.openMint(r.t.Context(), list[0]); err != nil || v.Reveal() != "minted-value" {
		r.t.Errorf("%s: the minted value: %v", when, err)
	}
}

func TestRotateSealsEverythingAnew(t *testing.T) {
	r := newRig(t)
	c := r.add(nil)
	gone := r.add(func(q *task.CredentialRequest) { q.Name = "gone" })
	if _, _, err := r.leases.Revoke(t.Context(), gone.Name, "admin", false); err != nil {
		t.Fatal(err)
	}
	r.keepMint(c, "minted-value")
	_, before, err := r.store.Credential(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(r.keyFile())
	if err != nil {
		t.Fatal(err)
	}
	id, n, err := r.vault.Rotate(t.Context(), vault.New(r.store.Base()), "admin")
	if err != nil || n != 2 {
		t.Fatalf("%d values, %v", n, err)
	}
	if now, err := r.vault.KeyID(t.Context()); err != nil || now != id {
		t.Errorf("the key is %s, %v; want %s", now, err, id)
	}
	r.opens("at once", c)
	if v, err := r.vault.open(t.Context(), c, before); err != nil || v.Reveal() != realValue {
		t.Errorf("what was read a moment before: %v", err)
	}
	last, err := keys.New(r.store.Base()).Last(t.Context())
	if err != nil || last[task.KeyVault].Key != id || last[task.KeyVault].By != "admin" {
		t.Errorf("on record: %+v, %v", last, err)
	}
	now, err := os.ReadFile(r.keyFile())
	if err != nil || bytes.Equal(old, now) {
		t.Errorf("the key file is as before; %v", err)
	}
	if _, err := os.Lstat(r.keyFile() + ".new"); err == nil {
		t.Error("the next key is still there")
	}
	r.reopen(func() {})
	r.opens("after a restart", c)
	if err := r.vault.Check(t.Context()); err != nil {
		t.Error(err)
	}
	// The key that was put away opens nothing, and says so.
	r.reopen(func() { _ = os.WriteFile(r.keyFile(), old, 0o600) })
	wants(t, r.vault.Check(t.Context()), task.InfraVault, "sealed under another vault key")
	if _, _, err := r.vault.Rotate(t.Context(), vault.New(r.store.Base()), "admin"); err == nil {
		t.Error("what does not open was sealed anew")
	}
}

// TestRotationIsRefused: nothing changes where a value does not open, or the key is
// gone.
func TestRotationIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rig)
		text   string
	}{
		"an altered row": {func(r *rig) {
			r.alter("UPDATE credentials SET binding = replace(binding, '443', '444') WHERE name = 'other'")
		}, "was altered"},
		"a row without a sealed value": {func(r *rig) { r.alter("UPDATE credentials SET sealed = '!!' WHERE name = 'other'") }, "no sealed value"},
		"a lost key":                   {func(r *rig) { _ = os.Remove(r.keyFile()) }, "missing and 2 credentials"},
		"half a key":                   {func(r *rig) { _ = os.WriteFile(r.keyFile(), []byte("0123\n"), 0o600) }, "is not a key"},
		"another key": {func(r *rig) {
			_ = os.Remove(r.keyFile())
			_, _ = seal.Make(r.keyFile())
		}, "sealed under another vault key"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.add(nil)
			r.add(func(q *task.CredentialRequest) { q.Name = "other" })
			_, before, _ := r.store.Credential(t.Context(), "key")
			r.reopen(func() { c.change(r) })
			_, _, err := r.vault.Rotate(t.Context(), vault.New(r.store.Base()), "admin")
			wants(t, err, task.InfraVault, c.text)
			if _, after, err := r.store.Credential(t.Context(), "key"); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the row changed; %v", err)
			}
			if last, err := keys.New(r.store.Base()).Last(t.Context()); err != nil || len(last) != 0 {
				t.Errorf("on record: %v, %v", last, err)
			}
		})
	}
}

// TestSettleRefusesWhatItCannotRead: a next key that is damaged is a person's matter.
func TestSettleRefusesWhatItCannotRead(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	if err := os.WriteFile(r.keyFile()+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	wants(t, settle(t.Context(), r.store, r.dir), task.InfraVault, "vault.key.new is of a rotation")
	if err := os.Remove(r.keyFile() + ".new"); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Next(r.keyFile()); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("the database is away")
	err := seal.Settle(t.Context(), r.keyFile(), func(context.Context, string) (bool, error) { return false, lost })
	if !errors.Is(err, lost) {
		t.Errorf("without an answer: %v", err)
	}
	if _, err := os.Lstat(r.keyFile() + ".new"); err != nil {
		t.Errorf("without an answer the next key is gone: %v", err)
	}
}

// mortalSealed dies before or after its steps: within the transaction, and after it.
type mortalSealed struct {
	*vault.Rows
	live func()
}

func (m mortalSealed) Reseal(ctx context.Context, k task.KeyRotation, c func(task.Credential, []byte) ([]byte, error), v func(task.MintedValue) ([]byte, error)) (int, error) {
	m.live() // the next key is there, nothing is sealed under it
	n, err := m.Rows.Reseal(ctx, k,
		func(one task.Credential, sealed []byte) ([]byte, error) {
			m.live()
			return c(one, sealed)
		},
		func(one task.MintedValue) ([]byte, error) {
			m.live()
			return v(one)
		})
	m.live() // everything is sealed anew, the file has the old key
	return n, err
}

// rotateLife rotates once.
func rotateLife(ctx context.Context, v *Vault, s *store.Store, live func()) error {
	live()
	if _, _, err := v.Rotate(ctx, mortalSealed{vault.New(s.Base()), live}, "admin"); err != nil {
		return err
	}
	live()
	return nil
}

// TestKilledWhileRotating kills the process before each step: whatever was done
// until then, the next start opens everything, and one key is left.
func TestKilledWhileRotating(t *testing.T) {
	t.Parallel()
	for left := 0; ; left++ {
		r := newRig(t)
		c := r.add(nil)
		r.keepMint(c, "minted-value")
		before, err := os.ReadFile(r.keyFile())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
		killed, _ := r.strikeAs("rotate", left, "t-none")
		s, err := store.Open(t.Context(), store.Options{Dir: r.dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(settle(t.Context(), s, r.dir), settle(t.Context(), s, r.dir), s.Close()); err != nil {
			t.Fatalf("step %d: %v", left, err)
		}
		r.open()
		when := fmt.Sprintf("killed at step %d", left)
		r.opens(when, c)
		if err := r.vault.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		last, err := keys.New(r.store.Base()).Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(r.keyFile())
		if _, rotated := last[task.KeyVault]; err != nil || rotated == bytes.Equal(before, after) {
			t.Errorf("%s: on record %v, the file changed: %v, %v", when, rotated, !bytes.Equal(before, after), err)
		}
		if found, _ := filepath.Glob(filepath.Join(r.keys(), "vault.key*")); len(found) != 1 {
			t.Errorf("%s: left %q", when, found)
		}
		// And it can be done again.
		if _, n, err := r.vault.Rotate(t.Context(), vault.New(r.store.Base()), "admin"); err != nil || n != 2 {
			t.Errorf("%s: again: %d, %v", when, n, err)
		}
		r.opens(when+", again", c)
		if !killed {
			if left < 6 {
				t.Errorf("only %d steps", left)
			}
			return
		}
		if t.Failed() {
			return
		}
	}
}

// TestKilledBetweenRowAndFile is the step that no call of ours marks: the rows are
// sealed anew and the file is not renamed, or was, and the folder not yet told.
func TestKilledBetweenRowAndFile(t *testing.T) {
	r := newRig(t)
	c := r.add(nil)
	r.keepMint(c, "minted-value")
	old, _ := os.ReadFile(r.keyFile())
	if _, _, err := r.vault.Rotate(t.Context(), vault.New(r.store.Base()), "admin"); err != nil {
		t.Fatal(err)
	}
	now, _ := os.ReadFile(r.keyFile())
	// As it was before the rename, also where the old file is lost altogether.
	for _, before := range [][]byte{old, nil} {
		if err := os.WriteFile(r.keyFile()+".new", now, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(r.keyFile())
		if before != nil {
			_ = os.WriteFile(r.keyFile(), before, 0o600)
		}
		if err := settle(t.Context(), r.store, r.dir); err != nil {
			t.Fatal(err)
		}
		r.reopen(func() {})
		r.opens("renamed late", c)
	}
}

// TestRotationWhileAdding: what is added meanwhile is under one of the two keys, and
// opens.
func TestRotationWhileAdding(t *testing.T) {
	r := newRig(t)
	done := make(chan error)
	go func() {
		var err error
		for n := range 20 {
			_, aerr := r.vault.Add(t.Context(), ask(fmt.Sprintf("c%d", n)))
			err = errors.Join(err, aerr)
		}
		done <- err
	}()
	for range 5 {
		if _, _, err := r.vault.Rotate(t.Context(), vault.New(r.store.Base()), "admin"); err != nil {
			t.Error(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := r.vault.Check(t.Context()); err != nil {
		t.Error(err)
	}
	r.reopen(func() {})
	if err := r.vault.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

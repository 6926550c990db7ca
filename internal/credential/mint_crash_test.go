package credential

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/store/minted"
	"github.com/cofferdam/cofferdam/internal/task"
)

// folder is a provider outside of the process that is killed: a file for each
// value that is live, and a line for each that was ever made.
type folder struct {
	dir  string
	live func() // kills
}

func (f folder) Mint(context.Context, task.Credential, task.Secret, task.Lent) (Minted, error) {
	f.live()
	value := newMintID() + "-REALVALUE"
	if err := os.WriteFile(filepath.Join(f.dir, "live", value), nil, 0o600); err != nil {
		return Minted{}, err
	}
	if err := os.WriteFile(filepath.Join(f.dir, "ever", value), nil, 0o600); err != nil {
		return Minted{}, err
	}
	f.live()
	return Minted{Value: task.NewSecret(value), Until: time.Now().Add(time.Hour)}, nil
}

func (f folder) Revoke(_ context.Context, _ task.Credential, _, value task.Secret) error {
	f.live()
	err := os.Remove(filepath.Join(f.dir, "live", value.Reveal()))
	f.live()
	if errors.Is(err, os.ErrNotExist) {
		return nil // over already
	}
	return err
}

// mortalMints are rows that kill their process too.
type mortalMints struct {
	*minted.Rows
	live func()
}

func (m mortalMints) BeginMint(ctx context.Context, v task.MintedValue) error {
	m.live()
	return m.Rows.BeginMint(ctx, v)
}

func (m mortalMints) KeepMint(ctx context.Context, id string, sealed []byte, at, until time.Time) error {
	m.live()
	return m.Rows.KeepMint(ctx, id, sealed, at, until)
}

func (m mortalMints) DropMint(ctx context.Context, id string) error {
	m.live()
	return m.Rows.DropMint(ctx, id)
}

func mortalMinting(dir string, rows *minted.Rows, live func()) Minting {
	return Minting{Minters: map[string]Minter{task.KindOAuth: folder{dir, live}}, MintRows: mortalMints{rows, live}}
}

// mintLife is a life in which a value is minted, used and revoked.
func mintLife(ctx context.Context, l *Leases, u task.LeaseUse, say func(...any)) error {
	if _, err := l.unmint(ctx, ""); err != nil { // as Run begins
		return err
	}
	lent, err := l.Lend(ctx, u, rules("key"))
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := l.Value(ctx, u.Sandbox, lent[0].ID); err != nil {
			return err
		}
	}
	say("given")
	if err := l.End(ctx, u.Task, u.Sandbox, task.EndedStage); err != nil {
		return err
	}
	say("ended")
	_, err = l.unmint(ctx, "")
	return err
}

// TestKilledWhileMinting kills the process with signal 9 before and within each
// of its steps. Whatever the moment: no value that could be revoked is live
// afterwards, none is minted twice for one lease, and the account has each begin
// and each end once.
func TestKilledWhileMinting(t *testing.T) {
	t.Parallel()
	for left := 0; ; left++ {
		r := newRig(t)
		for _, d := range []string{"live", "ever"} {
			if err := os.Mkdir(filepath.Join(r.dir, d), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		r.addOAuth()
		tk := r.task("alice")
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
		killed, _ := r.strikeAs("mint", left, tk.ID)
		if again, _ := r.strikeAs("mint", 1000, tk.ID); again {
			t.Fatalf("step %d: the second life was killed", left)
		}
		r.open()
		r.judgeMints(left, tk)
		if !killed {
			if left < 15 {
				t.Errorf("only %d steps", left)
			}
			return
		}
		if t.Failed() {
			return
		}
	}
}

func (r *rig) judgeMints(left int, tk task.Task) {
	r.t.Helper()
	count := func(dir string) int {
		list, err := os.ReadDir(filepath.Join(r.dir, dir))
		if err != nil {
			r.t.Fatal(err)
		}
		return len(list)
	}
	rows, err := minted.New(r.store.Base()).Mints(r.t.Context(), "")
	if err != nil || len(rows) != 0 {
		r.t.Errorf("step %d: rows %v, %v", left, rows, err)
	}
	export := r.export()
	lost := strings.Count(export, `"end":"lost"`)
	leases, err := r.leases.Of(r.t.Context(), tk.ID)
	if err != nil || len(leases) != 1 {
		r.t.Fatalf("step %d: leases %v, %v", left, leases, err)
	}
	if live := count("live"); live > lost {
		r.t.Errorf("step %d: %d live and %d lost", left, live, lost)
	}
	if ever := count("ever"); ever > leases[0].Count+lost || ever == 0 {
		r.t.Errorf("step %d: %d minted for %d leases, %d lost", left, ever, leases[0].Count, lost)
	}
	begun, ended := r.records("credential.minted"), r.records("credential.unminted")
	if begun != ended-lost || begun == 0 {
		r.t.Errorf("step %d: %d minted, %d unminted, %d lost", left, begun, ended, lost)
	}
	if strings.Contains(export, "REALVALUE") {
		r.t.Errorf("step %d: the account has a value", left)
	}
}

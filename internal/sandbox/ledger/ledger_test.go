package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func reopen(t *testing.T, path string) *Ledger {
	t.Helper()
	l, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Release() })
	return l
}

func TestOpenEntriesSurviveReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l := reopen(t, path)
	a, b := Entry{Kind: "folder", Name: "a", Sandbox: "s1"}, Entry{Kind: "cgroup", Name: "b", Sandbox: "s2"}
	if err := l.Open(a, b); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(a); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(a); err != nil {
		t.Fatalf("closing twice: %v", err)
	}
	l.Release()
	got := reopen(t, path).Entries()
	if len(got) != 1 || got[0].key() != b.key() || got[0].Opened.IsZero() {
		t.Fatalf("entries after reopening: %+v", got)
	}
}

func TestTornLastLineIsCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l := reopen(t, path)
	if err := l.Open(Entry{Kind: "folder", Name: "a"}, Entry{Kind: "folder", Name: "b"}); err != nil {
		t.Fatal(err)
	}
	l.Release()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := len(whole) / 2
	for cut := first; cut < len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(path, nil)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if n := len(l.Entries()); n != 1 {
			t.Fatalf("cut at %d: %d entries, want the first", cut, n)
		}
		if err := l.Open(Entry{Kind: "folder", Name: "c"}); err != nil {
			t.Fatal(err)
		}
		l.Release()
		l, err = Open(path, nil)
		if err != nil || len(l.Entries()) != 2 {
			t.Fatalf("cut at %d, after a later write: %v", cut, err)
		}
		l.Release()
	}
}

func TestDamageInTheMiddleIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l := reopen(t, path)
	if err := l.Open(Entry{Kind: "folder", Name: "a"}, Entry{Kind: "folder", Name: "b"}); err != nil {
		t.Fatal(err)
	}
	l.Release()
	text, _ := os.ReadFile(path)
	text[30] ^= 1
	os.WriteFile(path, text, 0o600)
	if _, err := Open(path, nil); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt", err)
	}
}

func TestCompactionKeepsWhatIsOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	l := reopen(t, path)
	l.dead = compactAt - 10 // So that compaction happens within a few writes.
	keep := Entry{Kind: "folder", Name: "keep"}
	if err := l.Open(keep); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		e := Entry{Kind: "folder", Name: fmt.Sprint(i)}
		if err := l.Open(e); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(e); err != nil {
			t.Fatal(err)
		}
	}
	if l.dead >= compactAt-10 {
		t.Fatalf("never compacted: %d dead lines", l.dead)
	}
	l.Release()
	got := reopen(t, path).Entries()
	if len(got) != 1 || got[0].key() != keep.key() {
		t.Fatalf("entries: %+v", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	l := reopen(t, filepath.Join(t.TempDir(), "ledger"))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			e := Entry{Kind: "folder", Name: fmt.Sprint(i)}
			if err := errors.Join(l.Open(e), l.Close(e)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(l.Entries()); n != 0 {
		t.Fatalf("%d open entries", n)
	}
}

// TestReplayEqualsMemory checks that what a new reader finds equals what the
// writer believed, for any order of operations.
func TestReplayEqualsMemory(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n))
		l, err := Open(path, nil)
		if err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(0, 12).Draw(rt, "steps") {
			e := Entry{
				Kind:    rapid.SampledFrom([]string{"folder", "cgroup"}).Draw(rt, "kind"),
				Name:    rapid.StringN(0, 3, 8).Draw(rt, "name"),
				Sandbox: rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "sandbox"),
			}
			if rapid.Bool().Draw(rt, "open") {
				err = l.Open(e)
			} else {
				err = l.Close(e)
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
		want := l.Entries()
		l.Release()
		l, err = Open(path, nil)
		if err != nil {
			rt.Fatal(err)
		}
		defer l.Release()
		got := l.Entries()
		if len(got) != len(want) {
			rt.Fatalf("got %v, want %v", got, want)
		}
		for i := range got {
			if got[i].key() != want[i].key() || !got[i].Opened.Equal(want[i].Opened) {
				rt.Fatalf("got %v, want %v", got, want)
			}
		}
	})
}

package keeper_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/keeper"
)

// Records go a day after their last line, unless their sandbox is kept; what
// the gateway's user lays beside them leads nowhere.
func TestPrune(t *testing.T) {
	m := newMachine(t)
	k, err := keeper.New(m.options)
	if err != nil {
		t.Fatal(err)
	}
	dir := m.options.Records
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	outside := filepath.Join(t.TempDir(), "victim.jsonl")
	for file, age := range map[string]time.Duration{
		filepath.Join(dir, "sb-aaaaaaaaaaaaaaaa.jsonl"): 25 * time.Hour,
		filepath.Join(dir, "sb-bbbbbbbbbbbbbbbb.jsonl"): 23 * time.Hour,
		filepath.Join(dir, "other"):                     25 * time.Hour,
		outside:                                         25 * time.Hour,
	} {
		if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "sb-cccccccccccccccc.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := k.Prune(now.Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{
		filepath.Join(dir, "sb-aaaaaaaaaaaaaaaa.jsonl"): false,
		filepath.Join(dir, "sb-bbbbbbbbbbbbbbbb.jsonl"): true,
		filepath.Join(dir, "other"):                     true,
		outside:                                         true,
	} {
		if _, err := os.Lstat(file); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", file, err == nil, want)
		}
	}
}

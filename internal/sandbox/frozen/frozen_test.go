package frozen

import (
	"os"
	"path/filepath"
	"testing"
)

const id = "sb-aaaaaaaaaaaaaaaa"

func TestKeptOverRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "frozen")
	open := func() *Set {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	if s.Has(id) {
		t.Error("kept before it was")
	}
	for range 2 {
		if err := s.Add(id); err != nil || !s.Has(id) {
			t.Fatal(err)
		}
	}
	if again := open(); !again.Has(id) || again.Has("sb-bbbbbbbbbbbbbbbb") {
		t.Error("forgotten over a restart")
	}
	for range 2 {
		if err := s.Remove(id); err != nil || s.Has(id) {
			t.Fatal(err)
		}
	}
	if open().Has(id) {
		t.Error("kept after it was released")
	}
	for _, bad := range []string{"", "..", "sb-../../../../etc", "sb-x"} {
		if err := s.Add(bad); err == nil {
			t.Errorf("%q is kept", bad)
		}
	}
	var none *Set
	if none.Has(id) {
		t.Error("no set keeps something")
	}
	// What can't be written does not hold.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(id); err == nil || s.Has(id) {
		t.Errorf("kept without a file: %v", err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a file is a folder")
	}
}

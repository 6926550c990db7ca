package boot

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestClaimIsExclusive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	first, err := Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Claim(dir); err == nil {
		second.Close()
		t.Error("claimed twice")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	first.Close()
	third, err := Claim(dir)
	if err != nil {
		t.Fatalf("after the first let go: %v", err)
	}
	third.Close()
}

func TestAnnounceReplacesWhole(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{NewID(), NewID()} {
		if err := Announce(dir, "p", id, "http://x"); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "boot.json"))
		if err != nil {
			t.Fatal(err)
		}
		var got Record
		if err := json.Unmarshal(text, &got); err != nil || got.Boot != id || got.PID != os.Getpid() || len(id) != 32 {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "boot.json.*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if err := WriteFile(filepath.Join(dir, "no", "such"), nil); err == nil {
		t.Error("wrote into a folder that is not there")
	}
}

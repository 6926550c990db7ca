package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// installation makes the folders of one that does not run.
func installation(t *testing.T) Layout {
	t.Helper()
	l, err := NewLayout(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"run", "engine", "gateway", "worker/sandboxes"} {
		if err := os.MkdirAll(l.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"engine/token", "gateway/seal.key"} {
		if err := os.WriteFile(l.path(file), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestRenew(t *testing.T) {
	l := installation(t)
	for name, file := range map[string]string{"engine-token": "engine/token", "gateway-seal": "gateway/seal.key"} {
		if !Renewable(name) {
			t.Errorf("%s is not renewable", name)
		}
		for range 2 { // once more is no error
			if err := l.renew(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := os.Lstat(l.path(file)); err == nil {
			t.Errorf("%s is still there", file)
		}
	}
}

func TestRenewIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		key     string
		prepare func(Layout) (undo func())
		code    string
		text    string
	}{
		"another key":     {"vault", nil, CodeNotFound, "cofferdam key ls"},
		"no installation": {"engine-token", func(l Layout) func() { _ = os.RemoveAll(l.path("run")); return nil }, CodeNotFound, "no installation"},
		"it runs": {"engine-token", func(l Layout) func() {
			unlock, locked, err := l.lock()
			if err != nil || !locked {
				t.Fatal(err)
			}
			return unlock
		}, CodeConflict, "cofferdam down"},
		"a daemon runs": {"gateway-seal", func(l Layout) func() {
			exe, _ := os.Executable()
			r, err := newRecord("cofferdam-gateway", os.Getpid(), exe)
			if err == nil {
				err = l.writeRecord(r)
			}
			if err != nil {
				t.Fatal(err)
			}
			return nil
		}, CodeConflict, "runs still"},
		"sandboxes were kept": {"gateway-seal", func(l Layout) func() {
			_ = os.Mkdir(filepath.Join(l.path("worker", "sandboxes"), "sb-aaaaaaaaaaaaaaaa"), 0o700)
			return nil
		}, CodeConflict, "sb-aaaaaaaaaaaaaaaa"},
	} {
		t.Run(name, func(t *testing.T) {
			l := installation(t)
			if c.prepare != nil {
				if undo := c.prepare(l); undo != nil {
					defer undo()
				}
			}
			err := l.renew(c.key)
			f, ok := errors.AsType[*Fault](err)
			if !ok || f.Code != c.code || !strings.Contains(f.Error(), c.text) {
				t.Errorf("%v", err)
			}
			if _, err := os.Lstat(l.path("gateway", "seal.key")); err != nil {
				t.Error("the key is gone all the same")
			}
		})
	}
}

func TestSaveToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "client.json")
	if err := os.WriteFile(path, []byte(`{"url":"http://x","token":"old","data":"/d"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SaveToken(path, "new"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"token": "new"`) || !strings.Contains(string(text), `"data": "/d"`) || strings.Contains(string(text), "old") {
		t.Errorf("%s, %v", text, err)
	}
	if err := SaveToken(path+".none", "new"); err == nil {
		t.Error("saved into no file")
	}
}

package login_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// tool takes the lock of a vendor's tool as that does it, and gives it back.
func (r *rig) tool() (free func()) {
	r.t.Helper()
	dir := filepath.Dir(r.file)
	if r.of.Kind == task.KindCodexLogin {
		f, err := os.OpenFile(filepath.Join(dir, "auth.lock"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			r.t.Fatal(err)
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			r.t.Fatal(err)
		}
		return func() { _ = f.Close() }
	}
	lock := filepath.Join(dir, ".oauth_refresh.lock")
	if err := os.Mkdir(lock, 0o755); err != nil {
		r.t.Fatal(err)
	}
	return func() { _ = os.Remove(lock) }
}

// replace writes the login as tools do, whole or not at all.
func (r *rig) replace(text string) error {
	if err := os.WriteFile(r.file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(r.file+".new", r.file)
}

func eachTool(t *testing.T, left time.Duration, f func(t *testing.T, r *rig)) {
	t.Helper()
	for _, kind := range []string{task.KindClaudeLogin, task.KindCodexLogin} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, newRig(t, kind, true, left))
		})
	}
}

// A tool that renews its login holds its lock: we wait, and then its tokens are
// lent and the vendor is not asked again.
func TestTheToolIsFirst(t *testing.T) {
	eachTool(t, time.Minute, func(t *testing.T, r *rig) {
		free := r.tool()
		done := make(chan error, 1)
		go func() {
			value, err := r.mint()
			if err == nil && !strings.HasSuffix(value, "REALVALUE-old") {
				err = fmt.Errorf("lent %d bytes of another token", len(value))
			}
			done <- err
		}()
		// The tool writes with its lock held, and only then lets go.
		if err := r.replace(text(r.of.Kind, "rt-of-the-tool", time.Hour)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err != nil { // it may have read the tool's tokens before it came to the lock
				t.Fatal(err)
			}
			done <- nil
		default:
		}
		free()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if asked, _ := r.count(); asked != 0 || !strings.Contains(r.now(), "rt-of-the-tool") {
			t.Errorf("asked %d times: %s", asked, r.now())
		}
	})
}

// A tool that renews without a lock, and is first, has its tokens lent: the vendor
// refuses ours, which is used up, and the file has the tool's by then.
func TestTheToolTakesNoLock(t *testing.T) {
	eachTool(t, time.Minute, func(t *testing.T, r *rig) {
		r.do(func(s *site) {
			s.fault = func(http.ResponseWriter, int) bool {
				if err := r.replace(text(r.of.Kind, "rt-of-the-tool", time.Hour)); err != nil {
					t.Error(err)
				}
				s.do(func(s *site) { s.refresh = "rt-of-the-tool" })
				return false
			}
		})
		value, err := r.mint()
		if err != nil || !strings.HasSuffix(value, "REALVALUE-old") || !strings.Contains(r.now(), "rt-of-the-tool") {
			t.Errorf("%v: %s", err, r.now())
		}
	})
}

// A lock that a killed program left is taken over after a minute; one that is
// touched is not.
func TestALockThatWasLeft(t *testing.T) {
	r := newRig(t, task.KindClaudeLogin, true, time.Minute)
	for _, lock := range []string{filepath.Join(filepath.Dir(r.file), ".oauth_refresh.lock"), filepath.Dir(r.file) + ".lock"} {
		if err := os.Mkdir(lock, 0o755); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-61 * time.Second)
		if err := os.Chtimes(lock, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.mint(); err != nil || !r.holds() {
		t.Error(err)
	}
	if names := strings.Join(r.left(), " "); strings.Contains(names, "refresh") || strings.Contains(names, "tool.lock") {
		t.Error(names)
	}
}

// What a folder may not be, and a file. Errors say what to do, and nothing of
// the path or of what is in it.
func TestWhatAFolderMayNotBe(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, r *rig)
		text   string
	}{
		"gone":           {func(t *testing.T, r *rig) { must(t, os.RemoveAll(filepath.Dir(r.file))) }, "is not there"},
		"no file":        {func(t *testing.T, r *rig) { must(t, os.Remove(r.file)) }, ".credentials.json is not there"},
		"a file":         {func(t *testing.T, r *rig) { r.of.Settings["dir"] = r.file }, "not a directory"},
		"open to all":    {func(t *testing.T, r *rig) { must(t, os.Chmod(filepath.Dir(r.file), 0o777)) }, "chmod go-w"},
		"a file for all": {func(t *testing.T, r *rig) { must(t, os.Chmod(r.file, 0o644)) }, "chmod 600"},
		"a link to a folder": {func(t *testing.T, r *rig) {
			link := filepath.Dir(r.file) + "-link"
			must(t, os.Symlink(filepath.Dir(r.file), link))
			r.of.Settings["dir"] = link
		}, "name the folder itself"},
		"a link to a file": {func(t *testing.T, r *rig) {
			must(t, os.Rename(r.file, r.file+".real"))
			must(t, os.Symlink(r.file+".real", r.file))
		}, "is a link"},
		"a link out of it": {func(t *testing.T, r *rig) {
			must(t, os.Remove(r.file))
			must(t, os.Symlink("/etc/passwd", r.file))
		}, "is a link"},
		"a pipe": {func(t *testing.T, r *rig) {
			must(t, os.Remove(r.file))
			must(t, syscall.Mkfifo(r.file, 0o600))
		}, "is no regular file"},
		"empty":   {func(t *testing.T, r *rig) { must(t, os.WriteFile(r.file, nil, 0o600)) }, "is not a JSON object; sign in again"},
		"garbage": {func(t *testing.T, r *rig) { must(t, os.WriteFile(r.file, []byte(`{"REALVALUE`), 0o600)) }, "is not a JSON object"},
		"a flood": {func(t *testing.T, r *rig) {
			must(t, os.WriteFile(r.file, []byte(strings.Repeat("REALVALUE", 1<<16)), 0o600))
		}, "longer than 64 KiB"},
		"a key": {func(t *testing.T, r *rig) { must(t, os.WriteFile(r.file, []byte(`{"primaryApiKey":"x"}`), 0o600)) }, "has no login of a subscription"},
		"a lock that is a file": {func(t *testing.T, r *rig) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(r.file), ".oauth_refresh.lock"), nil, 0o600))
		}, "something else where its lock is"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, task.KindClaudeLogin, true, time.Minute)
			c.change(t, r)
			value, err := r.mint()
			if task.ReasonOf(err) != task.PolicyCredential || value != "" || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %q", err, c.text)
			}
			if err != nil && (strings.Contains(err.Error(), "REALVALUE") || strings.Contains(err.Error(), filepath.Dir(filepath.Dir(r.file)))) {
				t.Errorf("it tells too much: %v", err)
			}
			if asked, _ := r.count(); asked != 0 {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

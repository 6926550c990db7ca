package rootfs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const patience = 60 * time.Second

// fakeMkfs writes what is an image by its beginning, and counts its runs.
const fakeMkfs = `#!/bin/sh
eval image=\${$(($#-1))}
eval source=\${$#}
echo x >> "$(dirname "$0")/runs"
%s
{ /usr/bin/head -c 1024 /dev/zero; printf '\342\341\365\340'; /usr/bin/find "$source"; } > "$image"
`

type world struct {
	t      *testing.T
	dir    string // of images
	source string
	record string
	mkfs   string
	probe  func(context.Context, Image) error
}

func newWorld(t *testing.T, extra string) *world {
	t.Helper()
	base := t.TempDir()
	w := &world{
		t: t, dir: filepath.Join(base, "images"), source: filepath.Join(base, "usr"),
		record: filepath.Join(base, "status"), mkfs: filepath.Join(base, "mkfs"),
		probe: func(context.Context, Image) error { return nil },
	}
	w.write("bin/tool", "one")
	w.write("local/bin/mine", "one")
	w.write("lib/deep/er/file", "one")
	w.write("../status", "one")
	w.write("../mkfs", fmt.Sprintf(fakeMkfs, extra))
	if err := os.Chmod(w.mkfs, 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.source, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) store() *Store {
	w.t.Helper()
	s, err := New(Config{
		Dir: w.dir, Sources: []Source{{Name: "usr", Path: w.source}}, Records: []string{w.record}, Mkfs: w.mkfs,
		Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil)), Probe: w.probe,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// run keeps the store until the test or stop ends it.
func run(t *testing.T, s *Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

func image(s *Store) string {
	images, release := s.Acquire()
	defer release()
	return images["usr"].Path
}

func (w *world) images() []string {
	found, err := filepath.Glob(filepath.Join(w.dir, "*.erofs"))
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

func (w *world) runs() int {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(w.mkfs), "runs"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return strings.Count(string(text), "x")
}

func TestDigestSeesEverything(t *testing.T) {
	w := newWorld(t, "")
	digest := func() string {
		found, err := walk(t.Context(), w.source)
		if err != nil {
			t.Fatal(err)
		}
		return found.Digest
	}
	deep := filepath.Join(w.source, "lib/deep/er/file")
	old, err := os.Stat(deep)
	if err != nil {
		t.Fatal(err)
	}
	last := digest()
	if digest() != last {
		t.Fatal("two digests of the same folder differ")
	}
	for _, change := range []struct {
		what string
		do   func() error
	}{
		{"a file's text, with its old size and time", func() error {
			return errors.Join(os.WriteFile(deep, []byte("two"), 0o644), os.Chtimes(deep, old.ModTime(), old.ModTime()))
		}},
		{"a mode", func() error { return os.Chmod(deep, 0o755) }},
		{"a folder's mode", func() error { return os.Chmod(filepath.Dir(deep), 0o700) }},
		{"a new file", func() error { return os.WriteFile(deep+"2", nil, 0o644) }},
		{"a new name", func() error { return os.Rename(deep+"2", deep+"3") }},
		{"a link", func() error { return os.Symlink("x", deep+"4") }},
		{"a removed file", func() error { return os.Remove(deep + "3") }},
	} {
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		now := digest()
		if now == last {
			t.Errorf("%s is not seen", change.what)
		}
		last = now
	}
}

func TestStampSeesInstalledSoftware(t *testing.T) {
	w := newWorld(t, "")
	last := stamp(w.source, []string{w.record})
	if stamp(w.source, []string{w.record}) != last {
		t.Fatal("two stamps of the same folder differ")
	}
	for what, name := range map[string]string{
		"a package database": "../status", "a new program": "bin/new", "a new tool of the machine's own": "local/bin/new",
		"a tool that was replaced in place": "local/bin/mine", "a new library": "lib/libnew.so",
	} {
		w.write(name, "another one")
		now := stamp(w.source, []string{w.record})
		if now == last {
			t.Errorf("%s is not seen", what)
		}
		last = now
	}
}

func TestImageFollowsItsSource(t *testing.T) {
	w := newWorld(t, "")
	s := w.store()
	if got := image(s); got != "" {
		t.Fatalf("an image before one was made: %s", got)
	}
	if st := s.Status(); len(st) != 1 || st[0].Ready || !strings.Contains(st[0].Text, "not made yet") {
		t.Errorf("status %+v", st)
	}
	run(t, s)
	until(t, "the image", func() bool { return image(s) != "" })
	first := image(s)
	if st := s.Status(); !st[0].Ready {
		t.Errorf("status %+v", st)
	}
	images, release := s.Acquire() // A sandbox is being made.
	w.write("local/bin/new", "a new tool")
	until(t, "the old image to be refused", func() bool { return image(s) != first })
	until(t, "the new image", func() bool { return image(s) != "" })
	if _, err := os.Stat(images["usr"].Path); err != nil {
		t.Errorf("an image in use is gone: %v", err)
	}
	release()
	if err := s.prune(); err != nil {
		t.Fatal(err)
	}
	if got := w.images(); len(got) != 1 || got[0] != image(s) {
		t.Errorf("left: %q", got)
	}
}

func TestTwoBuildersMakeOneImage(t *testing.T) {
	w := newWorld(t, "")
	a, b := w.store(), w.store()
	stop := run(t, a)
	run(t, b)
	until(t, "both images", func() bool { return image(a) != "" && image(b) != "" })
	if image(a) != image(b) || w.runs() != 1 {
		t.Errorf("%s and %s by %d runs", image(a), image(b), w.runs())
	}
	w.write("bin/new", "new") // What one of them still uses stays for the other.
	stop()
	until(t, "the new image", func() bool { got := image(b); return got != "" && len(w.images()) == 1 })
	c := w.store()
	run(t, c)
	until(t, "the image of the next start", func() bool { return image(c) != "" })
	if w.runs() != 2 {
		t.Errorf("an image that is there was made again: %d runs", w.runs())
	}
}

func TestHalvesAreRemoved(t *testing.T) {
	w := newWorld(t, `exec /bin/sleep 1000`)           // So what goes has gone before the first image.
	half := filepath.Join(w.dir, halfPrefix+"usr-123") // of a builder that was killed
	old, young := filepath.Join(w.dir, halfScan+"1"), filepath.Join(w.dir, halfScan+"2")
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{half, old, young} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-2 * RescanPace)
	if err := os.Chtimes(old, then, then); err != nil {
		t.Fatal(err)
	}
	stop := run(t, w.store())
	for _, path := range []string{half, old} {
		until(t, path+" to go", func() bool { _, err := os.Stat(path); return errors.Is(err, os.ErrNotExist) })
	}
	stop()
	if _, err := os.Stat(young); err != nil {
		t.Errorf("what another builder may be writing: %v", err)
	}
}

// What failed is tried again by itself, and at once when something was installed.
func TestFailuresAreTriedAgain(t *testing.T) {
	works := fmt.Sprintf(fakeMkfs, "")
	for name, c := range map[string]struct {
		retry  time.Duration
		repair func(*testing.T, *world, *Store)
	}{
		"by itself": {time.Millisecond, func(*testing.T, *world, *Store) {}},
		"when a package is installed": {time.Hour, func(t *testing.T, w *world, s *Store) {
			w.write("../status", "and erofs-utils")
			until(t, "a sandbox to see it", func() bool { return image(s) != "" })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "")
			if err := os.WriteFile(w.mkfs, []byte("#!/bin/sh\necho x >> \"$(dirname \"$0\")/runs\"; exit 3\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			s := w.store()
			s.retry = c.retry
			run(t, s)
			until(t, "the failure", func() bool { return strings.Contains(s.Status()[0].Text, "can't be made") })
			if c.retry < time.Second {
				until(t, "another one", func() bool { return w.runs() > 2 })
			}
			if err := errors.Join(os.WriteFile(w.mkfs+".new", []byte(works), 0o755), os.Rename(w.mkfs+".new", w.mkfs)); err != nil {
				t.Fatal(err)
			}
			c.repair(t, w, s)
			until(t, "the image", func() bool { return image(s) != "" && s.Status()[0].Ready })
		})
	}
}

func TestFailuresAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*world)
		want    string
	}{
		"no mkfs": {func(w *world) { w.mkfs += "-absent" }, "install the package erofs-utils"},
		"it fails": {func(w *world) {
			if err := os.WriteFile(w.mkfs, []byte("#!/bin/sh\necho no room >&2; exit 3\n"), 0o755); err != nil {
				w.t.Fatal(err)
			}
		}, "no room"},
		"no image": {func(w *world) {
			if err := os.WriteFile(w.mkfs, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
				w.t.Fatal(err)
			}
		}, "it is no image"},
		"no program runs": {func(w *world) {
			w.probe = func(context.Context, Image) error { return errors.New("bad address") }
		}, "no program could be run from it: bad address"},
		"no folder": {func(w *world) {
			if err := os.RemoveAll(w.source); err != nil {
				w.t.Fatal(err)
			}
		}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "")
			c.prepare(w)
			s := w.store()
			run(t, s)
			until(t, "the reason", func() bool { return strings.Contains(s.Status()[0].Text, c.want) })
			if got := image(s); got != "" || len(w.images()) != 0 {
				t.Errorf("an image all the same: %q %q", got, w.images())
			}
		})
	}
}

func TestChangeWhileItIsMade(t *testing.T) {
	w := newWorld(t, `[ -e "$source/lib/deep/late" ] || echo x > "$source/lib/deep/late"`)
	s := w.store()
	run(t, s)
	until(t, "the image", func() bool { return image(s) != "" })
	if w.runs() != 2 {
		t.Errorf("%d runs: an image of a folder that changed meanwhile was kept, or more was made than was needed", w.runs())
	}
	text, err := os.ReadFile(image(s))
	if err != nil || !strings.Contains(string(text), "lib/deep/late") {
		t.Errorf("the image is of the folder before it changed: %v", err)
	}
}

func TestFolderBelowItsSource(t *testing.T) {
	w := newWorld(t, "")
	w.dir = filepath.Join(w.source, "lib/images")
	s := w.store()
	run(t, s)
	if st := s.Status(); len(st) != 1 || !strings.Contains(st[0].Text, "lies below") {
		t.Errorf("status %+v", st)
	}
}

func TestZeroConfigIsRefused(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("the zero value made a store")
	}
	if _, err := New(Config{
		Dir: t.TempDir(), Mkfs: "x", Logger: slog.Default(), Sources: []Source{{Name: "../x", Path: "/usr"}},
		Probe: func(context.Context, Image) error { return nil },
	}); err == nil {
		t.Error("a name that is a path was taken")
	}
}

// The end of the context ends the program that makes an image, and leaves nothing.
func TestEndWhileItIsMade(t *testing.T) {
	w := newWorld(t, `echo $$ > "$(dirname "$0")/pid"; exec /bin/sleep 1000`)
	s := w.store()
	stop := run(t, s)
	var pid atomic.Int64
	until(t, "the program to run", func() bool {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(w.mkfs), "pid"))
		if err != nil || len(text) == 0 || text[len(text)-1] != '\n' {
			return false
		}
		var n int64
		fmt.Sscan(string(text), &n)
		pid.Store(n)
		return true
	})
	if st := s.Status()[0].Text; !strings.Contains(st, "is being made") {
		t.Errorf("status %q", st)
	}
	stop()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid.Load())); err == nil {
		t.Error("the program runs on")
	}
	if halves, _ := filepath.Glob(filepath.Join(w.dir, halfPrefix+"*")); len(halves) != 0 {
		t.Errorf("left: %q", halves)
	}
}

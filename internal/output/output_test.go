package output

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/cofferdam/cofferdam/internal/task"
)

func open(t *testing.T) (*Blobs, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blobs")
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, dir
}

// files lists every file beneath dir.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// pathOf is where the only blob lies.
func pathOf(t *testing.T, dir string) string {
	t.Helper()
	all := files(t, dir)
	if len(all) != 1 {
		t.Fatalf("files: %v, want one", all)
	}
	return all[0]
}

func TestPutOpenRoundTrip(t *testing.T) {
	b, _ := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOf(rapid.Byte()).Draw(rt, "bytes")
		d, size, err := b.Put(t.Context(), bytes.NewReader(want), int64(len(want)))
		if err != nil || size != int64(len(want)) {
			rt.Fatalf("Put: %d, %v", size, err)
		}
		sum := sha256.Sum256(want)
		if string(d) != "sha256:"+hex.EncodeToString(sum[:]) {
			rt.Fatalf("digest %s", d)
		}
		r, err := b.Open(t.Context(), d)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, want) {
			rt.Fatalf("read %q, %v", got, err)
		}
		if n, err := b.Stat(t.Context(), d); err != nil || n != size {
			rt.Fatalf("Stat: %d, %v", n, err)
		}
	})
}

func TestPutLimit(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
		max  int64
		want task.Reason
	}{
		{"empty, nothing allowed", 0, 0, ""},
		{"one, nothing allowed", 1, 0, task.LimitSize},
		{"one, negative", 1, -1, task.LimitSize},
		{"exactly", 4096, 4096, ""},
		{"one more", 4097, 4096, task.LimitSize},
		{"far more", 1 << 20, 10, task.LimitSize},
		{"no limit", 10, 1<<63 - 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, dir := open(t)
			_, _, err := b.Put(t.Context(), bytes.NewReader(make([]byte, c.size)), c.max)
			if task.ReasonOf(err) != c.want || (err == nil) != (c.want == "") {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if left := len(files(t, dir)); err != nil && left != 0 {
				t.Fatalf("%d files kept", left)
			}
		})
	}
}

func TestSameBytesAreKeptOnce(t *testing.T) {
	b, dir := open(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, _, err := b.Put(context.Background(), strings.NewReader("the same"), 100); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	info, err := os.Stat(pathOf(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
}

func TestChangedBlobIsFoundAndRepaired(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"flipped": func(p string) error { return os.WriteFile(p, []byte("Hello"), 0o600) },
		"cut":     func(p string) error { return os.Truncate(p, 2) },
		"grown":   func(p string) error { return os.WriteFile(p, []byte("hello!"), 0o600) },
		"emptied": func(p string) error { return os.Truncate(p, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			b, dir := open(t)
			d, _, err := b.Put(t.Context(), strings.NewReader("hello"), 10)
			if err != nil {
				t.Fatal(err)
			}
			if err := change(pathOf(t, dir)); err != nil {
				t.Fatal(err)
			}
			read := func() ([]byte, error) {
				r, err := b.Open(t.Context(), d)
				if err != nil {
					return nil, err
				}
				defer r.Close()
				return io.ReadAll(r)
			}
			if _, err := read(); task.ReasonOf(err) != task.InfraStorage {
				t.Fatalf("reading changed bytes: %v, want %s", err, task.InfraStorage)
			}
			if _, _, err := b.Put(t.Context(), strings.NewReader("hello"), 10); err != nil {
				t.Fatal(err)
			}
			if got, err := read(); err != nil || string(got) != "hello" {
				t.Fatalf("after another Put: %q, %v", got, err)
			}
		})
	}
}

func TestFailedReaderLeavesNothing(t *testing.T) {
	b, dir := open(t)
	broken := errors.New("the line broke")
	_, _, err := b.Put(t.Context(), io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), 100)
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := b.Put(ctx, strings.NewReader("late"), 100); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Fatalf("left behind: %v", left)
	}
}

func TestOpenRemovesHalfWrittenFiles(t *testing.T) {
	b, dir := open(t)
	d, _, err := b.Put(t.Context(), strings.NewReader("kept"), 100)
	if err != nil {
		t.Fatal(err)
	}
	half := pathOf(t, dir) + ".17c0ffee.tmp"
	if err := os.WriteFile(half, []byte("ke"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	pathOf(t, dir)
	if _, err := again.Stat(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

func TestDigestsAreStrict(t *testing.T) {
	b, _ := open(t)
	good := "sha256:" + strings.Repeat("0a", 32)
	if _, err := b.Open(t.Context(), task.Digest(good)); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("absent: %v", err)
	}
	for _, bad := range []string{
		"", "sha256:", good[:70], good + "0", strings.ToUpper(good), "sha512:" + strings.Repeat("0a", 32),
		"sha256:../../../../../../../../../../../../../../../../../../etc/passwd000"[:71], " " + good, good + "\n",
		strings.Replace(good, "0a", "0A", 1), strings.Replace(good, "0a", "/.", 1),
	} {
		if _, err := ParseDigest(bad); task.ReasonOf(err) != task.InputInvalid {
			t.Errorf("ParseDigest(%q): %v", bad, err)
		}
		if _, err := b.Open(t.Context(), task.Digest(bad)); task.ReasonOf(err) != task.InputInvalid {
			t.Errorf("Open(%q): %v", bad, err)
		}
		if _, err := b.Stat(t.Context(), task.Digest(bad)); task.ReasonOf(err) != task.InputInvalid {
			t.Errorf("Stat(%q): %v", bad, err)
		}
	}
}

// endless gives n zero bytes without holding them.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	n := min(e.n, int64(len(p)))
	clear(p[:n])
	e.n -= n
	return int(n), nil
}

func TestMemoryIsFlat(t *testing.T) {
	b, _ := open(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := b.Put(t.Context(), &endless{64 << 20}, 64<<20); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("storing 64 MiB allocated %d bytes", grown)
	}
}

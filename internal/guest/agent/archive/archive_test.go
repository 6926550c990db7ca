package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

func stream(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func file(name string, mode int64) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode}
}

func dir(name string, mode int64) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode}
}

func link(kind byte, name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: kind, Linkname: target, Mode: 0o777}
}

func refused(t *testing.T, what string, err error) {
	t.Helper()
	if e := (*guest.Error)(nil); !errors.As(err, &e) || e.Reason != guest.ReasonInvalid || !strings.Contains(e.Text, "entry ") {
		t.Errorf("%s: %v", what, err)
	}
}

// Modes are what the stream says, whatever stands there; a stream may come twice.
func TestModes(t *testing.T) {
	unix.Umask(umask)
	top := t.TempDir()
	for range 2 {
		in := stream(t, dir("d", 0o500), file("d/r", 0o400), file("d/all", 0o666), file("d/s", 0o4755), dir("e", 0o777), file("e/f/g", 0o644), dir("x", 0o600), file("x/y", 0o644), file("d/late", 0))
		if err := Unpack(in, top); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]os.FileMode{"d": 0o500, "d/r": 0o400, "d/all": 0o666, "d/s": 0o755, "e": 0o777, "e/f": 0o755, "e/f/g": 0o644, "x": 0o600, "d/late": 0} {
			info, err := os.Lstat(filepath.Join(top, name))
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != want || info.Mode()&os.ModeSetuid != 0 {
				t.Errorf("%s has mode %v, not %v", name, info.Mode(), want)
			}
			if text, err := os.ReadFile(filepath.Join(top, name)); info.Mode().IsRegular() && os.Geteuid() == 0 && string(text) != name {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
	}
	for _, name := range []string{"d", "x"} {
		if err := os.Chmod(filepath.Join(top, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// No link is gone through, not even one that stays in the folder, and not by a
// way that is open already.
func TestLinksOnTheWay(t *testing.T) {
	top := t.TempDir()
	if err := Unpack(stream(t, file("a/b/f", 0o644), link(tar.TypeSymlink, "in", "a"), link(tar.TypeSymlink, "a/up", ".."), link(tar.TypeLink, "hard", "a/b/f")), top); err != nil {
		t.Fatal(err)
	}
	for what, in := range map[string]*bytes.Buffer{
		"link":                   stream(t, file("in/new", 0o644)),
		"link deeper":            stream(t, file("a/b/g", 0o644), file("a/up/new", 0o644)),
		"folder over a link":     stream(t, dir("in", 0o755)),
		"file on the way":        stream(t, file("a/b/f/new", 0o644)),
		"hard link by a link":    stream(t, link(tar.TypeLink, "h", "in/b/f")),
		"file over an open way":  stream(t, file("a/b/h", 0o644), file("a/b", 0o644)),
		"link over an open way":  stream(t, file("a/b/i", 0o644), link(tar.TypeSymlink, "a/b", "/"), file("a/b/new", 0o644)),
		"too deep":               stream(t, file(strings.Repeat("x/", maxDepth+1)+"new", 0o644)),
		"too deep, as hard link": stream(t, link(tar.TypeLink, "h", strings.Repeat("x/", maxDepth+1)+"f")),
	} {
		refused(t, what, Unpack(in, top))
	}
	if err := Unpack(stream(t, link(tar.TypeLink, "h", "absent/f")), top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a hard link to nothing: %v", err)
	}
	for _, name := range []string{"new", "a/new", "a/b/new", "absent", "h"} {
		if _, err := os.Lstat(filepath.Join(top, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
}

// What is packed is unpacked as it was.
func TestThereAndBack(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	large := bytes.Repeat([]byte("0123456789"), 50_000)
	if err := Unpack(stream(t, dir("tree", 0o755), file("tree/one", 0o755), file("tree/deep/er/two", 0o640), link(tar.TypeSymlink, "tree/l", "/nowhere"), dir("tree/empty", 0o755), file("tree/left/out", 0o644)), from); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "tree/large"), large, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(from, "tree/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	notes, err := Pack(&b, filepath.Join(from, "tree"), []string{"left"})
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "pipe") {
		t.Fatalf("%q, %v", notes, err)
	}
	if err := Unpack(&b, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"one": "tree/one", "deep/er/two": "tree/deep/er/two", "large": string(large)} {
		text, err := os.ReadFile(filepath.Join(to, "tree", name))
		if err != nil || string(text) != want {
			t.Errorf("%s has %d bytes, %v", name, len(text), err)
		}
		was, is := stat(t, filepath.Join(from, "tree", name)), stat(t, filepath.Join(to, "tree", name))
		if was.Mode != is.Mode || was.Mtim.Sec != is.Mtim.Sec {
			t.Errorf("%s: mode %o, %d; it was %o, %d", name, is.Mode, is.Mtim.Sec, was.Mode, was.Mtim.Sec)
		}
	}
	if target, err := os.Readlink(filepath.Join(to, "tree/l")); err != nil || target != "/nowhere" {
		t.Errorf("%q, %v", target, err)
	}
	if entries, err := os.ReadDir(filepath.Join(to, "tree")); err != nil || len(entries) != 5 {
		t.Errorf("%v, %v", entries, err)
	}
}

func stat(t *testing.T, name string) unix.Stat_t {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Lstat(name, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// scene is a folder with a victim beside the destination, and links that lead
// to it from within what was copied there before.
func scene(t *testing.T) (outer, dst string) {
	t.Helper()
	outer = t.TempDir()
	dst = filepath.Join(outer, "dst")
	for _, dir := range []string{"victim", "dst/got/d"} {
		if err := os.MkdirAll(filepath.Join(outer, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"victim/file": "victim", "dst/other": "other", "dst/got/old": "old"} {
		if err := os.WriteFile(filepath.Join(outer, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"dst/got/out": "../../victim", "dst/got/d/file": "../../../victim/file", "dst/got/side": "../other"} {
		if err := os.Symlink(to, filepath.Join(outer, name)); err != nil {
			t.Fatal(err)
		}
	}
	return outer, dst
}

// outside describes everything beneath outer but dst/got.
func outside(t *testing.T, outer string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(outer, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(outer, p)
		if rel == "dst/got" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b.WriteString(rel + " " + info.Mode().String() + " ")
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			b.Write(text)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Whatever a sandbox sends, nothing changes but beneath the destination; no
// link there leads out of it that was not there before; no mode grants more
// than it should; and what was there by a hard link elsewhere keeps its bytes.
func TestUnpackTouchesNothingElse(t *testing.T) {
	parts := []string{"got", "d", "out", "side", "old", "file", "new", "..", ".", "", "other", "victim", "a\x1bb"}
	kinds := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeChar, tar.TypeBlock}
	rapid.Check(t, func(rt *rapid.T) {
		outer, dst := scene(t)
		if err := os.Link(filepath.Join(dst, "got", "old"), filepath.Join(outer, "victim", "linked")); err != nil {
			t.Fatal(err)
		}
		before := outside(t, outer)
		name := rapid.Custom(func(t *rapid.T) string {
			way := rapid.SliceOfN(rapid.SampledFrom(parts), 0, 4).Draw(t, "parts")
			s := strings.Join(way, "/")
			if rapid.Bool().Draw(t, "inside") {
				s = "got/" + s
			}
			if rapid.IntRange(0, 9).Draw(t, "absolute") == 0 {
				s = "/" + s
			}
			return s
		})
		var stream bytes.Buffer
		out := tar.NewWriter(&stream)
		for range rapid.IntRange(1, 12).Draw(rt, "entries") {
			h := &tar.Header{
				Name: name.Draw(rt, "name"), Typeflag: rapid.SampledFrom(kinds).Draw(rt, "kind"), Mode: int64(rapid.IntRange(0, 0o7777).Draw(rt, "mode")),
				Linkname: name.Draw(rt, "link"),
			}
			if rapid.IntRange(0, 2).Draw(rt, "up") == 0 {
				h.Linkname = "../" + h.Linkname
			}
			if h.Typeflag == tar.TypeReg {
				h.Size, h.Linkname = 3, ""
			}
			if out.WriteHeader(h) != nil {
				continue
			}
			if h.Typeflag == tar.TypeReg {
				if _, err := out.Write([]byte("bad")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		_, _ = Unpack(&stream, dst, "got", 1<<20)
		if after := outside(t, outer); after != before {
			rt.Fatalf("outside changed:\n%s\nbefore:\n%s", after, before)
		}
		checkInside(rt, dst)
	})
}

func checkInside(t *rapid.T, dst string) {
	known := map[string]bool{"got/out": true, "got/d/file": true, "got/side": true}
	err := filepath.WalkDir(filepath.Join(dst, "got"), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dst, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			end := filepath.Join(filepath.Dir(rel), to)
			if !known[rel] && (filepath.IsAbs(to) || end != "got" && !strings.HasPrefix(end, "got/")) {
				t.Errorf("%s leads to %s", rel, to)
			}
		case !info.IsDir() && !info.Mode().IsRegular():
			t.Errorf("%s is %s", rel, info.Mode())
		case info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 || info.Mode().Perm()&0o022 != 0:
			t.Errorf("%s has mode %s", rel, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLimits(t *testing.T) {
	var stream bytes.Buffer
	out := tar.NewWriter(&stream)
	for _, name := range []string{"a/1", "a/2"} {
		if err := out.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 60, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(make([]byte, 60)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	done, err := Unpack(bytes.NewReader(stream.Bytes()), t.TempDir(), "a", 100)
	if !errors.Is(err, ErrTooMuch) || done.Files != 1 {
		t.Errorf("%+v %v", done, err)
	}
	dir := t.TempDir()
	if _, err := Unpack(bytes.NewReader(stream.Bytes()[:540]), dir, "a", 1000); err == nil {
		t.Error("a cut stream was taken as whole")
	}
	if entries, _ := os.ReadDir(filepath.Join(dir, "a")); len(entries) != 0 {
		t.Errorf("half a file stayed: %v", entries[0])
	}
	if _, err := Unpack(bytes.NewReader(nil), dir, "b", 1000); err == nil {
		t.Error("nothing was taken as something")
	}
}

// What is packed comes out the same.
func TestRoundTrip(t *testing.T) {
	src := t.TempDir()
	for name, text := range map[string]string{"a.txt": "a", "d/b.sh": "#!/bin/sh\n", "d/e/empty": ""} {
		at := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../a.txt", filepath.Join(src, "d", "link")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(src)
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	var sent Copied
	if err := Pack(src, info, "x", &stream, &sent); err != nil {
		t.Fatal(err)
	}
	dst := t.TempDir()
	got, err := Unpack(&stream, dst, "y", 1<<20)
	if err != nil || got.Files != sent.Files || got.Bytes != sent.Bytes || len(got.Skipped) != 0 {
		t.Fatalf("sent %+v, got %+v, %v", sent, got, err)
	}
	text, err := os.ReadFile(filepath.Join(dst, "y", "d", "link"))
	if err != nil || string(text) != "a" {
		t.Errorf("through the link: %q %v", text, err)
	}
	if info, err := os.Stat(filepath.Join(dst, "y", "d", "b.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode: %v %v", info, err)
	}
}

package host

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// entry is a tar entry of a test.
type entry struct {
	name string
	kind byte
	link string
	body string
	mode int64
}

func makeTar(t *testing.T, entries ...entry) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if e.mode == 0 {
			e.mode = 0o644
		}
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Size: int64(len(e.body)), Mode: e.mode, ModTime: time.Unix(1e9, 0)}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func TestFilesThereAndBack(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	dir := p.workspace("a", "b")
	err := c.Put(soon(t), dir, makeTar(
		t,
		entry{name: "./", kind: tar.TypeDir, mode: 0o700},
		entry{name: "closed/", kind: tar.TypeDir, mode: 0o500},
		entry{name: "closed/file", kind: tar.TypeReg, body: "in a closed folder"},
		entry{name: "deep/er/run", kind: tar.TypeReg, body: "#!/bin/sh\n", mode: 0o4755},
		entry{name: "link", kind: tar.TypeSymlink, link: "deep/er/run"},
		entry{name: "twin", kind: tar.TypeLink, link: "deep/er/run"},
		entry{name: "skip/me", kind: tar.TypeReg, body: "x"},
		entry{name: "empty", kind: tar.TypeReg},
	))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := c.Get(soon(t), dir, []string{"skip", "deep/er/none"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := map[string]string{}
	first := ""
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = h.Name
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = fmt.Sprintf("%c %o %s%s", h.Typeflag, h.Mode, h.Linkname, body)
	}
	want := map[string]string{
		"b/": "5 755 ", "b/closed/": "5 500 ", "b/closed/file": "0 644 in a closed folder", "b/deep/": "5 755 ",
		"b/deep/er/": "5 755 ", "b/deep/er/run": "0 755 #!/bin/sh\n", "b/link": "2 777 deep/er/run",
		"b/twin": "0 755 #!/bin/sh\n", "b/empty": "0 644 ",
	}
	if first != "b/" || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("first %q\n got %v\nwant %v", first, got, want)
	}
	if os.Geteuid() == 0 {
		var info unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, "empty"), &info); err != nil || info.Uid != 1000 || info.Gid != 1000 {
			t.Errorf("owner %d:%d, %v", info.Uid, info.Gid, err)
		}
	}
	single, err := c.Get(soon(t), filepath.Join(dir, "link"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer single.Close()
	h, err := tar.NewReader(single).Next()
	if err != nil || h.Name != "link" || h.Typeflag != tar.TypeReg {
		t.Errorf("a file through a link: %+v, %v", h, err)
	}
	var refused *guest.Error
	if _, err := c.Get(soon(t), p.workspace("nothing"), nil); !errors.As(err, &refused) || refused.Reason != guest.ReasonNotFound {
		t.Errorf("a path that is absent: %v", err)
	}
}

// TestHostileTars is B16's kind for uploads: nothing is written outside the
// folder, and the error names the entry.
func TestHostileTars(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	outside := p.workspace("outside")
	if err := os.MkdirAll(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "victim"), []byte("as it was"), 0o666); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("../", 40) + strings.TrimPrefix(outside, "/") + "/new"
	for i, test := range []struct {
		name    string
		entries []entry
		culprit string
	}{
		{"parent", []entry{{name: "../outside/new", kind: tar.TypeReg, body: "x"}}, "../outside/new"},
		{"parent within", []entry{{name: "a/../../outside/new", kind: tar.TypeReg, body: "x"}}, "a/../../outside/new"},
		{"absolute", []entry{{name: outside + "/new", kind: tar.TypeReg, body: "x"}}, outside + "/new"},
		{"far up", []entry{{name: long, kind: tar.TypeReg, body: "x"}}, "../"},
		{"absolute link and through it", []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/new", kind: tar.TypeReg, body: "x"}}, `"l`},
		{"link up and hard link to it", []entry{{name: "d/l", kind: tar.TypeSymlink, link: "../../outside"}, {name: "h", kind: tar.TypeLink, link: "d/l/victim"}}, `"h"`},
		{"link without a target", []entry{{name: "l", kind: tar.TypeSymlink, link: ""}}, `"l"`},
		{"link and through it", []entry{{name: "l", kind: tar.TypeSymlink, link: "../outside"}, {name: "l/new", kind: tar.TypeReg, body: "x"}}, `"l`},
		{"hard link up", []entry{{name: "h", kind: tar.TypeLink, link: "../outside/victim"}}, `"h"`},
		{"hard link absolute", []entry{{name: "h", kind: tar.TypeLink, link: outside + "/victim"}}, `"h"`},
		{"device", []entry{{name: "dev", kind: tar.TypeChar}}, `"dev"`},
		{"block device", []entry{{name: "dev", kind: tar.TypeBlock}}, `"dev"`},
		{"pipe", []entry{{name: "p", kind: tar.TypeFifo}}, `"p"`},
		{"empty name", []entry{{name: "", kind: tar.TypeReg, body: "x"}}, `""`},
		{"the folder itself", []entry{{name: ".", kind: tar.TypeReg, body: "x"}}, `"."`},
		{"file over folder", []entry{{name: "d/f", kind: tar.TypeReg}, {name: "d", kind: tar.TypeReg}}, `"d"`},
		{"itself", []entry{{name: "f", kind: tar.TypeReg}, {name: "f", kind: tar.TypeLink, link: "f"}}, `"f"`},
	} {
		err := c.Put(soon(t), p.workspace(fmt.Sprintf("into%d", i)), makeTar(t, test.entries...))
		var refused *guest.Error
		if !errors.As(err, &refused) || refused.Reason != guest.ReasonInvalid || !strings.Contains(refused.Text, test.culprit) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	// A link that lies there already, put by the workload.
	trap := p.workspace("trap")
	if _, _, s := run(t, c, sh("trap", "mkdir trap && ln -s ../outside trap/dir && ln -s ../outside/victim trap/file && ln -s ../outside/new trap/dangling")); s.ExitCode != 0 {
		t.Fatalf("%+v", s)
	}
	if err := c.Put(soon(t), trap, makeTar(t, entry{name: "dir/new", kind: tar.TypeReg, body: "x"})); err == nil {
		t.Error("wrote through a link to a folder")
	}
	err := c.Put(soon(t), trap, makeTar(t,
		entry{name: "file", kind: tar.TypeReg, body: "x"}, entry{name: "dangling", kind: tar.TypeReg, body: "x"}))
	if err != nil {
		t.Errorf("links of an entry's own name are replaced: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(outside, "victim")); err != nil || string(text) != "as it was" {
		t.Errorf("the victim is %q, %v", text, err)
	}
	if names, _ := os.ReadDir(outside); len(names) != 1 {
		t.Errorf("outside lies %v", names)
	}
	for _, text := range []string{"no tar at all, but long enough to be looked at" + strings.Repeat(".", 600), "short"} {
		if err := c.Put(soon(t), trap, strings.NewReader(text)); err == nil {
			t.Errorf("%.10q was taken", text)
		}
	}
	if err := c.Put(soon(t), "relative", makeTar(t)); err == nil {
		t.Error("a relative folder was taken")
	}
}

func TestPutIsNotRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the tester is nobody special")
	}
	p := newPlace(t)
	c := p.dial()
	secret := filepath.Join(p.folder, "secret")
	if err := os.Mkdir(secret, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, p.workspace("way")); err != nil {
		t.Fatal(err)
	}
	if err := c.Put(soon(t), p.workspace("way"), makeTar(t, entry{name: "f", kind: tar.TypeReg})); err == nil {
		t.Error("a link of the workload led where only root may write")
	}
	if _, err := c.Get(soon(t), p.workspace("way"), nil); err == nil {
		t.Error("a link of the workload led where only root may read")
	}
	for range 50 { // Threads that had the workload's credentials are gone.
		if _, _, s := run(t, c, guest.Command{ID: "root" + fmt.Sprint(time.Now().UnixNano()), Argv: []string{"true"}, User: guest.UserRoot}); s.ExitCode != 0 {
			t.Fatalf("%+v", s)
		}
	}
}

// bigTar is a tar stream of one large file.
func bigTar(size int64) io.Reader {
	r, w := io.Pipe()
	go func() {
		archive := tar.NewWriter(w)
		err := archive.WriteHeader(&tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: size, Mode: 0o644})
		chunk := bytes.Repeat([]byte("0123456789abcde\n"), 4096)
		for left := size; err == nil && left > 0; left -= int64(len(chunk)) {
			_, err = archive.Write(chunk[:min(left, int64(len(chunk)))])
		}
		if err == nil {
			err = archive.Close()
		}
		w.CloseWithError(err)
	}()
	return r
}

// TestLargeFilesLeaveRoomForOthers moves a file larger than every buffer while
// commands run beside it.
func TestLargeFilesLeaveRoomForOthers(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	const size = 64 << 20
	done := make(chan error, 1)
	go func() { done <- c.Put(soon(t), p.workspace("up"), bigTar(size)) }()
	for i := 0; ; i++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		default:
			if _, _, s := run(t, c, sh(fmt.Sprintf("beside%d", i), "exit 3")); s.ExitCode != 3 {
				t.Fatalf("%+v", s)
			}
			continue
		}
		break
	}
	r, err := c.Get(soon(t), p.workspace("up", "big"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want, got := sha256.New(), sha256.New()
	if _, err := io.Copy(want, bigTar(size)); err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(r)
	if _, err := archive.Next(); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(got, archive)
	if err != nil || n != size {
		t.Fatalf("%d bytes, %v", n, err)
	}
	reference := tar.NewReader(bigTar(size))
	want.Reset()
	if _, err := reference.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(want, reference); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Error("the bytes differ")
	}
}

// TestTransfersEndWithTheirCaller: a caller that goes away, and a worker that
// does, leave nothing behind in the guest.
func TestTransfersEndWithTheirCaller(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	put := make(chan error, 1)
	go func() { put <- c.Put(ctx, p.workspace("half"), r) }()
	if _, err := w.Write(make([]byte, 512)); err != nil {
		t.Fatal(err)
	}
	cancel()
	w.CloseWithError(io.ErrClosedPipe)
	if err := <-put; err == nil {
		t.Error("a cancelled put succeeded")
	}
	if err := c.Put(soon(t), p.workspace("up"), bigTar(8<<20)); err != nil {
		t.Fatal(err)
	}
	get, err := c.Get(soon(t), p.workspace("up"), nil)
	if err != nil {
		t.Fatal(err)
	}
	get.Close() // After the first bytes.
	second, err := c.Get(soon(t), p.workspace("up"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	c.Close()
	if _, err := io.Copy(io.Discard, second); !errors.Is(err, ErrClosed) {
		t.Errorf("a download of a closed channel: %v", err)
	}
	again := p.dial()
	r2, err := again.Get(soon(t), p.workspace("up"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r2.Close()
	if n, err := io.Copy(io.Discard, r2); err != nil || n < 8<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

func sum(data string) string {
	s := sha256.Sum256([]byte(data))
	return hex.EncodeToString(s[:])
}

func write(t *testing.T, c *Conn, path, data string, change ...func(*guest.FileWriteRequest)) (guest.FileInfo, error) {
	t.Helper()
	w := guest.FileWriteRequest{Path: []byte(path), Size: int64(len(data)), SHA256: sum(data)}
	for _, f := range change {
		f(&w)
	}
	return c.FileWrite(soon(t), w, strings.NewReader(data))
}

func read(t *testing.T, c *Conn, r guest.FileReadRequest) (guest.FileHeader, string, error) {
	t.Helper()
	head, body, err := c.FileRead(soon(t), r)
	if err != nil {
		return head, "", err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	return head, string(data), err
}

func wantReason(t *testing.T, what string, err error, reason string) {
	t.Helper()
	var refused *guest.Error
	if !errors.As(err, &refused) || refused.Reason != reason {
		t.Errorf("%s: %v, want %s", what, err, reason)
	}
}

func mode(m uint32) *uint32 { return new(m) }

func TestFileWrites(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	path := p.workspace("f")
	info, err := write(t, c, path, "one", func(w *guest.FileWriteRequest) { w.Create = true; w.Mode = mode(0o750) })
	if err != nil || string(info.Name) != "f" || info.Mode != 0o750 || info.Size != 3 || info.SHA256 != sum("one") || info.Kind != guest.KindFile {
		t.Fatalf("made: %+v, %v", info, err)
	}
	_, err = write(t, c, path, "two", func(w *guest.FileWriteRequest) { w.Create = true })
	wantReason(t, "made again", err, guest.ReasonConflict)
	if err == nil || !strings.Contains(err.Error(), sum("one")) {
		t.Errorf("a conflict without the present hash: %v", err)
	}
	_, err = write(t, c, path, "two", func(w *guest.FileWriteRequest) { w.IfSHA256 = sum("zero") })
	wantReason(t, "another hash", err, guest.ReasonConflict)
	if info, err = write(t, c, path, "two", func(w *guest.FileWriteRequest) { w.IfSHA256 = sum("one") }); err != nil || info.Mode != 0o750 {
		t.Errorf("replaced: %+v, %v", info, err)
	}
	_, err = write(t, c, p.workspace("absent"), "x", func(w *guest.FileWriteRequest) { w.IfSHA256 = sum("one") })
	wantReason(t, "absent with a hash", err, guest.ReasonConflict)
	for what, change := range map[string]func(*guest.FileWriteRequest){
		"too few":    func(w *guest.FileWriteRequest) { w.Size++ },
		"too many":   func(w *guest.FileWriteRequest) { w.Size-- },
		"other hash": func(w *guest.FileWriteRequest) { w.SHA256 = sum("else") },
		"no hash":    func(w *guest.FileWriteRequest) { w.SHA256 = "" },
		"upper case": func(w *guest.FileWriteRequest) { w.SHA256 = strings.ToUpper(w.SHA256) },
		"setuid":     func(w *guest.FileWriteRequest) { w.Mode = mode(0o4755) },
		"both":       func(w *guest.FileWriteRequest) { w.Create, w.IfSHA256 = true, sum("two") },
		"negative":   func(w *guest.FileWriteRequest) { w.Size = -1 },
		"key":        func(w *guest.FileWriteRequest) { w.Key = "a key" },
	} {
		_, err := write(t, c, path, "three", change)
		wantReason(t, what, err, guest.ReasonInvalid)
	}
	if _, got, err := read(t, c, guest.FileReadRequest{Path: []byte(path), Length: -1}); got != "two" || err != nil {
		t.Errorf("afterwards: %q, %v", got, err)
	}
	left, _ := filepath.Glob(p.workspace(".cofferdam-*"))
	if len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// An effect that was had is not had again when its answer was lost.
func TestFileEffectsOnce(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	create := func(w *guest.FileWriteRequest) { w.Key, w.Create = "w1", true }
	for range 2 {
		if _, err := write(t, c, p.workspace("a"), "text", create); err != nil {
			t.Fatal(err)
		}
	}
	move := guest.FileOp{Kind: guest.FileRename, Key: "m1", Path: []byte(p.workspace("a")), To: []byte(p.workspace("b"))}
	for range 2 {
		if r, err := c.FileDo(soon(t), move); err != nil || string(r.Info.Name) != "b" {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	move.To = []byte(p.workspace("c"))
	_, err := c.FileDo(soon(t), move)
	wantReason(t, "a key for two requests", err, guest.ReasonConflict)
	move.Key = ""
	_, err = c.FileDo(soon(t), move)
	wantReason(t, "moved twice", err, guest.ReasonNotFound)
}

func TestFileReads(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	data := strings.Repeat("0123456789", 100_000)
	if _, err := write(t, c, p.workspace("f"), data); err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct{ offset, length, from, to int64 }{
		{0, -1, 0, 1_000_000}, {5, 10, 5, 15}, {999_990, 100, 999_990, 1_000_000}, {2_000_000, -1, 1_000_000, 1_000_000}, {0, 0, 0, 0},
	} {
		head, got, err := read(t, c, guest.FileReadRequest{Path: []byte(p.workspace("f")), Offset: at.offset, Length: at.length, Digest: true})
		if err != nil || got != data[at.from:at.to] || head.Info.SHA256 != sum(data) || head.Info.Size != int64(len(data)) {
			t.Errorf("%+v: %d bytes, %+v, %v", at, len(got), head, err)
		}
	}
	_, _, err := read(t, c, guest.FileReadRequest{Path: []byte(p.workspace("f")), Offset: -1, Length: -1})
	wantReason(t, "negative offset", err, guest.ReasonInvalid)
	_, _, err = read(t, c, guest.FileReadRequest{Path: []byte(p.workspace("absent")), Length: -1})
	wantReason(t, "absent", err, guest.ReasonNotFound)
}

// What is no regular file is refused and never waited for (cases.md B16).
func TestFilesThatAreNone(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	outside := filepath.Join(p.folder, "outside")
	if err := os.WriteFile(outside, []byte("canary"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, prepare := range []error{
		unix.Mkfifo(p.workspace("pipe"), 0o666), os.Mkdir(p.workspace("folder"), 0o777), os.Symlink(outside, p.workspace("out")),
		os.Symlink("../outside", p.workspace("up")), os.Symlink("folder", p.workspace("in")), os.Symlink("loop", p.workspace("loop")),
		os.Symlink("/proc/self/environ", p.workspace("proc")), os.Symlink("pipe", p.workspace("topipe")), os.Symlink("absent", p.workspace("dangling")),
		os.WriteFile(p.workspace("folder", "f"), []byte("inside"), 0o666),
	} {
		if prepare != nil {
			t.Fatal(prepare)
		}
	}
	for _, follow := range []bool{false, true} {
		for _, name := range []string{"pipe", "folder", "out", "up", "loop", "proc", "topipe"} {
			_, _, err := read(t, c, guest.FileReadRequest{Path: []byte(p.workspace(name)), Length: -1, Follow: follow})
			wantReason(t, fmt.Sprintf("read %s, follow %v", name, follow), err, guest.ReasonInvalid)
			_, err = write(t, c, p.workspace(name), "owned", func(w *guest.FileWriteRequest) { w.Follow = follow })
			wantReason(t, fmt.Sprintf("write %s, follow %v", name, follow), err, guest.ReasonInvalid)
		}
	}
	_, _, err := read(t, c, guest.FileReadRequest{Path: []byte(p.workspace("in", "f")), Length: -1})
	wantReason(t, "through a link", err, guest.ReasonInvalid)
	if _, got, err := read(t, c, guest.FileReadRequest{Path: []byte(p.workspace("in", "f")), Length: -1, Follow: true}); got != "inside" || err != nil {
		t.Errorf("through a link that was to be followed: %q, %v", got, err)
	}
	if r, err := c.FileDo(soon(t), guest.FileOp{Kind: guest.FileStat, Path: []byte(p.workspace("out"))}); err != nil || r.Info.Kind != guest.KindLink || string(r.Info.Target) != outside {
		t.Errorf("a link is data: %+v, %v", r.Info, err)
	}
	if _, err := c.FileDo(soon(t), guest.FileOp{Kind: guest.FileChmod, Path: []byte(p.workspace("out")), Mode: mode(0o600)}); err == nil {
		t.Error("the mode of a link's target was changed")
	}
	if _, err := c.FileDo(soon(t), guest.FileOp{Kind: guest.FileRemove, Path: []byte(p.workspace("up"))}); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(outside); string(got) != "canary" || err != nil {
		t.Errorf("outside: %q, %v", got, err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm()&0o600 != 0o600 {
		t.Errorf("outside: %v, %v", info, err)
	}
}

func TestFilePaths(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	w := p.workspace()
	for _, path := range []string{
		"", "f", "./f", "/", "/etc/passwd", w + "x", w + "/../outside", w + "/a/../b", w + "/./f", w + "//f", w + "/", w + "/f/", w + "/a\x00b",
		w + "/" + strings.Repeat("n", 256), w + strings.Repeat("/n", 3000), w + strings.Repeat("/n", 600),
	} {
		_, err := c.FileDo(soon(t), guest.FileOp{Kind: guest.FileStat, Path: []byte(path)})
		wantReason(t, fmt.Sprintf("%.80q", path), err, guest.ReasonInvalid)
	}
	for _, name := range []string{"new\nline", "\x1b[2J", "\xff\xfe", "-rf", strings.Repeat("n", 255), " ", "*", "…", "\u202e"} {
		if _, err := write(t, c, w+"/"+name, name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		r, err := c.FileDo(soon(t), guest.FileOp{Kind: guest.FileStat, Path: []byte(w + "/" + name), Digest: true})
		if err != nil || string(r.Info.Name) != name || r.Info.SHA256 != sum(name) {
			t.Errorf("%q: %+v, %v", name, r.Info, err)
		}
	}
	_, err := c.FileDo(soon(t), guest.FileOp{Kind: guest.FileRemove, Path: []byte(w), Recursive: true})
	wantReason(t, "the root itself", err, guest.ReasonInvalid)
	_, err = c.FileDo(soon(t), guest.FileOp{Kind: "format", Path: []byte(w)})
	wantReason(t, "unknown", err, guest.ReasonInvalid)
	_, err = c.FileDo(soon(t), guest.FileOp{Kind: guest.FileStat, Path: []byte(w), User: "nobody"})
	wantReason(t, "another user", err, guest.ReasonInvalid)
}

func TestFileFolders(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	do := func(op guest.FileOp) (guest.FileResult, error) { return c.FileDo(soon(t), op) }
	if _, err := do(guest.FileOp{Kind: guest.FileMkdir, Path: []byte(p.workspace("a", "b", "c"))}); err == nil {
		t.Error("a folder without the one above was made")
	}
	if r, err := do(guest.FileOp{Kind: guest.FileMkdir, Path: []byte(p.workspace("a", "b", "c")), Recursive: true, Mode: mode(0o701)}); err != nil || r.Info.Mode != 0o701 {
		t.Fatalf("%+v, %v", r.Info, err)
	}
	_, err := do(guest.FileOp{Kind: guest.FileMkdir, Path: []byte(p.workspace("a"))})
	wantReason(t, "again", err, guest.ReasonConflict)
	if _, err := do(guest.FileOp{Kind: guest.FileMkdir, Path: []byte(p.workspace("a")), Recursive: true}); err != nil {
		t.Error(err)
	}
	_, err = do(guest.FileOp{Kind: guest.FileRemove, Path: []byte(p.workspace("a"))})
	wantReason(t, "not empty", err, guest.ReasonConflict)
	if _, err := write(t, c, p.workspace("a", "f0000"), ""); err != nil {
		t.Fatal(err)
	}
	for i := range 2500 {
		if err := os.WriteFile(p.workspace("a", fmt.Sprintf("f%04d", i)), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	op := guest.FileOp{Kind: guest.FileList, Path: []byte(p.workspace("a")), Limit: 700}
	for pages := 1; ; pages++ {
		r, err := do(op)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Entries {
			seen = append(seen, string(e.Name))
		}
		if len(r.Next) == 0 {
			if pages != 4 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		op.After = r.Next
	}
	if len(seen) != 2501 || seen[0] != "b" || seen[2500] != "f2499" {
		t.Errorf("listed %d", len(seen))
	}
	_, err = do(guest.FileOp{Kind: guest.FileList, Path: []byte(p.workspace("a")), Limit: guest.MaxFilePage + 1})
	wantReason(t, "too many at once", err, guest.ReasonInvalid)
	_, err = do(guest.FileOp{Kind: guest.FileRename, Path: []byte(p.workspace("a")), To: []byte(p.workspace("a", "b", "a"))})
	wantReason(t, "into itself", err, guest.ReasonInvalid)
	_, err = do(guest.FileOp{Kind: guest.FileRename, Path: []byte(p.workspace("a", "f0000")), To: []byte(p.workspace("a", "f0001")), NoReplace: true})
	wantReason(t, "no replacing", err, guest.ReasonConflict)
	if r, err := do(guest.FileOp{Kind: guest.FileChmod, Path: []byte(p.workspace("a", "f0000")), Mode: mode(0)}); err != nil || r.Info.Mode != 0 {
		t.Errorf("%+v, %v", r.Info, err)
	}
	if r, err := do(guest.FileOp{Kind: guest.FileChmod, Path: []byte(p.workspace("a", "f0000")), Mode: mode(0o640)}); err != nil || r.Info.Mode != 0o640 {
		t.Errorf("back: %+v, %v", r.Info, err)
	}
	_, err = do(guest.FileOp{Kind: guest.FileChmod, Path: []byte(p.workspace("a", "f0000")), Mode: mode(0o4755)})
	wantReason(t, "setuid", err, guest.ReasonInvalid)
	if _, err := do(guest.FileOp{Kind: guest.FileRemove, Path: []byte(p.workspace("a")), Recursive: true}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.workspace("a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// A worker that dies in mid-write leaves what was there, and nothing else.
func TestHalfWrittenFile(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	if _, err := write(t, c, p.workspace("f"), "old"); err != nil {
		t.Fatal(err)
	}
	in, half := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		data := strings.Repeat("new", 1<<20)
		_, err := c.FileWrite(soon(t), guest.FileWriteRequest{Path: []byte(p.workspace("f")), Size: int64(len(data)), SHA256: sum(data)}, in)
		wrote <- err
	}()
	if _, err := half.Write(bytes.Repeat([]byte("new"), 100_000)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new file beside", func() bool { left, _ := filepath.Glob(p.workspace(".cofferdam-*")); return len(left) == 1 })
	c.Close()
	half.Close()
	if err := <-wrote; err == nil {
		t.Error("half a file was written")
	}
	c = p.dial()
	eventually(t, "it is gone", func() bool { left, _ := filepath.Glob(p.workspace(".cofferdam-*")); return len(left) == 0 })
	if _, got, err := read(t, c, guest.FileReadRequest{Path: []byte(p.workspace("f")), Length: -1}); got != "old" || err != nil {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}

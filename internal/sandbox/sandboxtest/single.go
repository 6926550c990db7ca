package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (s suite) files(t *testing.T) sandbox.Files {
	t.Helper()
	f, ok := s.driver.(sandbox.Files)
	if !ok {
		t.Fatalf("%T is no sandbox.Files", s.driver)
	}
	return f
}

// Sum is the hash of a text as sandbox.FileWrite has it.
func Sum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Write writes a text to a file.
func Write(ctx context.Context, f sandbox.Files, id, path, text string) (sandbox.FileInfo, error) {
	return f.WriteFile(ctx, id, sandbox.FileWrite{Path: []byte(path), Size: int64(len(text)), SHA256: Sum(text)}, strings.NewReader(text))
}

// ReadText reads a whole file.
func ReadText(ctx context.Context, f sandbox.Files, id string, r sandbox.FileRead) (string, error) {
	_, body, err := f.ReadFile(ctx, id, r)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}

func (s suite) testSingleFiles(t *testing.T) {
	id, f, ctx := Create(t, s.driver, sandbox.Spec{}).ID, s.files(t), Context(t)
	mode := uint32(0o751)
	text := strings.Repeat("text\x00\xff", 50_000)
	info, err := f.WriteFile(ctx, id, sandbox.FileWrite{Path: []byte("/workspace/f"), Size: int64(len(text)), SHA256: Sum(text), Mode: &mode, Create: true}, strings.NewReader(text))
	if err != nil || info.Mode != mode || info.UID != 1000 || info.Size != int64(len(text)) {
		t.Fatalf("write: %+v, %v", info, err)
	}
	if got := Shell(t, s.driver, id, "stat -c '%U %a %s' f && sha256sum <f && ls -A"); got.Stdout != fmt.Sprintf("agent 751 %d\n%s  -\nf\n", len(text), Sum(text)) {
		t.Errorf("what was written: %q %q", got.Stdout, got.Stderr)
	}
	if got, err := ReadText(ctx, f, id, sandbox.FileRead{Path: []byte("/workspace/f"), Offset: 7, Length: 20}); err != nil || got != text[7:27] {
		t.Errorf("read: %q, %v", got, err)
	}
	head, body, err := f.ReadFile(ctx, id, sandbox.FileRead{Path: []byte("/workspace/f"), Length: -1, Digest: true})
	if err != nil || head.Info.SHA256 != Sum(text) || head.Length != int64(len(text)) {
		t.Fatalf("read: %+v, %v", head, err)
	}
	whole, err := io.ReadAll(body)
	body.Close()
	if err != nil || string(whole) != text {
		t.Errorf("read: %d bytes, %v", len(whole), err)
	}
	_, err = f.WriteFile(ctx, id, sandbox.FileWrite{Path: []byte("/workspace/f"), Size: 1, SHA256: Sum("x"), Create: true}, strings.NewReader("x"))
	WantReason(t, "create what is there", err, task.InputConflict)
	_, err = f.WriteFile(ctx, id, sandbox.FileWrite{Path: []byte("/workspace/f"), Size: 1, SHA256: Sum("x"), IfSHA256: Sum("y")}, strings.NewReader("x"))
	WantReason(t, "replace something else", err, task.InputConflict)
	_, err = f.WriteFile(ctx, id, sandbox.FileWrite{Path: []byte("/workspace/f"), Size: 1, SHA256: Sum("y")}, strings.NewReader("x"))
	WantReason(t, "other bytes than announced", err, task.InputInvalid)
	_, err = Write(ctx, f, id, "/etc/f", "x")
	WantReason(t, "outside of the roots", err, task.InputInvalid)
	_, err = f.DoFile(ctx, ID(), sandbox.FileOp{Kind: sandbox.FileStat, Path: []byte("/workspace")})
	WantReason(t, "no sandbox", err, task.InputNotFound)
	if got := Shell(t, s.driver, id, "sha256sum <f; ls -A; rm f"); got.Stdout != Sum(text)+"  -\nf\n" {
		t.Errorf("after refusals: %q", got.Stdout)
	}
}

// do is an operation that must succeed.
func do(t *testing.T, f sandbox.Files, id string, op sandbox.FileOp) sandbox.FileResult {
	t.Helper()
	r, err := f.DoFile(Context(t), id, op)
	if err != nil {
		t.Fatalf("%s %q: %v", op.Kind, op.Path, err)
	}
	return r
}

func (s suite) testNames(t *testing.T) {
	id, f := Create(t, s.driver, sandbox.Spec{}).ID, s.files(t)
	do(t, f, id, sandbox.FileOp{Kind: sandbox.FileMkdir, Path: []byte("/workspace/a/b"), Recursive: true, Key: "k1"})
	names := []string{"\x1b[2J", " ", "-rf", "\xff\xfe", "new\nline", strings.Repeat("n", 255), "ü"}
	for _, name := range names {
		if _, err := Write(Context(t), f, id, "/workspace/a/b/"+name, name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	got := map[string]bool{}
	op := sandbox.FileOp{Kind: sandbox.FileList, Path: []byte("/workspace/a/b"), Limit: 3}
	for {
		r := do(t, f, id, op)
		for _, e := range r.Entries {
			got[string(e.Name)] = true
		}
		if op.After = r.Next; len(op.After) == 0 {
			break
		}
	}
	for _, name := range names {
		if !got[name] {
			t.Errorf("%q is not listed", name)
		}
		text, err := ReadText(Context(t), f, id, sandbox.FileRead{Path: []byte("/workspace/a/b/" + name), Length: -1})
		if err != nil || text != name {
			t.Errorf("%q: %q, %v", name, text, err)
		}
	}
	rename := sandbox.FileOp{Kind: sandbox.FileRename, Key: "k2", Path: []byte("/workspace/a/b/\xff\xfe"), To: []byte("/workspace/a/b/utf"), NoReplace: true}
	for range 2 { // Its answer was lost.
		do(t, f, id, rename)
	}
	rename.Key, rename.Path = "k3", []byte("/workspace/a/b/ü")
	_, err := f.DoFile(Context(t), id, rename)
	WantReason(t, "rename onto something", err, task.InputConflict)
	mode := uint32(0)
	for _, m := range []uint32{0, 0o640} { // Also what its owner can't read.
		mode = m
		do(t, f, id, sandbox.FileOp{Kind: sandbox.FileChmod, Path: []byte("/workspace/a/b/utf"), Mode: &mode})
	}
	mode = 0o4755
	_, err = f.DoFile(Context(t), id, sandbox.FileOp{Kind: sandbox.FileChmod, Path: []byte("/workspace/a/b/utf"), Mode: &mode})
	WantReason(t, "set-id", err, task.InputInvalid)
	_, err = f.DoFile(Context(t), id, sandbox.FileOp{Kind: sandbox.FileRemove, Path: []byte("/workspace/a")})
	WantReason(t, "remove a full folder", err, task.InputConflict)
	if got := Shell(t, s.driver, id, "stat -c %a a/b/utf; ls a/b | wc -l"); got.Stdout != "640\n8\n" { // The newline makes two lines of one.
		t.Errorf("afterwards: %q", got.Stdout)
	}
	do(t, f, id, sandbox.FileOp{Kind: sandbox.FileRemove, Path: []byte("/workspace/a"), Recursive: true})
	if got := Shell(t, s.driver, id, "ls -A"); got.Stdout != "" {
		t.Errorf("left: %q", got.Stdout)
	}
}

// testShapedFiles is cases.md B16 for single files: what the workload laid leads
// nowhere and blocks nothing.
func (s suite) testShapedFiles(t *testing.T) {
	id, f, ctx := Create(t, s.driver, sandbox.Spec{}).ID, s.files(t), Context(t)
	if got := Root(t, s.driver, id, `mkdir /private && echo secret >/private/f && chmod 777 /private && chmod 666 /private/f && cp /private/f /workspace/hard0 && chmod 600 /workspace/hard0 && ln -s /dev/null /workspace/null`); got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	chain := "mkdir c; cd c; echo end >0; for i in $(seq 50); do ln -s $((i-1)) $i; done; cd ..;"
	if got := Shell(t, s.driver, id, chain+`ln -s /private/f out; ln -s /private dir; ln -s .. up; ln -s ../private/f rel; mkfifo pipe; ln -s /private/new dangling; ln -s c in; ln -s /workspace/c/0 abs; ln -s loop loop; ln -s /proc/self/mem mem; ln hard0 hard1 2>/dev/null; echo x >own; ln own own2; true`); got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	for _, follow := range []bool{false, true} {
		for _, name := range []string{"out", "dir/f", "up/private/f", "rel", "pipe", "dangling", "loop", "mem", "null", "c/45", "hard0", "up/etc/shadow"} {
			text, err := ReadText(ctx, f, id, sandbox.FileRead{Path: []byte("/workspace/" + name), Length: -1, Follow: follow})
			if err == nil || text != "" {
				t.Errorf("read %s, follow %v: %q, %v", name, follow, text, err)
			}
			if name == "hard0" {
				continue // Another's file in the workload's own folder may be replaced, as the workload may.
			}
			w := sandbox.FileWrite{Path: []byte("/workspace/" + name), Size: 5, SHA256: Sum("owned"), Follow: follow}
			if _, err = f.WriteFile(ctx, id, w, strings.NewReader("owned")); err == nil {
				t.Errorf("write %s, follow %v", name, follow)
			}
		}
	}
	for _, name := range []string{"in/0", "abs", "c/40"} {
		text, err := ReadText(ctx, f, id, sandbox.FileRead{Path: []byte("/workspace/" + name), Length: -1, Follow: true})
		if err != nil || text != "end\n" {
			t.Errorf("follow %s: %q, %v", name, text, err)
		}
	}
	_, err := ReadText(ctx, f, id, sandbox.FileRead{Path: []byte("/workspace/own"), Length: -1, User: "root"})
	WantReason(t, "a second name, for root", err, task.InputInvalid)
	for _, name := range []string{"dir", "up", "out", "pipe", "null", "c"} {
		do(t, f, id, sandbox.FileOp{Kind: sandbox.FileRemove, Path: []byte("/workspace/" + name), Recursive: true})
	}
	got := Root(t, s.driver, id, "cat /private/f; ls -A /private; ls /etc/passwd; stat -c %a /private/f")
	if got.Stdout != "secret\nf\n/etc/passwd\n666\n" {
		t.Errorf("afterwards: %q", got.Stdout)
	}
}

// testDiskFull: a file that doesn't fit leaves what was there.
func (s suite) testDiskFull(t *testing.T) {
	limits := task.DefaultLimits()
	limits.Disk = 64 << 20
	id, f, ctx := Create(t, s.driver, sandbox.Spec{Limits: limits}).ID, s.files(t), Context(t)
	if _, err := Write(ctx, f, id, "/workspace/f", "old"); err != nil {
		t.Fatal(err)
	}
	zeros := bytes.Repeat([]byte{1}, 80<<20)
	_, err := Write(ctx, f, id, "/workspace/f", string(zeros))
	WantReason(t, "more than fits", err, task.LimitDisk)
	text, err := ReadText(ctx, f, id, sandbox.FileRead{Path: []byte("/workspace/f"), Length: -1})
	if err != nil || text != "old" {
		t.Errorf("afterwards: %q, %v", text, err)
	}
	if got := Shell(t, s.driver, id, "ls -A"); got.Stdout != "f\n" {
		t.Errorf("left: %q", got.Stdout)
	}
}

//go:build root

package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// A worker that is killed in the middle of a write leaves what was there; the
// client sends the file again and it is written once.
func TestWriteOutlivesTheWorker(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	at := client.File{Sandbox: box.ID, Path: "/workspace/f"}
	old := "old content"
	n := client.NewFile{Size: int64(len(old)), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(old)))}
	if _, err := e.Client.WriteFile(ctx, at, n, func() (io.Reader, error) { return strings.NewReader(old), nil }); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("new content\n", 2<<20)
	n = client.NewFile{Size: int64(len(text)), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(text))), IfSHA256: n.SHA256}
	halfway, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	wrote := make(chan error, 1)
	go func() {
		_, err := e.Client.WriteFile(ctx, at, n, func() (io.Reader, error) {
			return io.MultiReader(strings.NewReader(text[:8<<20]), waits(func() {
				once.Do(func() { close(halfway) })
				<-release
			}), strings.NewReader(text[8<<20:])), nil
		})
		wrote <- err
	}()
	<-halfway
	e.Reborn("worker", e.Kill("worker"))
	_, body, err := e.Client.ReadFile(ctx, at, client.FileRange{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	body.Close()
	if err != nil || string(got) != old {
		t.Errorf("in the middle: %q, %v", got, err)
	}
	close(release)
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if out, st := execIn(t, e, box.ID, "sha256sum <f; ls -A"); st.ExitCode != 0 || out != n.SHA256+"  -\nf\n" {
		t.Errorf("afterwards: %q, %+v", out, st)
	}
}

// waits is a reader that does something and has nothing.
type waits func()

func (w waits) Read([]byte) (int, error) {
	w()
	return 0, io.EOF
}

// Names of other files, other people and other kinds of things through the
// program and the API.
func TestFilesFromTheCommandLine(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	if out, st := execIn(t, e, box.ID, `ln -s /etc/passwd link; mkfifo pipe; mkdir -p a/b; printf x >"$(printf 'a\033[2J\377')"`); st.ExitCode != 0 {
		t.Fatalf("%q, %+v", out, st)
	}
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"cat ID /workspace/link":               {2, "is a link and no file"},
		"cat ID /workspace/link --follow":      {2, "leads out of /workspace"},
		"cat ID /workspace/pipe":               {2, "is a pipe and no file"},
		"cat ID /etc/passwd":                   {2, "beneath none of"},
		"cat ID /workspace/../etc/passwd":      {2, "not clean"},
		"ls ID /workspace":                     {0, `a\x1b[2J\xff`},
		"stat ID /workspace/link":              {0, "/etc/passwd"},
		"rm ID /workspace":                     {2, "is a root and stays"},
		"chmod ID 4755 /workspace/pipe":        {2, "set-id"},
		"mkdir ID /workspace/m/b/c -p":         {0, "made"},
		"mv ID /workspace/a /workspace/a/b/c2": {2, "into itself"},
		"stat ID /workspace/absent":            {2, "no such file"},
	} {
		argv := append([]string{"sandbox", "file"}, strings.Fields(strings.ReplaceAll(args, "ID", box.ID))...)
		out, err := e.Command(argv...).CombinedOutput()
		code := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != want.code || !strings.Contains(string(out), want.text) {
			t.Errorf("%s: %d, %q; want %d and %q", args, code, out, want.code, want.text)
		}
	}
}

// TestLargeFileFlatMemory streams a large file out of a sandbox to the program's output.
// The worker, the control plane and the program keep no more than windows of it.
func TestLargeFileFlatMemory(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	const size = largeFile
	if out, st := execIn(t, e, box.ID, fmt.Sprintf("truncate -s %d big", size)); st.ExitCode != 0 {
		t.Fatalf("%q, %+v", out, st)
	}
	before := resident(t, e)
	cmd := e.Command("sandbox", "file", "cat", box.ID, "/workspace/big")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Its rusage has what this program had when it was forked, so it is asked while it lives.
	var n, most int64
	buf := make([]byte, 1<<20)
	for i := 0; err == nil; i++ {
		var m int
		if m, err = pipe.Read(buf); i%64 == 0 {
			most = max(most, kib(t, cmd.Process.Pid, "VmHWM:"))
		}
		n += int64(m)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if werr := cmd.Wait(); err != nil || werr != nil || n != size {
		t.Fatalf("%d bytes, %v, %v", n, err, werr)
	}
	after := resident(t, e)
	t.Logf("KiB before %v, after %v; the program at most %d", before, after, most)
	for name, kb := range after {
		if kb-before[name] > 96<<10 {
			t.Errorf("%s grew by %d KiB", name, kb-before[name])
		}
	}
	if most == 0 || most > 160<<10 {
		t.Errorf("the program had %d KiB", most)
	}
}

// resident is the memory of each daemon, in KiB.
func resident(t *testing.T, e *testenv.Env) map[string]int64 {
	t.Helper()
	list := map[string]int64{}
	for _, p := range e.Processes() {
		if p.Name != "cofferdamd" && p.Name != "cofferdam-worker" {
			continue
		}
		list[p.Name] = kib(t, p.PID, "VmRSS:")
	}
	if len(list) != 2 {
		t.Fatalf("daemons: %v", list)
	}
	return list
}

// kib is a line of a process's status; 0 for one that has ended.
func kib(t *testing.T, pid int, line string) int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), line)
	if !found {
		return 0
	}
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

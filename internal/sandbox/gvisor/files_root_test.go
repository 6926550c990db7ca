//go:build root

package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// swapper changes what stands at every name the test works on, as fast as it can:
// a folder and a link out, a file and a link out, a pipe, a hard link. It says how
// often it went round.
const swapper = `
import os, itertools
os.chdir("/workspace")
def quiet(f, *a):
    try: f(*a)
    except OSError: pass
for n in itertools.count():
    quiet(os.symlink, "/outside", "l%d" % n); quiet(os.rename, "l%d" % n, "way")
    quiet(os.unlink, "way"); quiet(os.mkdir, "way")
    quiet(os.symlink, "/outside/canary", "way/t"); quiet(os.rename, "way/t", "way/f")
    quiet(os.symlink, "../../outside/canary", "t"); quiet(os.rename, "t", "f")
    quiet(os.unlink, "f"); quiet(os.mkfifo, "f")
    quiet(os.symlink, "/outside", "f2"); quiet(os.rename, "f2", "f")
    quiet(os.symlink, "/outside/new", "way/n"); quiet(os.rename, "way", "moved%d" % (n % 7))
    quiet(os.link, "own", "hl"); quiet(os.rename, "hl", "f"); quiet(os.unlink, "f")
    if n % 50 == 0: print(n, flush=True)
`

// TestSwappedLinks is cases.md B16 in a loop: whatever a process swaps while
// operations work on the same names, nothing outside of the root is read, written,
// removed or given another mode.
func TestSwappedLinks(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	id := sandboxtest.Create(t, d, sandbox.Spec{}).ID
	if got := sandboxtest.Root(t, d, id, `mkdir /outside && echo canary >/outside/canary && chown -R agent /outside && chmod 755 /outside && chmod 644 /outside/canary`); got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	if got := sandboxtest.Shell(t, d, id, "echo own >own"); got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	ctx := sandboxtest.Context(t)
	if _, err := d.Start(ctx, id, sandbox.Command{ID: "swap", Argv: []string{"python3", "-c", swapper}}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, "the swapper runs", func() bool {
		list, err := d.Inspect(ctx, id, "swap")
		return err == nil && list[0].Output > 0
	})
	counts := map[string]int{}
	shown := func() bool { return counts["read "] > 0 && counts["write "] > 0 && counts["stat "] > 0 }
	// Every operation on every name, fifteen times, and on until something was
	// there at the right moment for each.
	for n := 0; n < 480 || n < 100*480 && !shown(); n++ {
		name := []string{"/workspace/f", "/workspace/way/f", "/workspace/way/n", "/workspace/way"}[n/8%4]
		what, err := attack(t, d, id, name, n)
		reason := task.ReasonNone
		if failure, ok := errors.AsType[*task.Failure](err); ok {
			reason = failure.Reason
		}
		switch reason {
		case task.ReasonNone, task.InputNotFound, task.InputInvalid, task.InputConflict:
		default:
			t.Fatalf("%s %s: %v", what, name, err)
		}
		counts[what+" "+string(reason)]++
	}
	t.Logf("what became of the operations: %v", counts)
	list, err := d.Inspect(ctx, id, "swap")
	if err != nil || list[0].Phase != sandbox.CommandRunning {
		t.Errorf("the swapper ended: %+v, %v", list, err)
	}
	if err := d.Signal(ctx, id, "swap", 9); err != nil {
		t.Error(err)
	}
	got := sandboxtest.Root(t, d, id, `cat /outside/canary; ls -A /outside; stat -c %a /outside /outside/canary`)
	if got.Stdout != "canary\ncanary\n755\n644\n" {
		t.Errorf("outside: %q", got.Stdout)
	}
	if !shown() {
		t.Error("no read, no write or no stat succeeded: the test has shown nothing")
	}
}

// attack does the n-th operation, with links followed every other time.
func attack(t *testing.T, d *Driver, id, name string, n int) (string, error) {
	t.Helper()
	ctx, path, follow := sandboxtest.Context(t), []byte(name), n/4%2 == 1
	mode := uint32(0o600)
	switch n % 8 {
	case 0, 1:
		text, err := sandboxtest.ReadText(ctx, d, id, sandbox.FileRead{Path: path, Length: -1, Follow: follow})
		if strings.Contains(text, "canary") {
			t.Fatalf("read %s gave what lies outside", name)
		}
		return "read", err
	case 2, 3:
		_, err := sandboxtest.Write(ctx, d, id, name, "owned")
		return "write", err
	case 4:
		_, err := d.DoFile(ctx, id, sandbox.FileOp{Kind: sandbox.FileChmod, Path: path, Mode: &mode, Follow: follow})
		return "chmod", err
	case 5:
		r, err := d.DoFile(ctx, id, sandbox.FileOp{Kind: sandbox.FileList, Path: path, Follow: follow})
		for _, e := range r.Entries {
			if string(e.Name) == "canary" {
				t.Fatalf("list %s gave what lies outside", name)
			}
		}
		return "list", err
	case 6:
		_, err := d.DoFile(ctx, id, sandbox.FileOp{Kind: sandbox.FileStat, Path: path, Digest: true, Follow: follow})
		return "stat", err
	}
	_, err := d.DoFile(ctx, id, sandbox.FileOp{Kind: sandbox.FileRemove, Path: path, Recursive: n%16 == 7, Follow: follow})
	return "remove", err
}

// residentKB is the memory of a process, and the most that it ever was.
func residentKB(t *testing.T, pid, field string) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s of %s", field, pid)
	return 0
}

// zeros is a file of zeros.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	return int(n), nil
}

// TestLargeFileFlatMemory streams a large file out and 256 MiB in. Neither this process,
// which is the worker's side, nor the guest keeps more than a window of it.
func TestLargeFileFlatMemory(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	id := sandboxtest.Create(t, d, sandbox.Spec{}).ID
	const out, in = largeFile, 256 << 20
	if got := sandboxtest.Shell(t, d, id, fmt.Sprintf("truncate -s %d big", out)); got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	before, guestBefore := residentKB(t, "self", "VmRSS"), guestKB(t, d, id)
	ctx := t.Context()
	head, body, err := d.ReadFile(ctx, id, sandbox.FileRead{Path: []byte("/workspace/big"), Length: -1})
	if err != nil || head.Length != out {
		t.Fatalf("%+v, %v", head, err)
	}
	sum := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{body}, make([]byte, 128<<10))
	body.Close()
	if err != nil || n != out {
		t.Fatalf("%d bytes, %v", n, err)
	}
	want := sha256.New()
	_, _ = io.Copy(want, &zeros{left: in})
	w := sandbox.FileWrite{Path: []byte("/workspace/written"), Size: in, SHA256: hex.EncodeToString(want.Sum(nil))}
	if _, err := d.WriteFile(ctx, id, w, &zeros{left: in}); err != nil {
		t.Fatal(err)
	}
	after, guestAfter := residentKB(t, "self", "VmRSS"), guestKB(t, d, id)
	t.Logf("resident: worker's side %d → %d KiB (most ever %d), guest %d → %d KiB", before, after, residentKB(t, "self", "VmHWM"), guestBefore, guestAfter)
	if after-before > 64<<10 || guestAfter-guestBefore > 32<<10 {
		t.Error("memory grows with the file")
	}
}

// guestKB asks inside how much memory the guest has.
func guestKB(t *testing.T, d *Driver, id string) int64 {
	t.Helper()
	got := sandboxtest.Root(t, d, id, `grep VmRSS /proc/1/status`)
	fields := strings.Fields(got.Stdout)
	if len(fields) < 2 {
		t.Fatalf("the guest's memory: %+v", got)
	}
	n, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLongFolder lists a folder of many entries in pages: each once, and memory stays flat.
func TestLongFolder(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	id := sandboxtest.Create(t, d, sandbox.Spec{}).ID
	const entries = manyEntries
	got := sandboxtest.Shell(t, d, id, fmt.Sprintf(`mkdir many && python3 -c "
import os
for i in range(%d): os.mknod('many/%%06d-%%s' %% (i, 'n'*40))"`, entries))
	if got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	before := guestKB(t, d, id)
	op, count := sandbox.FileOp{Kind: sandbox.FileList, Path: []byte("/workspace/many"), Limit: sandbox.MaxFilePage}, 0
	for {
		r, err := d.DoFile(sandboxtest.Context(t), id, op)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Entries {
			if want := fmt.Sprintf("%06d-%s", count, strings.Repeat("n", 40)); string(e.Name) != want {
				t.Fatalf("entry %d is %q", count, e.Name)
			}
			count++
		}
		if op.After = r.Next; len(op.After) == 0 {
			break
		}
	}
	after := guestKB(t, d, id)
	t.Logf("%d entries; guest %d → %d KiB", count, before, after)
	if count != entries || after-before > 32<<10 {
		t.Errorf("%d entries, guest grew by %d KiB", count, after-before)
	}
}

package supervise

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lockedLog is a log that a test may read while it is written.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testChild is a child of this very user in a folder of its own.
func testChild(t *testing.T, behave string) (*child, *lockedLog) {
	t.Helper()
	l := Layout{Data: t.TempDir()}
	for _, dir := range []string{"run", "log", "worker", "bin"} {
		if err := os.Mkdir(l.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, l.path("bin", workerName)); err != nil {
		t.Fatal(err)
	}
	setBehave(t, l, "worker", behave)
	p := program{name: workerName, folder: "worker", as: owner{os.Geteuid(), os.Getegid()}, grace: 300 * time.Millisecond, args: func() ([]string, error) {
		return []string{"--data", l.Data}, nil
	}}
	log := &lockedLog{}
	return newChild(p, l, l.path("bin"), []string{self, "hold"}, slog.New(slog.NewTextHandler(log, nil))), log
}

func setBehave(t *testing.T, l Layout, folder, behave string) {
	t.Helper()
	if err := os.WriteFile(l.path(folder, "behave"), []byte(behave), 0o644); err != nil {
		t.Fatal(err)
	}
}

func recordOf(t *testing.T, l Layout, name string) Record {
	t.Helper()
	r, ok, err := l.readRecord(name)
	if err != nil || !ok {
		t.Fatalf("record of %s: %v %v", name, ok, err)
	}
	return r
}

func TestChildIsRestartedAfterItWasKilled(t *testing.T) {
	c, _ := testChild(t, "")
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for range 3 {
		var r Record
		until(t, "a living worker with a boot file of its own", func() bool {
			r, _, _ = c.layout.readRecord(workerName)
			b, err := c.layout.boot("worker")
			return err == nil && r.Alive() && b.PID == r.PID && !seen[r.PID]
		})
		seen[r.PID] = true
		if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	c.end()
	if _, ok, _ := c.layout.readRecord(workerName); ok {
		t.Error("an ended child keeps its record")
	}
}

func TestRestartsAreSpacedOut(t *testing.T) {
	c, log := testChild(t, "")
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	setBehave(t, c.layout, "worker", "broken")
	if err := syscall.Kill(recordOf(t, c.layout, workerName).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the fourth restart", func() bool { return strings.Contains(log.String(), "in=800ms") })
	c.end()
	for _, want := range []string{"in=100ms", "in=200ms", "in=400ms"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no restart %s\n%s", want, log)
		}
	}
}

func TestBrokenProgramIsExplained(t *testing.T) {
	c, _ := testChild(t, "broken")
	err := c.start(t.Context())
	var f *Fault
	if !errors.As(err, &f) || f.Code != CodeProgram {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{workerName, "exit status 1", "the database is corrupt", c.layout.LogFile(workerName)} {
		if !strings.Contains(f.Text, want) {
			t.Errorf("the text does not say %q:\n%s", want, f.Text)
		}
	}
	if _, ok, _ := c.layout.readRecord(workerName); ok {
		t.Error("a record is left")
	}
}

func TestDeafProgramIsKilled(t *testing.T) {
	c, log := testChild(t, "deaf")
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := recordOf(t, c.layout, workerName)
	c.end()
	if r.Alive() {
		t.Error("it lives")
	}
	if !strings.Contains(log.String(), "is killed") {
		t.Error("the log does not say that it was killed")
	}
}

func TestStartThatIsStoppedLeavesNothing(t *testing.T) {
	c, _ := testChild(t, "broken")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.start(ctx); !errors.Is(err, context.Canceled) {
		// It may have ended first; then the pause is what was stopped.
		t.Fatalf("got %v", err)
	}
	if _, ok, _ := c.layout.readRecord(workerName); ok {
		t.Error("a record is left")
	}
}

// A holder whose supervisor dies before it wrote the record becomes nothing.
func TestHolderEndsWithItsSupervisor(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(t.TempDir(), "ran")
	cmd := exec.Command(self, "hold", "/bin/sh", "-c", "touch "+marker)
	cmd.ExtraFiles = []*os.File{r}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close() // the supervisor's end: closed by the kernel when it is killed
	if err := cmd.Wait(); err == nil {
		t.Error("the holder ended well")
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the program ran")
	}
}

// A record of a number that belongs to another process now ends nothing.
func TestRecordIsOneProcess(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var good Record
	var err error
	until(t, "sleep to run", func() bool {
		exe, _ := os.Readlink("/proc/self/exe")
		its, _ := filepath.EvalSymlinks("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/exe")
		good, err = newRecord("x", cmd.Process.Pid, its)
		return err == nil && its != "" && its != exe
	})
	if !good.Alive() {
		t.Fatal("its own record does not find it")
	}
	for name, change := range map[string]func(*Record){
		"start":   func(r *Record) { r.Start++ },
		"kernel":  func(r *Record) { r.Kernel = "another" },
		"exe":     func(r *Record) { r.Exe = []string{"/usr/bin/other"} },
		"number":  func(r *Record) { r.PID = os.Getpid() },
		"nothing": func(r *Record) { r.PID = 0 },
		"init":    func(r *Record) { r.PID = 1 },
	} {
		r := good
		change(&r)
		if r.Alive() {
			t.Errorf("%s: taken for the recorded process", name)
		}
	}
}

func TestLogIsPutAsideWhenLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	if err := os.WriteFile(path, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, logLimit+1); err != nil {
		t.Fatal(err)
	}
	f, from, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := os.Stat(path + ".1"); err != nil || from != 0 {
		t.Errorf("not put aside: from %d, %v", from, err)
	}
}

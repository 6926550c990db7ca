package sandboxtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// testOutputCut: limit.output says how much was cut.
func (s suite) testOutputCut(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{Limits: task.Limits{Output: 1 << 20}}).ID
	got := Shell(t, s.driver, id, "head -c 3000000 /dev/zero; sleep 1000")
	if got.Reason != task.LimitOutput || got.Output != 1<<20 || got.Cut <= 0 || got.Cut > 3_000_000-1<<20 {
		t.Errorf("got %+v", got.Status)
	}
}

// testLargestGoes: limit.memory ends the command that takes most, and the sandbox
// and its other commands live.
func (s suite) testLargestGoes(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{Limits: task.Limits{Memory: 512 << 20}}).ID
	s.start(t, id, sandbox.Command{ID: "small", Argv: []string{"sleep", "1000"}})
	// 20 MiB at a time, so that a busy machine still looks in between.
	got := Exec(t, s.driver, id, sandbox.Command{Argv: []string{"python3", "-c", `
import time
held = []
while True:
    held.append(b"x" * (20 << 20))
    time.sleep(0.1)`}})
	if got.Reason != task.LimitMemory || got.Signal != 9 {
		t.Errorf("got %+v %s", got.Status, got.Stderr)
	}
	if got := Shell(t, s.driver, id, "echo alive"); got.Stdout != "alive\n" {
		t.Errorf("afterwards: %+v", got)
	}
	list, err := s.console(t).Inspect(Context(t), id, "small")
	if err != nil || len(list) != 1 || list[0].Phase != sandbox.CommandRunning {
		t.Errorf("the small one: %+v, %v", list, err)
	}
}

// testPIDs: limit.pids is the reason of a command that failed on it.
func (s suite) testPIDs(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{Limits: task.Limits{PIDs: 32}}).ID
	got := Exec(t, s.driver, id, sandbox.Command{Argv: []string{"python3", "-c", `
import os, time
for n in range(100):
    try:
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
    except BlockingIOError:
        print("refused after", n)
        raise SystemExit(3)`}})
	if got.Reason != task.LimitPIDs || got.ExitCode != 3 || !strings.HasPrefix(got.Stdout, "refused after ") {
		t.Errorf("got %+v %q", got.Status, got.Stdout)
	}
}

// testInodes: limit.inodes ends who makes more files than may exist, not who makes
// and removes as many, and what is too much can be removed.
func (s suite) testInodes(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{Limits: task.Limits{Inodes: 2000}}).ID
	got := Exec(t, s.driver, id, sandbox.Command{Argv: []string{"python3", "-c", `
import os, time
for i in range(5000):
    open("/tmp/f", "w").close()
    os.unlink("/tmp/f")
time.sleep(2) # the watch looks twice a second
print("done")`}})
	if got.Stdout != "done\n" || got.Reason != "" {
		t.Errorf("made and removed: %+v", got)
	}
	got = Exec(t, s.driver, id, sandbox.Command{Argv: []string{"python3", "-c", `
import time
for i in range(5000):
    open("/workspace/f%d" % i, "w").close()
time.sleep(1000)`}})
	if got.Reason != task.LimitInodes || got.Signal != 9 {
		t.Errorf("5,000 files where 2,000 may be: %+v", got.Status)
	}
	if got := Shell(t, s.driver, id, `rm -f /workspace/f*; ls -A /workspace | wc -l`); strings.TrimSpace(got.Stdout) != "0" {
		t.Errorf("removing them: %+v", got)
	}
	if got := Shell(t, s.driver, id, `for i in $(seq 1 500); do : >/workspace/g$i; done; sleep 2; echo done`); got.Stdout != "done\n" {
		t.Errorf("after that: %+v", got)
	}
}

// testOpenFiles: limit.files is exact for each process; the reason is told of a
// command that stays at the limit for a moment before it fails.
func (s suite) testOpenFiles(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{Limits: task.Limits{Files: 100}}).ID
	got := Exec(t, s.driver, id, sandbox.Command{Argv: []string{"python3", "-c", `
import os, resource, time
print(resource.getrlimit(resource.RLIMIT_NOFILE))
last = 0
try:
    while True:
        last = os.open("/dev/null", os.O_RDONLY)
except OSError as e:
    print(last, e.strerror, flush=True)
time.sleep(2)
raise SystemExit(4)`}})
	if got.Stdout != "(100, 100)\n99 Too many open files\n" || got.ExitCode != 4 || got.Reason != task.LimitFiles {
		t.Errorf("got %+v %q %q", got.Status, got.Stdout, got.Stderr)
	}
	if got := Shell(t, s.driver, id, "ulimit -n 1000 2>/dev/null || ulimit -n"); got.Stdout != "100\n" {
		t.Errorf("raising it: %q", got.Stdout)
	}
}

// testWallTime: limit.time ends trees that ignore, leave and hide, within 5 s of it.
func (s suite) testWallTime(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{Limits: task.Limits{Time: time.Second}}).ID
	for i, script := range []string{
		`trap '' TERM INT HUP; (setsid sh -c 'trap "" TERM; (sleep 4000 &) ; sleep 4001' &) ; sleep 4002`,
		`python3 -c '
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 100)
        time.sleep(4000)
    os._exit(0)
time.sleep(4000)'`,
	} {
		command := fmt.Sprintf("t%d", i)
		got := Exec(t, s.driver, id, sandbox.Command{ID: command, Argv: []string{"sh", "-c", script}})
		if !got.TimedOut || got.Reason != task.LimitTime {
			t.Errorf("%s: %+v", script, got.Status)
		}
		t.Logf("ended after %v", got.EndedAt.Sub(got.StartedAt))
		if list, err := s.console(t).Inspect(Context(t), id, command); err != nil || len(list) != 1 || len(list[0].Processes) != 0 {
			t.Errorf("%s leaves %+v, %v", script, list, err)
		}
	}
}

// testSudo: root for the workload only where the sandbox allows it, and no more of
// it than owning files and users: neither the guest nor a mount is in its reach.
func (s suite) testSudo(t *testing.T) {
	plain := Create(t, s.driver, sandbox.Spec{}).ID
	_, err := s.driver.Start(Context(t), plain, sandbox.Command{ID: "c", Argv: []string{"id"}, User: "sudo"})
	WantReason(t, "sudo where it is not allowed", err, task.PolicyDenied)
	id := Create(t, s.driver, sandbox.Spec{Sudo: true}).ID
	s.start(t, id, sandbox.Command{ID: "ours", Argv: []string{"sleep", "1000"}, User: "root"})
	list, err := s.console(t).Inspect(Context(t), id, "ours")
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	got := Exec(t, s.driver, id, sandbox.Command{User: "sudo", Argv: []string{"sh", "-c", `
id -u; echo $HOME; grep CapBnd /proc/self/status; echo x >/etc/mine && chown agent /etc/mine && stat -c %U /etc/mine
mount -t tmpfs none /mnt 2>/dev/null && echo mounted
cat /proc/1/environ /proc/1/mem 2>/dev/null; ls /proc/1/fd/ >/dev/null 2>&1; cat </proc/1/fd/0 2>/dev/null && echo stolen
echo forged 2>/dev/null >/proc/1/fd/1 && echo forged
ulimit -n 1000000 2>/dev/null && echo raised
for s in TERM HUP STOP KILL; do kill -$s 1 2>/dev/null && echo signalled; done
python3 -c 'import os; os.setuid(65533)' 2>/dev/null && echo became
true`}})
	if want := "0\n/root\nCapBnd:\t000000000000001b\nagent\n"; got.Stdout != want {
		t.Errorf("as root: %q, want %q; %q", got.Stdout, want, got.Stderr)
	}
	got = Exec(t, s.driver, id, sandbox.Command{User: "sudo", Argv: []string{"python3", "-c", fmt.Sprintf(`
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for pid in 1, %d:
    if libc.ptrace(16, pid, None, None) == 0:
        print("traced", pid)`, list[0].PID)}})
	if got.Stdout != "" || got.ExitCode != 0 {
		t.Errorf("tracing: %+v", got)
	}
	if got := Shell(t, s.driver, id, "id -u"); got.Stdout != "1000\n" {
		t.Errorf("afterwards: %+v", got)
	}
}

package sandboxtest

import (
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (s suite) testOutputLimit(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{Limits: task.Limits{Output: 1 << 20}}).ID
	got := Shell(t, s.driver, id, "yes")
	if got.Reason != task.LimitOutput || got.Phase != sandbox.CommandExited {
		t.Errorf("got %+v", got.Status)
	}
	if got.Output > 1<<20 {
		t.Errorf("%d bytes were kept", got.Output)
	}
	if got := Shell(t, s.driver, id, "echo alive"); got.Stdout != "alive\n" {
		t.Errorf("afterwards: %+v", got)
	}
}

// testMemoryLimit is cases.md B22: only that sandbox ends, with the limit's name.
func (s suite) testMemoryLimit(t *testing.T) {
	other := Create(t, s.driver, sandbox.Spec{}).ID
	id := Create(t, s.driver, sandbox.Spec{Limits: task.Limits{Memory: 256 << 20}}).ID
	ctx := Context(t)
	if _, err := s.driver.Start(ctx, id, sandbox.Command{ID: "c", Argv: []string{"sh", "-c", "echo begun; tail /dev/zero"}}); err != nil {
		t.Fatal(err)
	}
	got := Follow(t, s.driver, id, "c", 0)
	if got.Stdout != "begun\n" {
		t.Errorf("its output: %q", got.Stdout)
	}
	infos, err := s.driver.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if info.ID != id || info.State == sandbox.Live {
			continue
		}
		if info.Reason != task.LimitMemory {
			t.Errorf("the sandbox died of %s", info.Reason)
		}
		_, err := s.driver.Start(ctx, id, sandbox.Command{ID: "d", Argv: []string{"true"}})
		WantReason(t, "start in it", err, task.LimitMemory)
	}
	if got.Reason != task.LimitMemory && got.Signal != 9 {
		t.Errorf("the command ended with %+v", got.Status)
	}
	if got := Shell(t, s.driver, other, "echo alive"); got.Stdout != "alive\n" {
		t.Errorf("its neighbour: %+v", got)
	}
}

func (s suite) testProcessLimit(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{Limits: task.Limits{PIDs: 64}}).ID
	got := Exec(t, s.driver, id, sandbox.Command{
		Argv: []string{"sh", "-c", `i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo all`}, Timeout: 20 * time.Second,
	})
	if strings.Contains(got.Stdout, "all") && got.Stderr == "" {
		t.Errorf("200 processes within a limit of 64: %+v", got)
	}
	bomb := Exec(t, s.driver, id, sandbox.Command{ID: "bomb", Argv: []string{"sh", "-c", `b() { b | b & }; b; sleep 1`}, Timeout: 5 * time.Second})
	t.Logf("fork bomb: %+v", bomb.Status)
	if err := s.driver.Signal(Context(t), id, "bomb", 9); err != nil {
		t.Errorf("ending it: %v", err)
	}
	if got := Root(t, s.driver, id, "echo alive"); got.Stdout != "alive\n" {
		t.Errorf("afterwards: %+v", got)
	}
}

func (s suite) testDiskLimit(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{Limits: task.Limits{Disk: 32 << 20}}).ID
	// One allowance for all places together, not one each.
	got := Shell(t, s.driver, id, `
		for f in /workspace/a /home/agent/a /tmp/a /var/tmp/a; do dd if=/dev/zero of=$f bs=1M count=12 2>&1 | grep -o "No space left on device"; done
		cat /workspace/a /home/agent/a /tmp/a /var/tmp/a | wc -c`)
	if !strings.Contains(got.Stdout, "No space left on device") {
		t.Errorf("48 MB within a limit of 32 MB: %q %q", got.Stdout, got.Stderr)
	}
	if got := Shell(t, s.driver, id, `rm -f /workspace/a /tmp/a; echo alive >/workspace/b && cat /workspace/b`); got.Stdout != "alive\n" {
		t.Errorf("after making room: %+v", got)
	}
}

func (s suite) testNoNetwork(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	got := Root(t, s.driver, id, `cat /proc/net/dev | tail -n +3 | cut -d: -f1`)
	if strings.TrimSpace(got.Stdout) != "lo" {
		t.Errorf("devices: %q", got.Stdout)
	}
	if got := Shell(t, s.driver, id, `python3 -c '
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"hello")).start()
print(socket.create_connection(server.getsockname()).recv(5).decode())
try:
    socket.create_connection(("198.51.100.1", 80), 2)
    print("connected")
except OSError:
    print("refused")'`); got.Stdout != "hello\nrefused\n" {
		t.Errorf("loopback and outside: %q %q", got.Stdout, got.Stderr)
	}
}

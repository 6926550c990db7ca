package sandboxtest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (s suite) testOutput(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	got := Shell(t, s.driver, id, `echo out; echo err >&2; exit 7`)
	if got.Stdout != "out\n" || got.Stderr != "err\n" || got.ExitCode != 7 || got.Phase != sandbox.CommandExited {
		t.Errorf("got %+v", got)
	}
	if got.Output != 8 || got.StartedAt.IsZero() || got.EndedAt.IsZero() {
		t.Errorf("status: %+v", got.Status)
	}
	got = Shell(t, s.driver, id, `kill -9 $$`)
	if got.Signal != 9 || got.ExitCode != -1 {
		t.Errorf("ended by a signal: %+v", got.Status)
	}
	// More than any buffer on the way holds.
	got = Shell(t, s.driver, id, `seq 1 600000`)
	lines := strings.Split(strings.TrimSuffix(got.Stdout, "\n"), "\n")
	if len(lines) != 600000 || lines[599999] != "600000" {
		t.Errorf("%d lines", len(lines))
	}
	for i, line := range lines {
		if line != strconv.Itoa(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
}

func (s suite) testAttach(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	ctx := Context(t)
	Shell(t, s.driver, id, "mkfifo /tmp/go")
	if _, err := s.driver.Start(ctx, id, sandbox.Command{ID: "c", Argv: []string{"sh", "-c", "printf 0123456789; read line </tmp/go; printf abcdef"}}); err != nil {
		t.Fatal(err)
	}
	// Two readers, one before and one after the command waits; both see the end.
	var wg sync.WaitGroup
	for _, offset := range []int64{0, 4, 10} {
		wg.Go(func() {
			got := Follow(t, s.driver, id, "c", offset)
			if want := "0123456789abcdef"[offset:]; got.Stdout != want {
				t.Errorf("from %d: %q, want %q", offset, got.Stdout, want)
			}
		})
	}
	Shell(t, s.driver, id, "echo >/tmp/go")
	wg.Wait()
	for _, offset := range []int64{0, 3, 16} {
		if got := Follow(t, s.driver, id, "c", offset); got.Stdout != "0123456789abcdef"[offset:] {
			t.Errorf("after its end, from %d: %q", offset, got.Stdout)
		}
	}
	_, err := s.driver.Attach(ctx, id, "c", -1)
	WantReason(t, "a negative offset", err, task.InputInvalid)
}

func (s suite) testCannotStart(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	got := Exec(t, s.driver, id, sandbox.Command{Argv: []string{"/no/such/program"}})
	if got.Phase != sandbox.CommandExited || got.ExitCode == 0 || got.Error == "" {
		t.Errorf("no such program: %+v", got.Status)
	}
	got = Exec(t, s.driver, id, sandbox.Command{Argv: []string{"true"}, Dir: "/no/such/folder"})
	if got.Phase != sandbox.CommandExited || got.ExitCode == 0 || got.Error == "" {
		t.Errorf("no such folder: %+v", got.Status)
	}
}

func (s suite) testSurroundings(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	got := Shell(t, s.driver, id, `id -u; pwd; echo $HOME; touch /workspace/a /home/agent/a /tmp/a && echo writable; cat /etc/shadow 2>/dev/null | wc -l`)
	if got.Stdout != "1000\n/workspace\n/home/agent\nwritable\n0\n" {
		t.Errorf("as agent: %q %q", got.Stdout, got.Stderr)
	}
	got = Exec(t, s.driver, id, sandbox.Command{Argv: []string{"sh", "-c", "pwd; echo $MINE; id -u"}, Dir: "/tmp", Env: []string{"MINE=x y"}, User: "root"})
	if got.Stdout != "/tmp\nx y\n0\n" {
		t.Errorf("as root: %q %q", got.Stdout, got.Stderr)
	}
	got = Shell(t, s.driver, id, `touch /usr/x; touch /etc/x; touch /x; sudo -n id; cat /proc/1/environ; kill -9 1; ls /.cofferdam`)
	if got.Stdout != "" {
		t.Errorf("the agent could: %q", got.Stdout)
	}
	got = Shell(t, s.driver, id, `ls -A /home /root 2>/dev/null; ls /var/run /run`)
	if strings.Contains(got.Stdout, "docker") || !strings.Contains(got.Stdout, "agent") {
		t.Errorf("host folders: %q", got.Stdout)
	}
	for name, path := range map[string]string{"home": "/home/agent/mine", "workspace": "/workspace/mine", "tmp": "/tmp/mine"} {
		if got := Shell(t, s.driver, id, "test -e "+path+" && echo there; echo x >"+path); got.Stdout != "" {
			t.Errorf("%s is not fresh: %q", name, got.Stdout)
		}
	}
	other := Create(t, s.driver, sandbox.Spec{}).ID
	if got := Shell(t, s.driver, other, `ls /workspace/mine /tmp/mine /home/agent/mine 2>/dev/null`); got.Stdout != "" {
		t.Errorf("another sandbox sees %q", got.Stdout)
	}
}

func (s suite) testOneProcess(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	ctx := Context(t)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		started int
	)
	for range 50 {
		wg.Go(func() {
			status, err := s.driver.Start(ctx, id, sandbox.Command{ID: "once", Argv: []string{"sh", "-c", "echo x >>/workspace/effects; sleep 0.2"}})
			if err != nil {
				t.Errorf("start: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if status.Started {
				started++
			}
		})
	}
	wg.Wait()
	Follow(t, s.driver, id, "once", 0)
	if started != 1 {
		t.Errorf("%d calls say that they started it", started)
	}
	if got := Shell(t, s.driver, id, "wc -l </workspace/effects"); strings.TrimSpace(got.Stdout) != "1" {
		t.Errorf("it ran %s times", got.Stdout)
	}
	status, err := s.driver.Start(ctx, id, sandbox.Command{ID: "once", Argv: []string{"false"}})
	if err != nil || status.Started || status.Phase != sandbox.CommandExited || status.ExitCode != 0 {
		t.Errorf("starting it again after its end: %+v, %v", status, err)
	}
}

// testBackgroundChild is cases.md B31: a child that holds the pipe does not keep
// the command from ending.
func (s suite) testBackgroundChild(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	for i, script := range []string{
		`sleep 3000 & echo hi`,
		`nohup sleep 3000 >/dev/null 2>&1 & echo hi`,
		`setsid sleep 3000 & echo hi`,
		`(sleep 3000 & ); echo hi`,
		`(trap '' TERM; exec sleep 3000) & echo hi`,
	} {
		command := fmt.Sprintf("b%d", i)
		begun := time.Now()
		got := Exec(t, s.driver, id, sandbox.Command{ID: command, Argv: []string{"sh", "-c", script}})
		t.Logf("%s: %v", script, time.Since(begun))
		if got.Stdout != "hi\n" || got.ExitCode != 0 {
			t.Errorf("%s: %+v", script, got)
		}
		if len(got.Children) == 0 {
			t.Errorf("%s: its child is not listed", script)
		}
		if err := s.driver.Signal(Context(t), id, command, 9); err != nil {
			t.Errorf("%s: signal: %v", script, err)
		}
	}
	Eventually(t, "the children are gone", func() bool {
		return strings.TrimSpace(Root(t, s.driver, id, `pgrep -cx sleep || true`).Stdout) == "0"
	})
	got := Exec(t, s.driver, id, sandbox.Command{ID: "late", Argv: []string{"sh", "-c", `(sleep 0.3; echo late) & echo soon`}})
	if got.Stdout != "soon\n" {
		t.Errorf("what a child writes later is not the command's end: %q", got.Stdout)
	}
	Eventually(t, "later output is in the journal", func() bool {
		return Follow(t, s.driver, id, "late", 0).Stdout == "soon\nlate\n"
	})
}

func (s suite) testSignal(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	ctx := Context(t)
	if _, err := s.driver.Start(ctx, id, sandbox.Command{ID: "c", Argv: []string{"sh", "-c", "trap 'echo term; exit 5' TERM; echo ready; while :; do sleep 0.01; done"}}); err != nil {
		t.Fatal(err)
	}
	stream, err := s.driver.Attach(ctx, id, "c", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	if err := s.driver.Signal(ctx, id, "c", 15); err != nil {
		t.Fatal(err)
	}
	got := Follow(t, s.driver, id, "c", 0)
	if got.ExitCode != 5 || !strings.HasSuffix(got.Stdout, "term\n") {
		t.Errorf("got %+v", got)
	}
	if err := s.driver.Signal(ctx, id, "c", 15); err != nil {
		t.Errorf("signal to a command that has ended: %v", err)
	}
}

// testTimeout is cases.md B32: a timeout ends the whole tree, whatever it ignores.
func (s suite) testTimeout(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	for i, script := range []string{
		`while :; do :; done`,
		`trap '' TERM INT; while :; do :; done`,
		`trap '' TERM; (trap '' TERM; setsid sleep 4000) & sleep 4000`,
		`kill -STOP $$`,
	} {
		begun := time.Now()
		got := Exec(t, s.driver, id, sandbox.Command{ID: fmt.Sprintf("t%d", i), Argv: []string{"sh", "-c", script}, Timeout: time.Second})
		t.Logf("%s: %v", script, time.Since(begun))
		if !got.TimedOut || got.Reason != task.LimitTime || got.Phase != sandbox.CommandExited {
			t.Errorf("%s: %+v", script, got.Status)
		}
	}
	Eventually(t, "the whole trees are gone", func() bool {
		return strings.TrimSpace(Root(t, s.driver, id, `pgrep -cx sleep || true`).Stdout) == "0"
	})
}

// testZombies is cases.md B33.
func (s suite) testZombies(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	const n = 300
	var wg sync.WaitGroup
	work := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range work {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				command := fmt.Sprintf("z%d", i)
				_, err := s.driver.Start(ctx, id, sandbox.Command{ID: command, Argv: []string{"sh", "-c", fmt.Sprintf("sleep 0.1 & exit %d", i%200)}})
				if err != nil {
					t.Errorf("start %d: %v", i, err)
				} else if got := Follow(t, s.driver, id, command, 0); got.ExitCode != i%200 {
					t.Errorf("command %d ended with %d", i, got.ExitCode)
				}
				cancel()
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	Eventually(t, "no zombie is left", func() bool {
		got := Root(t, s.driver, id, `cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | cut -c1`)
		return !slices.Contains(strings.Fields(got.Stdout), "Z")
	})
}

//go:build root

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The test program runs itself as a worker that dies: these name what it does.
const (
	childDir  = "COFFERDAM_TEST_CHILD"
	childStep = "COFFERDAM_TEST_STEP" // where it kills itself
	childID   = "COFFERDAM_TEST_ID"
)

// childMain is a worker that makes a sandbox, destroys it again and dies with
// SIGKILL at the named step.
func childMain(dir string) int {
	where, after, later := strings.Cut(os.Getenv(childStep), "+")
	die := func(step string) error {
		if step != where {
			return nil
		}
		if later { // While the step's work goes on.
			wait, err := time.ParseDuration(after)
			if err != nil {
				return err
			}
			time.AfterFunc(wait, func() { unix.Kill(os.Getpid(), unix.SIGKILL) })
			return nil
		}
		if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
			return err
		}
		select {}
	}
	d, err := New(Config{
		Dir: dir, Runsc: os.Getenv("COFFERDAM_TEST_RUNSC"), Guest: os.Getenv("COFFERDAM_TEST_GUEST"),
		Logger: slog.New(slog.DiscardHandler), Step: die, Network: &echoNetwork{taps: map[string]*os.File{}},
	})
	if err == nil {
		err = d.Adopt(context.Background())
	}
	id := os.Getenv(childID)
	if err == nil {
		_, err = d.Create(context.Background(), sandbox.Spec{ID: id, Network: true})
	}
	if err == nil && later {
		select {} // It was quick; being killed now is another state that must be right.
	}
	if err == nil {
		err = die("created")
	}
	if err == nil {
		err = d.Destroy(context.Background(), id)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, "the step", os.Getenv(childStep), "never came")
	return 2
}

func runChild(t *testing.T, dir, id, step string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childStep+"="+step, childID+"="+id,
		"COFFERDAM_TEST_RUNSC="+programs.runsc, "COFFERDAM_TEST_GUEST="+programs.guest)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the worker was not killed at %q: %v\n%s", step, err, out)
	}
}

// TestWorkerKilledAnywhere kills a worker at each state change of a sandbox's life
// and looks at what the next one makes of it.
func TestWorkerKilledAnywhere(t *testing.T) {
	for _, step := range []string{
		"folder", "namespace", "gateway", "bundle", "run", "run+10ms", "run+30ms", "run+60ms", "run+90ms", "run+130ms", "run+200ms",
		"started", "configured", "recorded", "created",
		"destroy.process", "destroy.gateway", "destroy.state", "destroy.cgroup", "destroy.folder", "destroyed",
	} {
		t.Run(step, func(t *testing.T) {
			dir, id := testDir(t), sandboxtest.ID()
			runChild(t, dir, id, step)
			cfg := testConfig(t, dir)
			cfg.Network = &echoNetwork{taps: map[string]*os.File{}}
			d := open(t, cfg)
			infos, err := d.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			whole := step == "recorded" || step == "created"
			if whole && (len(infos) != 1 || infos[0].State != sandbox.Live) {
				t.Errorf("after its making was complete: %+v", infos)
			}
			if strings.HasPrefix(step, "destroy") {
				// A sandbox whose end had begun may be seen dead; it must not be seen alive
				// without its kernel, and it can be destroyed.
				for _, info := range infos {
					if info.State == sandbox.Live && !(process{PID: info.PID}).exists() {
						t.Errorf("%+v has no kernel", info)
					}
				}
			} else if !whole && len(infos) != 0 && !strings.Contains(step, "+") {
				t.Errorf("half-made: %+v", infos)
			}
			// The name can be used, whatever happened to its first bearer.
			if err := d.Destroy(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			wantNothing(t, d)
			info := sandboxtest.Create(t, d, sandbox.Spec{ID: id})
			if got := sandboxtest.Shell(t, d, info.ID, "echo fine"); got.Stdout != "fine\n" {
				t.Errorf("the second of that name: %+v", got)
			}
			if err := d.Destroy(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			wantNothing(t, d)
		})
	}
}

// mustCreate makes a sandbox that another driver than d will destroy.
func mustCreate(t *testing.T, d *Driver) sandbox.Info {
	t.Helper()
	info, err := d.Create(t.Context(), sandbox.Spec{ID: sandboxtest.ID()})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func (p process) exists() bool {
	_, err := lookProcess(p.PID)
	return err == nil
}

// TestRuntimeKilledAnywhere kills the runtime's own program while it makes a
// sandbox: Create must fail and leave nothing.
func TestRuntimeKilledAnywhere(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	for i := range 6 {
		id := sandboxtest.ID()
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(5+15*i)*time.Millisecond)
		_, err := d.Create(ctx, sandbox.Spec{ID: id})
		cancel()
		t.Logf("given up after %d ms: %v", 5+15*i, err)
		if err := d.Destroy(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	wantNothing(t, d)
}

// TestFailedStepLeavesNothing makes each step of Create fail in turn.
func TestFailedStepLeavesNothing(t *testing.T) {
	cfg := testConfig(t, testDir(t))
	network := &echoNetwork{taps: map[string]*os.File{}}
	cfg.Network = network
	fail := ""
	cfg.Step = func(step string) error {
		if step == fail {
			return fmt.Errorf("write: %w", unix.ENOSPC)
		}
		return nil
	}
	d := open(t, cfg)
	for _, step := range []string{"folder", "namespace", "gateway", "bundle", "run", "started", "configured", "recorded"} {
		fail = step
		_, err := d.Create(t.Context(), sandbox.Spec{ID: sandboxtest.ID(), Network: true})
		sandboxtest.WantReason(t, step, err, task.InfraStorage)
		wantNothing(t, d)
	}
	if len(network.taps) != 0 {
		t.Errorf("%d devices are held", len(network.taps))
	}
	// A destroy that fails is finished by Reconcile.
	for _, step := range []string{"destroy.process", "destroy.gateway", "destroy.state", "destroy.cgroup", "destroy.folder"} {
		fail = ""
		id := sandboxtest.Create(t, d, sandbox.Spec{Network: true}).ID
		fail = step
		if err := d.Destroy(t.Context(), id); err == nil {
			t.Errorf("destroy with a failing %s succeeded", step)
		}
		left, err := d.Audit(t.Context())
		told := slices.ContainsFunc(left, func(l sandbox.Leftover) bool { return l.Kind == "record" && l.Sandbox == id })
		if err != nil || !told {
			t.Errorf("audit after a failed %s: %+v, %v", step, left, err)
		}
	}
	fail = ""
	if err := d.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, d)
}

// TestAdoptWhileCommandRuns replaces the worker while a command writes: every
// line is there, once.
func TestAdoptWhileCommandRuns(t *testing.T) {
	cfg := testConfig(t, testDir(t))
	first := open(t, cfg)
	info := mustCreate(t, first)
	const lines = 2_000_000 // 14 MB, far more than the channel holds.
	_, err := first.Start(t.Context(), info.ID, sandbox.Command{
		ID: "c", Argv: []string{"seq", fmt.Sprint(lines)},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := first
	for range 4 {
		stream, err := d.Attach(t.Context(), info.ID, "c", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Next(); err != nil {
			t.Fatal(err)
		}
		stream.Close()
		d.Close()
		d = open(t, cfg)
		infos, err := d.List(t.Context())
		if err != nil || len(infos) != 1 || infos[0].PID != info.PID || infos[0].State != sandbox.Live {
			t.Fatalf("adopted: %+v, %v", infos, err)
		}
	}
	got := sandboxtest.Follow(t, d, info.ID, "c", 0)
	if got.ExitCode != 0 || got.Phase != sandbox.CommandExited {
		t.Errorf("status: %+v", got.Status)
	}
	want := new(strings.Builder)
	for i := range lines {
		fmt.Fprintln(want, i+1)
	}
	if got.Stdout != want.String() {
		t.Errorf("%d bytes of output, want %d equal ones", len(got.Stdout), want.Len())
	}
	// The same command again is the one from before.
	status, err := d.Start(t.Context(), info.ID, sandbox.Command{ID: "c", Argv: []string{"false"}})
	if err != nil || status.Started || status.ExitCode != 0 {
		t.Errorf("started again: %+v, %v", status, err)
	}
	if err := d.Destroy(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, d)
}

// TestSecondWorkerIsRefused keeps two workers from one folder.
func TestSecondWorkerIsRefused(t *testing.T) {
	cfg := testConfig(t, testDir(t))
	open(t, cfg)
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "another worker") {
		t.Errorf("a second driver: %v", err)
	}
}

// TestKernelDies ends the sentry from outside.
func TestKernelDies(t *testing.T) {
	cfg := testConfig(t, testDir(t))
	d := open(t, cfg)
	info := mustCreate(t, d)
	if _, err := d.Start(t.Context(), info.ID, sandbox.Command{ID: "c", Argv: []string{"sh", "-c", "echo before; sleep 1000"}}); err != nil {
		t.Fatal(err)
	}
	stream, err := d.Attach(t.Context(), info.ID, "c", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if chunk, err := stream.Next(); err != nil || string(chunk.Data) != "before\n" {
		t.Fatalf("output: %q, %v", chunk.Data, err)
	}
	if err := unix.Kill(info.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if status := stream.Status(); status.Reason != task.InfraSandboxLost || status.Phase != sandbox.CommandExited {
		t.Errorf("the command: %+v", status)
	}
	_, err = d.Start(t.Context(), info.ID, sandbox.Command{ID: "d", Argv: []string{"true"}})
	sandboxtest.WantReason(t, "start", err, task.InfraSandboxLost)
	sandboxtest.WantReason(t, "put", d.Put(t.Context(), info.ID, "/workspace", strings.NewReader("")), task.InfraSandboxLost)

	// The next worker sees the same, and what was written can still be read.
	d.Close()
	d = open(t, cfg)
	infos, err := d.List(t.Context())
	if err != nil || len(infos) != 1 || infos[0].State != sandbox.Dead || infos[0].Reason != task.InfraSandboxLost {
		t.Fatalf("adopted: %+v, %v", infos, err)
	}
	if got := sandboxtest.Follow(t, d, info.ID, "c", 0); got.Stdout != "before\n" {
		t.Errorf("its output: %+v", got)
	}
	if err := d.Destroy(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, d)
}

// TestExpiredIsDestroyed needs nobody to ask.
func TestExpiredIsDestroyed(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	sandboxtest.Create(t, d, sandbox.Spec{Expires: time.Now().Add(-time.Second)})
	keep := sandboxtest.Create(t, d, sandbox.Spec{})
	if err := d.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	infos, err := d.List(t.Context())
	if err != nil || len(infos) != 1 || infos[0].ID != keep.ID {
		t.Errorf("left: %+v, %v", infos, err)
	}
}

// TestOrphansAreReported makes what no record explains.
func TestOrphansAreReported(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	id := sandboxtest.ID()
	group := filepath.Join(d.cgroups.dirs[0], d.cgroups.name(id))
	folder := d.folder(id)
	if err := errors.Join(os.Mkdir(group, 0o755), os.Mkdir(folder, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(group); os.Remove(folder) })
	left, err := d.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for kind, name := range map[string]string{"cgroup": group, "folder": folder} {
		if !slices.ContainsFunc(left, func(l sandbox.Leftover) bool { return l.Kind == kind && l.Name == name && l.Sandbox == id }) {
			t.Errorf("the %s %s is not in %+v", kind, name, left)
		}
	}
	if err := d.Reconcile(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(folder); err != nil {
		t.Errorf("what no record explains was removed: %v", err)
	}
}

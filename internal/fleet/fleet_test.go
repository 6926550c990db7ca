package fleet_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/worker/workertest"
)

func TestRunAnswersOutputAndEnd(t *testing.T) {
	c, _ := oneWorker(t, fleet.Options{})
	id := c.create(t, sandbox.Spec{})
	var out bytes.Buffer
	result, err := c.Run(t.Context(), id, sh("one", "echo hello; echo there >&2; exit 3"), 0, &out, func() {})
	if err != nil || out.String() != "hello\nthere\n" || result.ExitCode != 3 || result.Phase != sandbox.CommandExited {
		t.Fatalf("got %q, %+v, %v", out.String(), result, err)
	}
	// The same id again starts nothing and gives the rest.
	out.Reset()
	again, err := c.Run(t.Context(), id, sh("one", "echo other"), 6, &out, nil)
	if err != nil || out.String() != "there\n" || again.ExitCode != 3 || again.Started {
		t.Fatalf("got %q, %+v, %v", out.String(), again, err)
	}
	worker, info, err := c.Info(t.Context(), id)
	if err != nil || worker != "machine-1" || info.ID != id {
		t.Fatalf("info %s %+v %v", worker, info, err)
	}
	if all, lost := c.List(t.Context()); len(all) != 1 || all[0].ID != id || len(lost) != 0 {
		t.Fatalf("list %+v, lost %v", all, lost)
	}
	if err := c.Destroy(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := c.Destroy(t.Context(), id); err != nil {
		t.Fatalf("destroying twice: %v", err)
	}
	_, _, err = c.Info(t.Context(), id)
	wantReason(t, err, task.InputNotFound)
}

func TestKillEndsACommandAndRunSaysSo(t *testing.T) {
	c, _ := oneWorker(t, fleet.Options{})
	id := c.create(t, sandbox.Spec{})
	status, err := c.Start(t.Context(), id, sandbox.Command{ID: "long", Argv: []string{"sleep", "1000"}})
	if err != nil || !status.Started {
		t.Fatalf("%+v %v", status, err)
	}
	stream, err := c.Attach(t.Context(), id, "long", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	eventually(t, "the command's end", func() bool { // Its program may not run yet.
		if err := c.Kill(t.Context(), id, "long"); err != nil {
			t.Fatal(err)
		}
		s, err := c.Status(t.Context(), id, "long")
		return err != nil || s.Phase == sandbox.CommandExited
	})
	if got := readAll(t, stream); got != "" {
		t.Fatalf("output %q", got)
	}
	if s := stream.Status(); s.Signal != int(syscall.SIGKILL) {
		t.Fatalf("status %+v", s)
	}
	_, err = c.Attach(t.Context(), id, "nothing", 0)
	wantReason(t, err, task.InputNotFound)
}

// numbers is a command that writes numbered lines slowly enough for a worker to
// be killed several times meanwhile, and counts how often it was started.
func numbers(lines int) (sandbox.Command, string) {
	text := fmt.Sprintf(`echo x >>starts; i=0; while [ $i -lt %d ]; do i=$((i+1)); echo "line $i of the output"; [ $((i %% 500)) = 0 ] && sleep 0.05; done`, lines)
	var want strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&want, "line %d of the output\n", i)
	}
	return sh("numbers", text+"; true"), want.String()
}

// TestKilledWorkerIsADelay kills the worker's process again and again while a
// command writes: the caller sees every byte once and one start.
func TestKilledWorkerIsADelay(t *testing.T) {
	c, dir := newControl(t, fleet.Options{Grace: 20 * time.Second}), t.TempDir()
	victim := child(t, dir, c.url)
	c.connected(t, 1)
	id := c.create(t, sandbox.Spec{})
	cleanUp(t, dir, id)

	cmd, want := numbers(20_000)
	var mu sync.Mutex
	var out bytes.Buffer
	size := func() int { mu.Lock(); defer mu.Unlock(); return out.Len() }
	done := make(chan error, 1)
	go func() {
		result, err := c.Run(t.Context(), id, cmd, 0, writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return out.Write(b)
		}), nil)
		if err == nil && result.ExitCode != 0 {
			err = fmt.Errorf("result %+v", result)
		}
		done <- err
	}()
	boots := map[string]bool{}
	for range 5 {
		before := size()
		eventually(t, "more output", func() bool { return size() > before })
		boots[c.Workers()[0].Boot] = true
		if size() == len(want) {
			t.Fatal("the command ended before the worker was killed")
		}
		end(victim)
		victim = child(t, dir, c.url)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("the command did not end")
	}
	if out.String() != want {
		t.Fatalf("got %d bytes of output, want %d, or they differ", out.Len(), len(want))
	}
	starts, err := os.ReadFile(filepath.Join(dir, "sandboxes", id, "files", "starts"))
	if err != nil || string(starts) != "x\n" {
		t.Fatalf("starts %q, %v", starts, err)
	}
	if len(boots) < 4 {
		t.Fatalf("the worker had %d boot ids", len(boots))
	}
}

// cleanUp ends a sandbox's processes when the test is over and no worker may be
// there to do it.
func cleanUp(t *testing.T, dir, id string) {
	t.Cleanup(func() {
		if err := workertest.New(filepath.Join(dir, "sandboxes")).Destroy(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestEveryCallOutlivesARestart makes each repeatable request while no worker is
// there; it is answered by the one that comes.
func TestEveryCallOutlivesARestart(t *testing.T) {
	c, dir := newControl(t, fleet.Options{}), t.TempDir()
	stop := keep(t, newLink(dir, c.url, "machine-1"))
	c.connected(t, 1)
	id := c.create(t, sandbox.Spec{})
	other := newID()
	archive := tarOf(t, map[string]string{"a": "content"})
	calls := map[string]func() error{
		"create":  func() error { _, _, err := c.Create(t.Context(), sandbox.Spec{ID: other}); return err },
		"again":   func() error { _, _, err := c.Create(t.Context(), sandbox.Spec{ID: id}); return err },
		"grant":   func() error { return c.Grant(t.Context(), task.Grant{Sandbox: id}) },
		"start":   func() error { _, err := c.Start(t.Context(), id, sh("s", "true")); return err },
		"run":     func() error { _, err := c.Run(t.Context(), id, sh("r", "true"), 0, io.Discard, nil); return err },
		"put":     func() error { return c.Put(t.Context(), id, "/workspace", bytes.NewReader(archive)) },
		"egress":  func() error { _, err := c.Egress(t.Context(), id, 0); return err },
		"destroy": func() error { return c.Destroy(t.Context(), newID()) },
	}
	stop()
	c.connected(t, 0)
	errs := make(chan error)
	for name, call := range calls {
		go func() {
			if err := call(); err != nil {
				errs <- fmt.Errorf("%s: %w", name, err)
				return
			}
			errs <- nil
		}()
	}
	keep(t, newLink(dir, c.url, "machine-1"))
	for range calls {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func tarOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestVanishedWorkerIsLost stops a worker's process, so that its connection stays and
// says nothing: after the grace requests fail with a reason, and when it
// goes on they work again.
func TestVanishedWorkerIsLost(t *testing.T) {
	c, dir := newControl(t, fleet.Options{Grace: 300 * time.Millisecond}), t.TempDir()
	victim := child(t, dir, c.url)
	c.connected(t, 1)
	id := c.create(t, sandbox.Spec{})
	if _, err := c.Start(t.Context(), id, sh("c", "sleep 1000")); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, dir, id)
	if err := victim.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err := c.Run(t.Context(), id, sh("c", ""), 0, io.Discard, nil)
	wantReason(t, err, task.InfraWorkerLost)
	_, err = c.Start(t.Context(), id, sh("d", "true"))
	wantReason(t, err, task.InfraWorkerLost)
	_, _, err = c.Create(t.Context(), sandbox.Spec{ID: newID()})
	wantReason(t, err, task.InfraWorkerLost)
	if err := c.Destroy(t.Context(), id); err == nil {
		t.Fatal("destroyed a sandbox on a worker that does not answer")
	}
	if reports := c.Doctor(t.Context()); len(reports) != 1 || reports[0].Err == nil || reports[0].Worker.State != fleet.Lost {
		t.Fatalf("doctor %+v", reports)
	}
	if all, lost := c.List(t.Context()); len(all) != 0 || len(lost) != 1 {
		t.Fatalf("list %v, lost %v", all, lost)
	}
	if err := victim.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.connected(t, 1)
	if s, err := c.Status(t.Context(), id, "c"); err != nil || s.Phase != sandbox.CommandRunning {
		t.Fatalf("%+v %v", s, err)
	}
}

// TestCallersPatience sees that a caller's own end is not taken for the worker's.
func TestCallersPatience(t *testing.T) {
	c := newControl(t, fleet.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := c.Create(ctx, sandbox.Spec{ID: newID()})
	wantReason(t, err, task.Cancelled)
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, _, err = c.Create(ctx, sandbox.Spec{ID: newID()})
	wantReason(t, err, task.InfraWorkerLost)

	_, _, err = c.Create(t.Context(), sandbox.Spec{ID: "../x"})
	wantReason(t, err, task.InputInvalid)
	wantReason(t, c.Destroy(t.Context(), "x"), task.InputInvalid)
}

// TestManyAtOnce makes 50 sandboxes at once on two workers, and one by fifty callers.
func TestManyAtOnce(t *testing.T) {
	c, dirs := newControl(t, fleet.Options{}), []string{t.TempDir(), t.TempDir()}
	for i, dir := range dirs {
		keep(t, newLink(dir, c.url, fmt.Sprintf("machine-%d", i)))
	}
	c.connected(t, 2)
	same, perWorker, counts := newID(), make(chan string, 100), map[string]int{}
	var wg sync.WaitGroup
	for range 50 {
		for _, id := range []string{newID(), same} {
			wg.Go(func() {
				worker, info, err := c.Create(t.Context(), sandbox.Spec{ID: id})
				if err != nil || info.ID != id {
					t.Error(info, err)
				}
				if id == same {
					worker = "same " + worker
				}
				perWorker <- worker
			})
		}
	}
	wg.Wait()
	close(perWorker)
	for worker := range perWorker {
		counts[worker]++
	}
	if len(counts) != 3 {
		t.Fatalf("placed %v: two workers should have some, and one the shared one", counts)
	}
	if all, _ := c.List(t.Context()); len(all) != 51 {
		t.Fatalf("%d sandboxes", len(all))
	}
}

// memory is a Placement.
type memory struct {
	mu    sync.Mutex
	where map[string]string
}

func (m *memory) SandboxWorker(_ context.Context, id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.where[id], nil
}

func (m *memory) SetSandboxWorker(_ context.Context, id, worker string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.where[id] = worker
	return nil
}

func (m *memory) ForgetSandboxWorker(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.where, id)
	return nil
}

// TestNewControlPlaneWaitsForTheWorkerThatHasIt replaces the control plane; the
// worker that has the sandbox is the later of two to come back. Without a memory
// the sandbox would be called lost as soon as the first has said what it has.
func TestNewControlPlaneWaitsForTheWorkerThatHasIt(t *testing.T) {
	placement := &memory{where: map[string]string{}}
	dirs := []string{t.TempDir(), t.TempDir()}
	first := newControl(t, fleet.Options{Placement: placement})
	stop := keep(t, newLink(dirs[1], first.url, "machine-2"))
	id := first.create(t, sandbox.Spec{})
	if got, _ := placement.SandboxWorker(t.Context(), id); got != "machine-2" {
		t.Fatalf("placed on %q", got)
	}
	first.stop()
	stop()

	second := newControl(t, fleet.Options{Placement: placement})
	keep(t, newLink(dirs[0], second.url, "machine-1"))
	if _, _, err := second.Info(t.Context(), newID()); err == nil { // machine-1 is there and was asked
		t.Fatal("an unknown sandbox is found")
	}
	done := make(chan error, 1)
	go func() {
		worker, _, err := second.Info(t.Context(), id)
		if err == nil && worker != "machine-2" {
			err = fmt.Errorf("found on %q", worker)
		}
		done <- err
	}()
	keep(t, newLink(dirs[1], second.url, "machine-2"))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := second.Destroy(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got, _ := placement.SandboxWorker(t.Context(), id); got != "" {
		t.Errorf("a destroyed sandbox is remembered on %q", got)
	}
}

// TestNewControlPlaneFindsWhatRuns replaces the control plane while a command
// runs; the new one goes on where the old one was.
func TestNewControlPlaneFindsWhatRuns(t *testing.T) {
	for name, placement := range map[string]fleet.Placement{"asking": nil, "remembering": &memory{where: map[string]string{}}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := newControl(t, fleet.Options{Placement: placement})
			stop := keep(t, newLink(dir, first.url, "machine-1"))
			id := first.create(t, sandbox.Spec{})
			if _, err := first.Start(t.Context(), id, sh("c", "echo one; while ! [ -e go ]; do sleep 0.02; done; echo two")); err != nil {
				t.Fatal(err)
			}
			stream, err := first.Attach(t.Context(), id, "c", 0)
			if err != nil {
				t.Fatal(err)
			}
			if chunk, err := stream.Next(); err != nil || string(chunk.Data) != "one\n" {
				t.Fatalf("%q %v", chunk.Data, err)
			}
			first.stop()
			stop()

			second := newControl(t, fleet.Options{Placement: placement})
			keep(t, newLink(dir, second.url, "machine-1"))
			if err := second.Put(t.Context(), id, "/", bytes.NewReader(tarOf(t, map[string]string{"go": ""}))); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			result, err := second.Run(t.Context(), id, sh("c", "never"), 4, &out, nil)
			if err != nil || out.String() != "two\n" || result.Started {
				t.Fatalf("%q %+v %v", out.String(), result, err)
			}
			if err := second.Destroy(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPlacedSandboxThatIsGoneIsLost(t *testing.T) {
	c, dir := oneWorker(t, fleet.Options{})
	id := c.create(t, sandbox.Spec{})
	if err := os.RemoveAll(filepath.Join(dir, "sandboxes", id)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Run(t.Context(), id, sh("c", "true"), 0, io.Discard, nil)
	wantReason(t, err, task.InfraSandboxLost)
	_, err = c.Run(t.Context(), newID(), sh("c", "true"), 0, io.Discard, nil)
	wantReason(t, err, task.InputNotFound)
}

func TestEpochsAreThoseOfStartAndEnd(t *testing.T) {
	c, dir := newControl(t, fleet.Options{}), t.TempDir()
	epoch := func(s string) {
		if err := os.WriteFile(filepath.Join(dir, "epoch"), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	epoch("first")
	stop := keep(t, newLink(dir, c.url, "machine-1"))
	id := c.create(t, sandbox.Spec{Network: true})
	if _, err := c.Start(t.Context(), id, sh("c", "while ! [ -e go ]; do sleep 0.02; done; exit 1")); err != nil {
		t.Fatal(err)
	}
	// Gateway and worker are both replaced; the epoch of the start is kept.
	epoch("second")
	stop()
	keep(t, newLink(dir, c.url, "machine-1"))
	if err := c.Put(t.Context(), id, "/", bytes.NewReader(tarOf(t, map[string]string{"go": ""}))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		result, err := c.Run(t.Context(), id, sh("c", ""), 0, io.Discard, nil)
		if err != nil || result.EpochBefore != "first" || result.EpochAfter != "second" {
			t.Fatalf("%+v %v", result, err)
		}
		epoch("third") // After the end: it must not count.
	}
	plain := c.create(t, sandbox.Spec{})
	result, err := c.Run(t.Context(), plain, sh("c", ""), 0, io.Discard, nil)
	if err != nil || result.EpochBefore != "" || result.EpochAfter != "" {
		t.Fatalf("without network: %+v %v", result, err)
	}
	if err := c.Destroy(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "epochs")); err != nil || len(left) != 0 {
		t.Fatalf("left %v %v", left, err)
	}
}

func TestEgressReadsEveryPage(t *testing.T) {
	c, _ := oneWorker(t, fleet.Options{})
	id := c.create(t, sandbox.Spec{Network: true})
	records, err := c.Egress(t.Context(), id, 45)
	if err != nil || len(records) != 12_300 || records[0].Seq != 46 {
		t.Fatalf("%d records, %v", len(records), err)
	}
}

//go:build root

package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps"
	"github.com/cofferdam/cofferdam/internal/task"
)

// workerDir, when set, makes this test program the control plane of that
// folder until it is killed.
const workerDir = "COFFERDAM_TEST_CONTROL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(workerDir); dir != "" {
		control(dir)
		return
	}
	os.Exit(m.Run())
}

// control is a control plane whose record is a folder: open/ and cancel/ hold
// a file a task, calls is what was asked of the steps, and a task goes on from
// its agent stage when its file is in go/.
func control(dir string) {
	e, err := Connect(context.Background(), Options{
		AddressFile: filepath.Join(dir, "engine", "boot.json"), TokenFile: filepath.Join(dir, "engine", "token"),
		KeyFile: filepath.Join(dir, "key"), Steps: folder(dir), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Open: func(context.Context) ([]stage.Open, error) { return folder(dir).open() },
	})
	if err != nil {
		panic(err)
	}
	if err := e.Ready(context.Background()); err != nil {
		panic(err)
	}
	select {}
}

type folder string

func (f folder) has(parts ...string) bool {
	_, err := os.Stat(filepath.Join(append([]string{string(f)}, parts...)...))
	return err == nil
}

func (f folder) open() ([]stage.Open, error) {
	entries, err := os.ReadDir(filepath.Join(string(f), "open"))
	var open []stage.Open
	for _, e := range entries {
		open = append(open, stage.Open{ID: e.Name(), CancelRequested: f.has("cancel", e.Name())})
	}
	return open, err
}

func (f folder) note(format string, args ...any) {
	file, err := os.OpenFile(filepath.Join(string(f), "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, format+"\n", args...)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		panic(err)
	}
}

func (f folder) count(prefix string) int {
	b, _ := os.ReadFile(filepath.Join(string(f), "calls"))
	return strings.Count("\n"+string(b), "\n"+prefix)
}

// Do is quick for every stage but the agent's, which waits to be let go.
func (f folder) Do(ctx context.Context, name task.StageName, in stage.Input) (stage.Outcome, error) {
	f.note("%s %s %d.%d", in.Task, name, in.Attempt, in.Round)
	switch name {
	case task.Admit:
		// As our record would: every admission is another attempt.
		return stage.Outcome{State: task.StageSucceeded, Attempt: f.count(in.Task + " admit"), Time: time.Hour}, nil
	case task.Agent:
		for !f.has("go", in.Task) {
			select {
			case <-ctx.Done():
				if errors.Is(context.Cause(ctx), steps.ErrStopping) {
					return stage.Outcome{}, steps.ErrStopping
				}
				return stage.Outcome{State: task.StageCancelled, Reason: task.Cancelled}, nil
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return stage.Outcome{State: task.StageSucceeded}, nil
}

func (f folder) BeginClose(_ context.Context, in stage.Input) error {
	f.note("%s begin", in.Task)
	return nil
}

func (f folder) Sweep(_ context.Context, taskID string) error { f.note("%s sweep", taskID); return nil }

func (f folder) Finish(_ context.Context, in stage.Input, e stage.Ending, _ bool) error {
	f.note("%s finish %s", in.Task, e.State)
	return os.Remove(filepath.Join(string(f), "open", in.Task))
}

// stand is an engine and a control plane as processes of their own.
type stand struct {
	folder
	t               *testing.T
	engine, control *exec.Cmd
}

func newStand(t *testing.T) *stand {
	s := &stand{folder: folder(t.TempDir()), t: t}
	for _, d := range []string{"open", "cancel", "go"} {
		if err := os.Mkdir(filepath.Join(string(s.folder), d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.startEngine()
	s.startControl()
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(string(s.folder), "calls"))
			t.Logf("calls:\n%s", b)
		}
		s.kill(s.control)
		s.kill(s.engine)
	})
	return s
}

func (s *stand) process(name string, c *exec.Cmd) *exec.Cmd {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(string(s.folder), name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	c.Stderr = log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *stand) startEngine() {
	s.t.Helper()
	s.engine = s.process("engine", exec.Command(engineProgram(s.t), "--data", string(s.folder)))
	s.wait("the engine serves", func() bool {
		b, _ := os.ReadFile(filepath.Join(string(s.folder), "engine", "boot.json"))
		var boot struct{ PID int }
		return json.Unmarshal(b, &boot) == nil && boot.PID == s.engine.Process.Pid
	})
}

func (s *stand) startControl() {
	s.t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), workerDir+"="+string(s.folder))
	s.control = s.process("control", c)
}

func (s *stand) kill(c *exec.Cmd) {
	_ = c.Process.Signal(syscall.SIGKILL) // it may be gone
	_ = c.Wait()                          // it was killed: always an error
}

func (s *stand) wait(what string, done func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			for _, name := range []string{"engine", "control"} {
				b, _ := os.ReadFile(filepath.Join(string(s.folder), name+".log"))
				s.t.Logf("%s:\n%s", name, b[max(0, len(b)-4000):])
			}
			s.t.Fatalf("waited in vain: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (s *stand) touch(dir, name string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(string(s.folder), dir, name), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) submit(id string) {
	s.t.Helper()
	s.touch("open", id)
	s.wait("the agent runs", func() bool { return s.count(id+" agent") > 0 })
}

// engineProgram is the built engine: of $COFFERDAM_BIN, else built here.
func engineProgram(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("COFFERDAM_BIN"); dir != "" {
		return filepath.Join(dir, "cofferdam-engine")
	}
	program := filepath.Join(t.TempDir(), "cofferdam-engine")
	c := exec.Command("go", "build", "-o", program, "./cmd/cofferdam-engine")
	c.Dir = filepath.Join("..", "..", "..", "engine")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build the engine: %v\n%s", err, out)
	}
	return program
}

const testTask = "t-aaaaaaaaaaaaaaaa"

// Engine and control plane are killed while the agent runs: the agent's stage
// is taken up again and nothing that was done before is repeated.
func TestKilledInFlight(t *testing.T) {
	s := newStand(t)
	s.submit(testTask)
	s.kill(s.engine)
	s.startEngine()
	s.kill(s.control)
	before := s.count(testTask + " agent")
	s.startControl()
	s.wait("the agent's stage is taken up", func() bool { return s.count(testTask+" agent") > before })
	s.kill(s.control)
	s.kill(s.engine)
	s.startEngine()
	s.startControl()
	s.touch("go", testTask)
	s.wait("the task ends", func() bool { return s.count(testTask+" finish succeeded") > 0 })
	for _, name := range []string{"admit", "provision", "checkout", "setup", "export", "verify", "act"} {
		if n := s.count(testTask + " " + name); n != 1 {
			t.Errorf("%s ran %d times", name, n)
		}
	}
}

func TestCancelInFlight(t *testing.T) {
	s := newStand(t)
	s.submit(testTask)
	s.touch("cancel", testTask)
	s.wait("the task is cancelled", func() bool { return s.count(testTask+" finish cancelled") > 0 })
	if s.count(testTask+" export") > 0 || s.count(testTask+" sweep") == 0 {
		t.Error("a cancelled task went on, or was not cleaned up")
	}
}

// The engine's file is gone: the open task starts again with a new attempt.
func TestEngineFileLost(t *testing.T) {
	s := newStand(t)
	s.submit(testTask)
	s.kill(s.engine)
	for _, name := range []string{"engine.db", "engine.db-wal", "engine.db-shm"} {
		if err := os.Remove(filepath.Join(string(s.folder), "engine", name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	s.startEngine()
	s.wait("another attempt", func() bool { return s.count(testTask+" agent 2.1") > 0 })
	s.touch("go", testTask)
	s.wait("the task ends", func() bool { return s.count(testTask+" finish succeeded") > 0 })
}

// The engine comes back at another port, its old one being taken.
func TestEngineMoves(t *testing.T) {
	s := newStand(t)
	s.submit(testTask)
	s.kill(s.engine)
	if err := os.WriteFile(filepath.Join(string(s.folder), "engine", "port"), []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.startEngine()
	s.touch("go", testTask)
	s.wait("the task ends", func() bool { return s.count(testTask+" finish succeeded") > 0 })
	if n := s.count(testTask + " provision"); n != 1 {
		t.Errorf("provision ran %d times", n)
	}
}

package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// console is the driver's, which must have one.
func (s suite) console(t *testing.T) sandbox.Console {
	t.Helper()
	c, ok := s.driver.(sandbox.Console)
	if !ok {
		t.Fatal("the driver has no console")
	}
	return c
}

// send gives data from offset on, in pieces, until all of it was taken.
func send(t *testing.T, c sandbox.Console, id, command string, data []byte, offset int64, closing bool) {
	t.Helper()
	for {
		piece := data[offset:min(int64(len(data)), offset+sandbox.MaxInput)]
		last := offset+int64(len(piece)) == int64(len(data))
		taken, err := c.Input(Context(t), id, command, sandbox.Input{Offset: offset, Data: piece, Close: closing && last})
		if err != nil {
			t.Fatalf("input at %d: %v", offset, err)
		}
		if offset = taken.Offset; offset == int64(len(data)) {
			return
		}
		if !taken.Open {
			t.Fatalf("input ended at %d of %d", offset, len(data))
		}
	}
}

// wait reads a command's output until it holds want.
func (s suite) wait(t *testing.T, id, command, want string) string {
	t.Helper()
	stream, err := s.driver.Attach(Context(t), id, command, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var all strings.Builder
	for !strings.Contains(all.String(), want) {
		chunk, err := stream.Next()
		if err != nil {
			t.Fatalf("%q never came, but %q: %v; %+v", want, all.String(), err, stream.Status())
		}
		all.Write(chunk.Data)
	}
	return all.String()
}

func (s suite) start(t *testing.T, id string, cmd sandbox.Command) {
	t.Helper()
	if _, err := s.driver.Start(Context(t), id, cmd); err != nil {
		t.Fatalf("start %s: %v", cmd.ID, err)
	}
}

func (s suite) testInput(t *testing.T) {
	c, id := s.console(t), Create(t, s.driver, sandbox.Spec{}).ID
	data := bytes.Repeat([]byte("0123456789abcdef\x00\xff\n"), 200_000)
	s.start(t, id, sandbox.Command{ID: "sum", Argv: []string{"sha256sum"}, Stdin: true})
	send(t, c, id, "sum", data[:1_500_000], 0, false)
	send(t, c, id, "sum", data, 1_000_000, true) // A part of it again.
	got := Follow(t, s.driver, id, "sum", 0)
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256(data)); got.Stdout != want || got.Input != int64(len(data)) {
		t.Errorf("%q, want %q; %+v", got.Stdout, want, got.Status)
	}
	if taken, err := c.Input(Context(t), id, "sum", sandbox.Input{Offset: int64(len(data)), Data: []byte("x")}); err != nil || taken.Open {
		t.Errorf("after its end: %+v, %v", taken, err)
	}

	// A program that doesn't read holds its caller up, and nothing grows.
	s.start(t, id, sandbox.Command{ID: "idle", Argv: []string{"sleep", "1000"}, Stdin: true})
	ctx, cancel := context.WithTimeout(Context(t), time.Second)
	defer cancel()
	taken, err := c.Input(ctx, id, "idle", sandbox.Input{Data: data[:sandbox.MaxInput]})
	if err != nil || !taken.Open || taken.Offset == 0 || taken.Offset == sandbox.MaxInput {
		t.Errorf("without a reader: %+v, %v", taken, err)
	}
	_, err = c.Input(Context(t), id, "idle", sandbox.Input{Offset: taken.Offset + 1, Data: []byte("x")})
	WantReason(t, "a gap", err, task.InputInvalid)
	if err := s.driver.Signal(Context(t), id, "idle", 9); err != nil {
		t.Error(err)
	}

	// Without one the input is empty; an idle one closes itself.
	if got := Exec(t, s.driver, id, sandbox.Command{Argv: []string{"cat"}}); got.ExitCode != 0 || got.Stdout != "" {
		t.Errorf("no input: %+v", got)
	}
	if got := Exec(t, s.driver, id, sandbox.Command{Argv: []string{"cat"}, Stdin: true, StdinIdle: 50 * time.Millisecond}); got.ExitCode != 0 {
		t.Errorf("idle input: %+v", got)
	}
	_, err = c.Input(Context(t), id, "absent", sandbox.Input{Data: []byte("x")})
	WantReason(t, "input of no command", err, task.InputNotFound)
}

// testTerminal is cases.md B35.
func (s suite) testTerminal(t *testing.T) {
	c, id := s.console(t), Create(t, s.driver, sandbox.Spec{}).ID
	s.start(t, id, sandbox.Command{ID: "tty", Stdin: true, Terminal: &sandbox.Size{Rows: 40, Cols: 120}, Argv: []string{
		"sh", "-c",
		`stty size; stat -c %U "$(tty)"; trap 'echo winch $(stty size)' WINCH; echo ready; while :; do sleep 0.05; done`,
	}})
	if got := s.wait(t, id, "tty", "ready"); !strings.HasPrefix(got, "40 120\r\nagent\r\n") {
		t.Errorf("at first: %q", got)
	}
	for _, size := range []sandbox.Size{{Rows: 20, Cols: 60}, {Rows: 200, Cols: 500}} {
		if err := c.Resize(Context(t), id, "tty", size); err != nil {
			t.Fatal(err)
		}
		s.wait(t, id, "tty", fmt.Sprintf("winch %d %d", size.Rows, size.Cols))
	}
	if err := c.Resize(Context(t), id, "tty", sandbox.Size{Rows: 200, Cols: 500}); err != nil {
		t.Fatal(err)
	}
	s.wait(t, id, "tty", "winch 200 500\r\nwinch 200 500") // Told again.
	WantReason(t, "no size", c.Resize(Context(t), id, "tty", sandbox.Size{}), task.InputInvalid)
	if err := s.driver.Signal(Context(t), id, "tty", 9); err != nil {
		t.Fatal(err)
	}
	if got := Follow(t, s.driver, id, "tty", 0); got.Signal != 9 || !got.Terminal {
		t.Errorf("its end: %+v", got.Status)
	}
	Shell(t, s.driver, id, "true")
	s.start(t, id, sandbox.Command{ID: "plain", Argv: []string{"sleep", "1000"}})
	WantReason(t, "no terminal", c.Resize(Context(t), id, "plain", sandbox.Size{Rows: 2, Cols: 2}), task.InputInvalid)
}

// testJobs types at a shell.
func (s suite) testJobs(t *testing.T) {
	c, id := s.console(t), Create(t, s.driver, sandbox.Spec{}).ID
	s.start(t, id, sandbox.Command{
		ID: "shell", Argv: []string{"bash", "--norc", "-i"}, Env: []string{"PS1=$ "}, Stdin: true, Terminal: &sandbox.Size{Rows: 24, Cols: 80},
	})
	typed := ""
	enter := func(keys string) {
		typed += keys
		send(t, c, id, "shell", []byte(typed), int64(len(typed)-len(keys)), false)
	}
	// A child takes the terminal before it becomes its program: keys typed earlier are the shell's.
	running := func(job string) {
		t.Helper()
		Eventually(t, fmt.Sprintf("job %q", job), func() bool {
			list, err := c.Inspect(Context(t), id, "shell")
			if err != nil || len(list) != 1 {
				return false
			}
			left := list[0].Processes
			if job == "" {
				return len(left) == 1
			}
			return slices.ContainsFunc(left, func(p sandbox.Process) bool { return p.Command == job })
		})
	}
	s.wait(t, id, "shell", "$ ")
	enter("sleep 300\n")
	running("sleep 300")
	enter("\x03")
	running("")
	enter("echo code $?\n")
	s.wait(t, id, "shell", "code 130")
	enter("sleep 301\n")
	running("sleep 301")
	enter("\x1a")
	s.wait(t, id, "shell", "Stopped")
	enter("kill %1; wait; echo do''ne\n")
	s.wait(t, id, "shell", "done")
	enter("exit 7\n")
	if got := Follow(t, s.driver, id, "shell", 0); got.ExitCode != 7 || strings.Contains(got.Stdout, "no job control") {
		t.Errorf("its end: %+v", got)
	}
}

// testProcesses lists what lives of a command and ends parts of it.
func (s suite) testProcesses(t *testing.T) {
	c, id := s.console(t), Create(t, s.driver, sandbox.Spec{}).ID
	Exec(t, s.driver, id, sandbox.Command{ID: "tree", Argv: []string{"sh", "-c", "sleep 3001 & setsid sleep 3002 & sleep 3003 &"}})
	s.start(t, id, sandbox.Command{ID: "other", Argv: []string{"sleep", "4000"}})
	lives := func() map[string]int {
		list, err := c.Inspect(Context(t), id, "tree")
		if err != nil || len(list) != 1 || len(list[0].Children) != len(list[0].Processes) {
			t.Fatalf("%+v, %v", list, err)
		}
		out := map[string]int{}
		for _, p := range list[0].Processes {
			out[p.Command] = p.PID
		}
		return out
	}
	Eventually(t, "three children", func() bool {
		got := lives()
		return len(got) == 3 && got["sleep 3001"] > 0 && got["sleep 3002"] > 0 && got["sleep 3003"] > 0
	})
	if err := c.SignalPart(Context(t), id, "tree", sandbox.Signal{Number: 15, PID: lives()["sleep 3003"]}); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "one is gone", func() bool { return len(lives()) == 2 })
	if err := c.SignalPart(Context(t), id, "tree", sandbox.Signal{Number: 15, Group: true}); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "its group is gone", func() bool { got := lives(); return len(got) == 1 && got["sleep 3002"] > 0 })
	all, err := c.Inspect(Context(t), id, "")
	if err != nil || len(all) != 2 || len(all[0].Processes) != 1 || all[0].ID != "other" || len(all[0].Children) != 0 || all[0].Phase != sandbox.CommandRunning {
		t.Errorf("all: %+v, %v", all, err)
	}
	WantReason(t, "another's process", c.SignalPart(Context(t), id, "tree", sandbox.Signal{Number: 9, PID: all[0].PID}), task.InputNotFound)
	WantReason(t, "the first process", c.SignalPart(Context(t), id, "tree", sandbox.Signal{Number: 9, PID: 1}), task.InputNotFound)
	if err := s.driver.Signal(Context(t), id, "tree", 9); err != nil || len(lives()) != 0 {
		t.Errorf("the rest: %v, %v", err, lives())
	}
}

// testEnds tells the ways apart in which a command can end.
func (s suite) testEnds(t *testing.T) {
	id := Create(t, s.driver, sandbox.Spec{}).ID
	for _, code := range []int{0, 1, 13, 124, 126, 127, 130, 137, 143, 255} {
		if got := Shell(t, s.driver, id, fmt.Sprintf("exit %d", code)); got.ExitCode != code || got.Signal != 0 || got.Reason != "" || got.TimedOut {
			t.Errorf("exit %d: %+v", code, got.Status)
		}
	}
	for _, signal := range []int{1, 6, 9, 11, 15} {
		if got := Shell(t, s.driver, id, fmt.Sprintf("kill -%d $$", signal)); got.Signal != signal || got.ExitCode != -1 || got.Reason != "" || got.TimedOut {
			t.Errorf("signal %d: %+v", signal, got.Status)
		}
	}
}

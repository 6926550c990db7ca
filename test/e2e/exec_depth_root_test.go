//go:build root

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// A stream of standard input goes on over three kills of the worker and one of
// the control plane, and each byte of it arrives once.
func TestInputOutlivesTheWorker(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	const size = 64 << 20
	if _, err := e.Client.Exec(ctx, box.ID, api.ExecRequest{ID: "sum", Argv: []string{"sha256sum"}, Stdin: true}); err != nil {
		t.Fatal(err)
	}
	want, parts := sha256.New(), make(chan struct{}, 8)
	source := &slow{n: size, hash: want, parts: parts, every: size / 5}
	done := make(chan error, 1)
	go func() {
		n, err := e.Client.Feed(ctx, box.ID, "sum", 0, source)
		if err == nil && n != size {
			err = fmt.Errorf("%d bytes were taken", n)
		}
		done <- err
	}()
	for _, daemon := range []string{"worker", "cofferdamd", "worker", "worker"} {
		select {
		case <-parts:
		case err := <-done:
			t.Fatalf("it ended early: %v", err)
		}
		e.Reborn(daemon, e.Kill(daemon))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	st, err := e.Client.ExecStream(ctx, box.ID, "sum", 0, func(f api.Frame) error { out.Write(f.Data); return nil })
	if err != nil || st.ExitCode != 0 || st.Input != size || out.String() != fmt.Sprintf("%x  -\n", want.Sum(nil)) {
		t.Errorf("%q, want %x; %+v, %v", out.String(), want.Sum(nil), st, err)
	}
}

// slow gives n bytes and tells of each part of them.
type slow struct {
	n, given, every int
	hash            io.Writer
	parts           chan<- struct{}
}

func (s *slow) Read(p []byte) (int, error) {
	if s.given == s.n {
		return 0, io.EOF
	}
	p = p[:min(len(p), s.n-s.given)]
	for i := range p {
		p[i] = byte((s.given + i) * 7919 >> 5)
	}
	_, _ = s.hash.Write(p)
	if s.given/s.every != (s.given+len(p))/s.every {
		s.parts <- struct{}{}
	}
	s.given += len(p)
	return len(p), nil
}

// A client that dies leaves the command with its input open, and another goes on
// from what was taken; or closed, where that was asked for.
func TestInputOutlivesItsClient(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	first := e.Command("sandbox", "exec", "--id", "cat", box.ID, "--", "cat")
	in, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "half of "); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, patience, "the first half is taken", func() bool {
		st, err := e.Client.Command(ctx, box.ID, "cat")
		return err == nil && st.Input == 8
	})
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if st, err := e.Client.Command(ctx, box.ID, "cat"); err != nil || st.Phase != api.CommandRunning || !st.InputOpen {
		t.Fatalf("after its client: %+v, %v", st, err)
	}
	second := e.Command("sandbox", "exec", "--id", "cat", box.ID, "--", "cat")
	second.Stdin = strings.NewReader("half of a sentence\n")
	if out, err := second.Output(); err != nil || string(out) != "half of a sentence\n" {
		t.Errorf("the second: %q, %v", out, err)
	}
	third := e.Command("sandbox", "exec", "--stdin-close-after", "1s", "--id", "idle", box.ID, "--", "cat")
	if in, err = third.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if out, err := third.Output(); err != nil || len(out) != 0 {
		t.Errorf("closed by itself: %q, %v", out, err)
	}
}

// A terminal lives on while the worker is killed: what is typed after that reaches
// the same shell, and the size is the one of who attaches.
func TestTerminalOutlivesTheWorker(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	req := api.ExecRequest{ID: "shell", Argv: []string{"bash", "--norc", "-i"}, Env: map[string]string{"PS1": "$ "}, Stdin: true, Terminal: &api.TerminalSize{Rows: 40, Cols: 120}}
	if _, err := e.Client.Exec(ctx, box.ID, req); err != nil {
		t.Fatal(err)
	}
	offset := int64(0)
	enter := func(keys string) {
		t.Helper()
		res, err := e.Client.WriteInput(ctx, box.ID, "shell", offset, []byte(keys), false)
		if offset += int64(len(keys)); err != nil || res.Taken != offset {
			t.Fatalf("%q: %+v, %v", keys, res, err)
		}
	}
	enough := errors.New("enough")
	shows := func(want string) {
		t.Helper()
		var out strings.Builder
		_, err := e.Client.ExecStream(ctx, box.ID, "shell", 0, func(f api.Frame) error {
			out.Write(f.Data)
			if strings.Contains(out.String(), want) {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			t.Fatalf("%q never came, but %q: %v", want, out.String(), err)
		}
	}
	enter("mine=kept; stty size\n")
	shows("40 120")
	e.Reborn("worker", e.Kill("worker"))
	if err := e.Client.Resize(ctx, box.ID, "shell", api.TerminalSize{Rows: 20, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	enter("stty size; echo still $mine\n")
	shows("20 60\r\nstill kept")
	enter("exit 9\n")
	st, err := e.Client.ExecStream(ctx, box.ID, "shell", 0, func(api.Frame) error { return nil })
	if err != nil || st.ExitCode != 9 || !st.Terminal {
		t.Errorf("%+v, %v", st, err)
	}
}

// cases.md B31 and B32 by the CLI's own words: what lives on is listed and killed,
// and a limit is told apart from an end.
func TestCommandsAreListedAndKilled(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	if out, err := e.CLI("sandbox", "exec", "--id", "left", box.ID, "--", "sh", "-c", "setsid sleep 3000 & echo hi"); err != nil || out != "hi\n" {
		t.Fatalf("%q, %v", out, err)
	}
	lists := func(want string) func() bool {
		return func() bool {
			out, err := e.CLI("sandbox", "ps", box.ID, "left")
			return err == nil && strings.Contains(out, want)
		}
	}
	testenv.Until(t, patience, "the child is listed", lists("sleep 3000"))
	if out, err := e.CLI("sandbox", "kill", "-s", "KILL", box.ID, "left"); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if out, err := e.CLI("sandbox", "ps", box.ID); err != nil || strings.Contains(out, "sleep") || !strings.Contains(out, "exit 0") {
		t.Errorf("afterwards: %q, %v", out, err)
	}
	for script, want := range map[string]int{"exit 124": 124, "exit 255": 255, "kill -TERM $$": 128 + 15} {
		if _, err := e.CLI("sandbox", "exec", box.ID, "--", "sh", "-c", script); testenv.ExitCode(err) != want {
			t.Errorf("%s: %v", script, err)
		}
	}
	cmd := e.Command("sandbox", "exec", "--timeout", "1s", box.ID, "--", "sh", "-c", "trap '' TERM; setsid sleep 300 & sleep 300")
	var told bytes.Buffer
	cmd.Stderr = &told
	if err := cmd.Run(); testenv.ExitCode(err) != 13 || !strings.Contains(told.String(), "limit.time") {
		t.Errorf("%v: %s", err, told.String())
	}
}

// cases.md B35 as a user sees it: on a window of our own, whose size is right from
// the first moment and follows.
func TestTerminalOfTheCLI(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	script, err := exec.LookPath("script")
	if err != nil {
		t.Fatal("script (util-linux) is missing: it gives the CLI a terminal")
	}
	cli := e.Command("sandbox", "exec", "-t", box.ID, "--", "sh", "-c", `stty size; test -t 0 && test -t 1 && echo on a terminal; exit 6`)
	line := "stty rows 33 cols 101; " + strings.Join(quoted(cli.Args), " ")
	cmd := exec.Command(script, "-qec", line, "/dev/null")
	cmd.Env, cmd.Dir = cli.Env, cli.Dir
	out, err := cmd.Output()
	if testenv.ExitCode(err) != 6 || !strings.Contains(string(out), "33 101\r\non a terminal") {
		t.Errorf("%q, %v", out, err)
	}
}

func quoted(args []string) []string {
	out := make([]string, 0, len(args))
	for _, a := range args {
		out = append(out, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
	}
	return out
}

// cases.md B22: one sandbox does its worst, and a neighbour and the control plane
// answer all the while.
func TestNeighboursOfGreed(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	small := &api.Limits{Memory: 512 << 20, PIDs: 128, Disk: 64 << 20, Inodes: 5000, Files: 256, Output: 1 << 20, TimeSeconds: 60}
	greedy := sandboxOf(t, e, api.SandboxRequest{Limits: small})
	neighbour := sandboxOf(t, e, api.SandboxRequest{})
	for name, test := range map[string]struct {
		script  string
		reasons []string
	}{
		"fork bomb":   {`b() { b | b & }; b; sleep 2; exit 1`, []string{"limit.pids", "limit.time", ""}},
		"disk":        {`cat /dev/zero >/workspace/full`, []string{"limit.disk"}},
		"sparse file": {`truncate -s 10G /workspace/sparse && rm -f /workspace/sparse /workspace/full`, []string{"", "limit.disk"}},
		"output":      {`yes`, []string{"limit.output"}},
		"open files": {`python3 -c 'import os, time
try:
  while True: os.open("/dev/null", 0)
except OSError: time.sleep(2); raise'`, []string{"limit.files"}},
		"empty files": {`python3 -c 'import time
for i in range(20000): open("/tmp/f%d" % i, "w").close()
time.sleep(60)'`, []string{"limit.inodes", "limit.disk"}},
		"memory": {`python3 -c 'import time
held = []
while True: held.append(b"x" * (20 << 20)); time.sleep(0.05)'`, []string{"limit.memory"}},
	} {
		st, err := e.Client.Run(t.Context(), greedy.ID, api.ExecRequest{ID: strings.ReplaceAll(name, " ", "-"), Argv: []string{"sh", "-c", test.script}}, io.Discard, io.Discard)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		held := false
		for _, r := range test.reasons {
			held = held || st.Reason == r
		}
		if !held {
			t.Errorf("%s: %+v", name, st)
		}
		if err := e.Client.Signal(t.Context(), greedy.ID, st.ID, api.SignalRequest{Signal: "KILL"}); err != nil {
			t.Errorf("%s: what is left of it: %v", name, err)
		}
		if out, _ := execIn(t, e, neighbour.ID, "echo alive"); out != "alive\n" {
			t.Errorf("%s: the neighbour says %q", name, out)
		}
		if _, err := e.Client.Health(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_, _ = execIn(t, e, greedy.ID, "rm -rf /workspace/* /tmp/f*")
	}
	if s, err := e.Client.Sandbox(t.Context(), greedy.ID); err != nil || s.State != "live" {
		t.Errorf("the sandbox itself: %+v, %v", s, err)
	}
}

//go:build root

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// 200 MB of numbered lines arrive whole while the worker is killed five times.
func TestOutputOutlivesTheWorker(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	const lines = 20_000_000 // ten bytes each
	want := sha256.New()
	func() {
		buf := make([]byte, 0, 1<<16)
		for i := range lines {
			buf = appendLine(buf, i)
			if len(buf) > 60000 || i == lines-1 {
				want.Write(buf)
				buf = buf[:0]
			}
		}
	}()

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	hash := sha256.New()
	var mu sync.Mutex
	var got int64
	done := make(chan error, 1)
	go func() {
		status, err := e.Client.Run(ctx, box.ID, api.ExecRequest{
			ID: "lines", Argv: []string{"awk", "BEGIN { for (i = 0; i < 20000000; i++) printf \"%09d\\n\", i }"},
		}, writer(func(p []byte) (int, error) {
			mu.Lock()
			got += int64(len(p))
			mu.Unlock()
			return hash.Write(p)
		}), io.Discard)
		if err == nil && status.ExitCode != 0 {
			t.Errorf("exit code %d, %s %s", status.ExitCode, status.Reason, status.Error)
		}
		done <- err
	}()
	for kill := range 5 {
		testenv.Until(t, patience, "the next part of the output", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return got > int64(kill+1)*25_000_000
		})
		status, err := e.Client.Command(ctx, box.ID, "lines")
		if err != nil || status.Phase != api.CommandRunning {
			t.Fatalf("kill %d: nothing in flight (%+v, %v)", kill, status, err)
		}
		e.Reborn("worker", e.Kill("worker"))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if a, b := hex.EncodeToString(hash.Sum(nil)), hex.EncodeToString(want.Sum(nil)); a != b {
		t.Errorf("%d bytes with hash %s, want %d with %s", got, a, lines*10, b)
	}
}

func appendLine(b []byte, i int) []byte {
	var d [10]byte
	d[9] = '\n'
	for k := 8; k >= 0; k-- {
		d[k] = byte('0' + i%10)
		i /= 10
	}
	return append(b, d[:]...)
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// 50 callers with one command id start one process.
func TestOneCommandIDStartsOnce(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	started, outputs := 0, map[string]int{}
	for range 50 {
		wg.Go(func() {
			var out strings.Builder
			res, err := e.Client.Exec(context.Background(), box.ID, api.ExecRequest{ID: "once", Argv: []string{"sh", "-c", "echo $$ >> /tmp/ran; sleep 0.3; cat /tmp/ran"}})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := e.Client.ExecStream(context.Background(), box.ID, "once", 0, func(f api.Frame) error {
				out.Write(f.Data)
				return nil
			}); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if res.Command.Started {
				started++
			}
			outputs[out.String()]++
		})
	}
	wg.Wait()
	if started != 1 || len(outputs) != 1 {
		t.Errorf("%d callers started it, outputs %v; want one process", started, outputs)
	}
}

// B31, B32, B33: a child that holds the pipe, a command that does not want to
// end, zombies.
func TestCommandsThatMisbehave(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	ctx := context.Background()
	for name, script := range map[string]string{
		"background":  "sleep 300 & echo hi",
		"nohup":       "nohup sleep 300 2>/dev/null & echo hi",
		"setsid":      "setsid sleep 300 & echo hi",
		"double fork": "(setsid sh -c 'sleep 300 & sleep 300' &) ; echo hi",
		"ignores":     "sh -c \"trap '' TERM HUP; while :; do sleep 1; done\" & echo hi",
	} {
		t.Run(name, func(t *testing.T) {
			out, status := execIn(t, e, box.ID, script)
			if out != "hi\n" || status.ExitCode != 0 {
				t.Errorf("said %q, exit code %d; want hi and 0", out, status.ExitCode)
			}
			if len(status.Children) == 0 {
				t.Fatalf("the child that outlived the command is not listed: %+v", status)
			}
			if err := e.Client.KillCommand(ctx, box.ID, status.ID); err != nil {
				t.Fatal(err)
			}
			testenv.Until(t, patience, "the tree to be gone", func() bool {
				_, s := execIn(t, e, box.ID, fmt.Sprintf("! kill -0 %d", status.Children[0]))
				return s.ExitCode == 0
			})
		})
	}
	for name, script := range map[string]string{
		"ignores TERM": "trap '' TERM INT; while :; do sleep 0.1; done",
		"busy":         "while :; do :; done",
		"grandchild":   "sh -c \"trap '' TERM; sleep 600\" & trap '' TERM; wait; sleep 600",
	} {
		t.Run("time limit "+name, func(t *testing.T) {
			status, err := e.Client.Run(ctx, box.ID, api.ExecRequest{Argv: []string{"sh", "-c", script}, TimeoutSeconds: 1}, io.Discard, io.Discard)
			if err != nil || !status.TimedOut || status.Reason != "limit.time" {
				t.Fatalf("status %+v, %v; want timed out by limit.time", status, err)
			}
			if d := status.EndedAt.Sub(*status.StartedAt); d > 60*time.Second {
				t.Errorf("ended after %v", d)
			}
			if out, _ := execIn(t, e, box.ID, "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -F 'sleep 600' ; done; true"); strings.Contains(out, "sleep 600\n") && !strings.Contains(out, "grep") {
				t.Errorf("of the tree lives: %q", out)
			}
		})
	}
	t.Run("zombies", func(t *testing.T) {
		for range 100 {
			if _, status := execIn(t, e, box.ID, "sleep 0.05 & exit 7"); status.ExitCode != 7 {
				t.Fatalf("exit code %d, want 7", status.ExitCode)
			}
		}
		testenv.Until(t, patience, "no zombies", func() bool {
			out, _ := execIn(t, e, box.ID, "cat /proc/[0-9]*/stat 2>/dev/null | awk '$3 == \"Z\"' | wc -l")
			return strings.TrimSpace(out) == "0"
		})
	})
	t.Run("signals and codes are told apart", func(t *testing.T) {
		if _, s := execIn(t, e, box.ID, "kill -9 $$"); s.Signal != 9 || s.ExitCode != -1 {
			t.Errorf("killed by 9: %+v", s)
		}
		if _, s := execIn(t, e, box.ID, "exit 255"); s.Signal != 0 || s.ExitCode != 255 {
			t.Errorf("exit 255: %+v", s)
		}
	})
	t.Run("a fork bomb ends itself only", func(t *testing.T) {
		bomb := sandboxOf(t, e, api.SandboxRequest{Limits: &api.Limits{PIDs: 64}})
		e.Client.Run(ctx, bomb.ID, api.ExecRequest{Argv: []string{"bash", "-c", ":(){ :|:& };:"}, TimeoutSeconds: 3}, io.Discard, io.Discard)
		if out, _ := execIn(t, e, box.ID, "echo alive"); out != "alive\n" {
			t.Errorf("the neighbour says %q", out)
		}
	})
}

// B12: nothing that authenticates to anything is seen inside.
func TestNothingOfOursInside(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	out, _ := execIn(t, e, box.ID, `cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ 2>/dev/null | tr '\0' '\n'
ls -la /proc/1/fd /run /run/secrets /var/run/secrets /root /home 2>&1; ls -la /proc/*/fd 2>/dev/null
cat /etc/shadow /root/.ssh/* /etc/ssh/*key 2>&1; cat /proc/1/mem 2>&1 | head -c 100; mount; id; cat /proc/self/status | grep -i cap`)
	for _, secret := range []string{e.Token, e.Data, "cfd_", "BEGIN", "COFFERDAM_TOKEN", "worker.token"} {
		if strings.Contains(out, secret) {
			t.Errorf("%q is seen inside:\n%s", secret, out)
		}
	}
	if !strings.Contains(out, "uid=1000") || !strings.Contains(out, "CapEff:\t0000000000000000") {
		t.Errorf("the workload is not an ordinary user without capabilities:\n%s", out)
	}
	for _, script := range []string{"kill -9 1", "cat /proc/1/mem", "ls /proc/1/fd", "gdb -p 1 -batch 2>/dev/null && false; strace -p 1", "echo x > /proc/1/fd/1"} {
		if _, status := execIn(t, e, box.ID, script); status.ExitCode == 0 {
			t.Errorf("%q on the first process succeeded", script)
		}
	}
	if out, _ := execIn(t, e, box.ID, "echo alive"); out != "alive\n" {
		t.Errorf("the first process was harmed: %q", out)
	}
}

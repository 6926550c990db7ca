//go:build root

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/boot"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

const sandboxID = "sb-worker2root2test"

// installation is the worker's program, a control plane in this process, and a
// data folder.
type installation struct {
	bin, data string
	fleet     *fleet.Fleet
	url       string
}

func installed(t *testing.T) *installation {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes sandboxes and needs root")
	}
	dir, err := os.MkdirTemp("", "cd") // Short: a socket must lie below it.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	in := &installation{bin: os.Getenv("COFFERDAM_BIN"), data: filepath.Join(dir, "d")}
	if in.bin == "" {
		in.bin = dir
		for _, name := range []string{"runsc", "cofferdam-guest", "cofferdam-worker"} {
			cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "github.com/cofferdam/cofferdam/cmd/"+name)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("build %s: %v\n%s", name, err, out)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(in.data, "worker"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in.path("worker", "token"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	registry := fleet.NewRegistry(fleet.RegistryOptions{
		Authenticate: func(r *http.Request) (string, error) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				return "", errors.New("wrong token")
			}
			return "machine", nil
		},
		Boot: "control", Log: slog.New(slog.DiscardHandler),
	})
	mux := http.NewServeMux()
	mux.Handle(link.ConnectPath, registry)
	server := httptest.NewServer(mux)
	t.Cleanup(func() { registry.Close(); server.Close() })
	in.fleet, in.url = fleet.New(registry, fleet.Options{}), server.URL
	return in
}

func (in *installation) path(parts ...string) string {
	return filepath.Join(append([]string{in.data}, parts...)...)
}

func (in *installation) command() *exec.Cmd {
	return exec.Command(filepath.Join(in.bin, "cofferdam-worker"), "--data", in.data, "--server", in.url,
		"--token-file", in.path("worker", "token"), "--runsc", filepath.Join(in.bin, "runsc"), "--guest", filepath.Join(in.bin, "cofferdam-guest"))
}

// start runs the worker until it is ready and returns its boot id.
func (in *installation) start(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	cmd := in.command()
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(cmd, syscall.SIGKILL) })
	var record boot.Record
	until(t, "the worker's boot record", func() bool {
		text, err := os.ReadFile(in.path("worker", "boot.json"))
		return err == nil && json.Unmarshal(text, &record) == nil && record.PID == cmd.Process.Pid
	})
	until(t, "its connection", func() bool {
		for _, w := range in.fleet.Workers() {
			if w.State == fleet.Connected && w.Boot == record.Boot {
				return true
			}
		}
		return false
	})
	return cmd, record.Boot
}

// stop signals a worker and waits for its end, once or more often.
func stop(cmd *exec.Cmd, signal syscall.Signal) error {
	if cmd.ProcessState != nil {
		return nil
	}
	_ = cmd.Process.Signal(signal)
	return cmd.Wait()
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
	}
}

// output counts what was written; safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// TestWorkerProgram takes the real worker through its life: a command in a gVisor
// sandbox outlives the worker's kill, its sandbox an ordinary end, and neither the
// taking down of the installation.
func TestWorkerProgram(t *testing.T) {
	in := installed(t)
	worker, first := in.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, info, err := in.fleet.Create(ctx, sandbox.Spec{ID: sandboxID, Role: "manual"}); err != nil || !strings.HasPrefix(info.Kernel, "gvisor") {
		t.Fatalf("%+v %v", info, err)
	}

	second := in.command()
	if text, err := second.CombinedOutput(); err == nil || !strings.Contains(string(text), "another process") {
		t.Fatalf("a second worker in the same folder: %v, %s", err, text)
	}

	const lines = 3000
	count := sandbox.Command{ID: "count", Argv: []string{
		"/bin/sh", "-c",
		fmt.Sprintf(`echo x >>/workspace/starts; i=0; while [ $i -lt %d ]; do i=$((i+1)); echo "line $i"; [ $((i %% 100)) = 0 ] && sleep 0.1; done; cat /workspace/starts`, lines),
	}}
	var want strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	want.WriteString("x\n")
	var out output
	done := make(chan error, 1)
	go func() {
		result, err := in.fleet.Run(ctx, sandboxID, count, 0, &out, nil)
		if err == nil && (result.ExitCode != 0 || result.Phase != sandbox.CommandExited) {
			err = fmt.Errorf("result %+v", result)
		}
		done <- err
	}()
	boots := map[string]bool{first: true}
	for range 2 {
		seen := len(out.String())
		until(t, "more output", func() bool { return len(out.String()) > seen })
		if strings.HasSuffix(out.String(), "x\n") {
			t.Fatal("the command ended before the worker was killed")
		}
		_ = stop(worker, syscall.SIGKILL)
		var id string
		worker, id = in.start(t)
		boots[id] = true
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out.String() != want.String() || len(boots) != 3 {
		t.Fatalf("output of %d bytes where %d were expected, or it differs; %d boots", len(out.String()), want.Len(), len(boots))
	}

	// An ordinary end leaves the sandbox to the next worker.
	if err := stop(worker, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	worker, _ = in.start(t)
	out = output{}
	result, err := in.fleet.Run(ctx, sandboxID, sandbox.Command{ID: "kernel", Argv: []string{"dmesg"}}, 0, &out, nil)
	if err != nil || result.ExitCode != 0 || !strings.Contains(out.String(), "gVisor") {
		t.Fatalf("%q %+v %v", out.String(), result, err)
	}
	reports := in.fleet.Doctor(ctx)
	if len(reports) != 1 || reports[0].Err != nil || len(reports[0].Doctor.Leftovers) != 0 {
		t.Fatalf("doctor: %+v", reports)
	}

	// Taking the installation down ends everything.
	if err := os.WriteFile(in.path("worker", "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := stop(worker, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{in.path("worker", "stop"), in.path("worker", "sandboxes", sandboxID)} {
		if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", left, err)
		}
	}
	in.start(t)
	_, err = in.fleet.Status(ctx, sandboxID, "count")
	var f *task.Failure
	if !errors.As(err, &f) || f.Reason.Class() != "infra" && f.Reason != task.InputNotFound {
		t.Fatalf("a destroyed sandbox's command: %v", err)
	}
}

// TestWorkerNeedsRoot starts the program as another user.
func TestWorkerNeedsRoot(t *testing.T) {
	in := installed(t)
	for _, dir := range []string{in.bin, filepath.Dir(in.data)} {
		if strings.HasPrefix(dir, os.TempDir()) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := in.command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	text, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "must run as root") {
		t.Fatalf("%v %s", err, text)
	}
}

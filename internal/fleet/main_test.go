package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/worker"
	"github.com/cofferdam/cofferdam/internal/worker/workertest"
)

// childEnv makes the test's own program a worker: its value is the data folder and the
// server's URL.
const childEnv = "COFFERDAM_FLEET_TEST_WORKER"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		dir, server, _ := strings.Cut(spec, ",")
		os.Unsetenv(childEnv)
		newLink(dir, server, "machine-1").Keep(context.Background())
		return
	}
	os.Exit(m.Run())
}

const (
	token   = "worker-token"
	patient = 10 * time.Second // how long a test waits for what must happen
)

var quick = link.Tuning{KeepAlive: 100 * time.Millisecond, Timeout: 400 * time.Millisecond}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newLink returns a worker over local processes.
func newLink(dir, server, id string) *link.Worker {
	return newLinkWith(server, newDoor(dir, id, workertest.New(filepath.Join(dir, "sandboxes")), &workertest.Gateway{File: filepath.Join(dir, "epoch")}))
}

func newDoor(dir, id string, driver sandbox.Driver, gateway worker.Egress) *worker.Door {
	for _, name := range []string{"sandboxes", "epochs"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			panic(err)
		}
	}
	return worker.New(worker.Options{
		ID: id, Boot: fmt.Sprintf("boot-%d", rand.Uint64()), Version: "test", Driver: driver, Egress: gateway,
		EpochDir: filepath.Join(dir, "epochs"),
		Machine:  func() link.Machine { return link.Machine{Host: id, CPUs: 2, Memory: 8 << 30} },
		Log:      quiet(),
	})
}

func newLinkWith(server string, door http.Handler) *link.Worker {
	return &link.Worker{
		Server: server, Token: func() (string, error) { return token, nil }, Handler: door,
		Tuning: quick, Backoff: 100 * time.Millisecond, Log: quiet(),
	}
}

// control is a control plane with a fleet.
type control struct {
	*fleet.Fleet
	registry *fleet.Registry
	url      string
	stop     func()
}

func newControl(t testing.TB, opts fleet.Options) *control {
	t.Helper()
	registry := fleet.NewRegistry(fleet.RegistryOptions{
		Authenticate: func(r *http.Request) (string, error) {
			if subject, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "+token); ok {
				return "machines" + subject, nil
			}
			return "", errors.New("wrong token")
		},
		Boot: "control-boot", Tuning: quick, Heartbeat: 100 * time.Millisecond, Log: quiet(),
	})
	mux := http.NewServeMux()
	mux.Handle(link.ConnectPath, registry)
	server := httptest.NewServer(mux)
	c := &control{Fleet: fleet.New(registry, opts), registry: registry, url: server.URL}
	c.stop = func() { registry.Close(); server.Close() }
	t.Cleanup(c.stop)
	return c
}

// keep runs a worker until the returned function or the test's end stops it.
func keep(t testing.TB, w *link.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Keep(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// child runs a worker as a process.
func child(t *testing.T, dir, server string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir+","+server)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	return cmd
}

// end kills a child and waits for it, once or more often.
func end(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patient); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen within %s", what, patient)
		}
	}
}

func (c *control) connected(t testing.TB, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d workers connected", n), func() bool {
		up := 0
		for _, w := range c.Workers() {
			if w.State == fleet.Connected {
				up++
			}
		}
		return up == n
	})
}

// oneWorker is a control plane with a worker in this process.
func oneWorker(t *testing.T, opts fleet.Options) (c *control, dir string) {
	t.Helper()
	c, dir = newControl(t, opts), t.TempDir()
	keep(t, newLink(dir, c.url, "machine-1"))
	c.connected(t, 1)
	return c, dir
}

func newID() string {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	b := []byte("sb-")
	for range 16 {
		b = append(b, letters[rand.N(len(letters))])
	}
	return string(b)
}

// create makes a sandbox that the test's end destroys.
func (c *control) create(t *testing.T, spec sandbox.Spec) string {
	t.Helper()
	if spec.ID == "" {
		spec.ID = newID()
	}
	if _, _, err := c.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	return spec.ID
}

func sh(id, text string) sandbox.Command {
	return sandbox.Command{ID: id, Argv: []string{"/bin/sh", "-c", text}}
}

func wantReason(t *testing.T, err error, reason task.Reason) {
	t.Helper()
	var f *task.Failure
	if !errors.As(err, &f) || f.Reason != reason {
		t.Fatalf("got %v, want %s", err, reason)
	}
}

func readAll(t *testing.T, s sandbox.Stream) string {
	t.Helper()
	var b strings.Builder
	for {
		chunk, err := s.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Write(chunk.Data)
	}
}

//go:build root

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// second is another worker of the platform, with a data folder of its own.
type second struct {
	t    *testing.T
	e    *testenv.Env
	data string
	cmd  *exec.Cmd
}

func newSecond(t *testing.T, e *testenv.Env) *second {
	t.Helper()
	dir, err := os.MkdirTemp("", "cfd") // short, since sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // as an installation's
		t.Fatal(err)
	}
	w := &second{t: t, e: e, data: dir}
	if err := os.Mkdir(filepath.Join(dir, "worker"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.kill()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *second) start() {
	w.t.Helper()
	bin := testenv.Bin(w.t)
	log, err := os.OpenFile(filepath.Join(w.data, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	w.cmd = exec.Command(filepath.Join(bin, "cofferdam-worker"), "--data", w.data, "--server", w.e.URL, "--images", testenv.Images(w.t),
		"--token-file", filepath.Join(w.e.Data, "worker", "token"), "--runsc", filepath.Join(bin, "runsc"), "--guest", filepath.Join(bin, "cofferdam-guest"))
	w.cmd.Stdout, w.cmd.Stderr = log, log
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
}

// kill ends the worker with SIGKILL; its sandboxes go on.
func (w *second) kill() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
		w.cmd = nil
	}
}

func (w *second) name() string {
	b, _ := os.ReadFile(filepath.Join(w.data, "worker", "id"))
	return strings.TrimSpace(string(b))
}

// connected waits until the control plane has so many workers.
func connected(t *testing.T, e *testenv.Env, want ...string) {
	t.Helper()
	testenv.Until(t, patience, "the workers "+strings.Join(want, ", "), func() bool {
		workers, err := e.Client.Workers(context.Background())
		if err != nil {
			return false
		}
		here := map[string]bool{}
		for _, w := range workers {
			here[w.Name] = w.State == "connected"
		}
		for _, w := range want {
			if !here[w] {
				return false
			}
		}
		return true
	})
}

// Two workers share the sandboxes. After the control plane was replaced, the
// worker that has one of them comes back later than the other; the sandbox is
// waited for, and is not called lost because the first does not have it.
func TestTwoWorkersAndANewControlPlane(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	w := newSecond(t, e)
	w.start()
	testenv.Until(t, patience, "the second worker's name", func() bool { return w.name() != "" })
	workers, err := e.Client.Workers(context.Background())
	if err != nil || len(workers) == 0 {
		t.Fatalf("%v, %v", workers, err)
	}
	first := workers[0].Name
	if first == w.name() {
		first = workers[1].Name
	}
	connected(t, e, first, w.name())

	on := map[string]string{} // worker → sandbox
	for range 2 {             // the second goes where the first did not, though no worker has told of it yet
		box := sandboxOf(t, e, api.SandboxRequest{})
		on[box.Worker] = box.ID
	}
	if len(on) != 2 || on[w.name()] == "" {
		t.Fatalf("the sandboxes are on %v", on)
	}
	for _, id := range on {
		if out, status := execIn(t, e, id, "echo kept > /tmp/kept; cat /tmp/kept"); out != "kept\n" || status.ExitCode != 0 {
			t.Fatalf("%q %+v", out, status)
		}
	}

	w.kill()
	e.Reborn("cofferdamd", e.Kill("cofferdamd"))
	connected(t, e, first)
	var asking sync.WaitGroup
	answers := map[string]string{}
	asked := make(chan struct{})
	asking.Go(func() {
		close(asked)
		box, err := e.Client.Sandbox(context.Background(), on[w.name()])
		answer, _ := json.Marshal(box)
		if answers["state"] = box.State; err != nil {
			answers["error"] = err.Error()
		}
		answers["answer"] = string(answer)
	})
	<-asked
	w.start()
	asking.Wait()
	if answers["state"] != "live" || answers["error"] != "" {
		t.Errorf("the sandbox of the worker that came later: %v", answers)
	}
	connected(t, e, first, w.name())
	for worker, id := range on {
		if out, status := execIn(t, e, id, "cat /tmp/kept"); out != "kept\n" || status.ExitCode != 0 {
			t.Errorf("on %s: %q %+v", worker, out, status)
		}
	}
	if t.Failed() {
		log, _ := os.ReadFile(filepath.Join(w.data, "log"))
		t.Logf("the second worker's log:\n%s", log)
	}
}

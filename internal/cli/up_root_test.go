//go:build root

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cofferdam/cofferdam/internal/supervise"
)

// machine is a folder with this program and the daemons, and a data folder.
type machine struct {
	t              *testing.T
	bin, data, dir string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root")
	}
	dir, err := os.MkdirTemp("", "cli-up")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: dir, bin: filepath.Join(dir, "bin"), data: filepath.Join(dir, "data")}
	for _, d := range []string{m.bin, filepath.Join(dir, "home")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(m.bin, "cofferdam")
	if out, err := exec.Command("cp", self, program).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cofferdam-engine", "cofferdamd", "cofferdam-gateway", "cofferdam-worker", "cofferdam-guest", "runsc"} {
		if err := os.Link(program, filepath.Join(m.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(m.data, "run")); err == nil {
			if code, out := m.run(nil, "down", "--data", m.data); code != 0 {
				t.Errorf("down: %d %s", code, out)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return m
}

// run runs the program and returns its exit code and all that it printed.
func (m *machine) run(as *syscall.Credential, args ...string) (int, string) {
	m.t.Helper()
	cmd := exec.Command(filepath.Join(m.bin, "cofferdam"), args...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(m.dir, "home"), "XDG_CONFIG_HOME=", "COFFERDAM_URL=", "COFFERDAM_TOKEN=", "SUDO_USER=")
	cmd.Dir = m.dir
	if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func (m *machine) supervisor() supervise.Record {
	m.t.Helper()
	var r supervise.Record
	data, err := os.ReadFile(filepath.Join(m.data, "run", "up.json"))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

func TestUpDetachedAndDown(t *testing.T) {
	m := newMachine(t)
	code, out := m.run(nil, "up", "--detach", "--data", m.data, "--listen", "127.0.0.1:0")
	if code != 0 || !strings.HasPrefix(out, "ready http://127.0.0.1:") {
		t.Fatalf("%d %s", code, out)
	}
	// The caller's configuration was written, and is enough.
	conf, err := os.ReadFile(filepath.Join(m.dir, "home", ".config", "cofferdam", "client.json"))
	if err != nil || !strings.Contains(string(conf), strings.TrimSpace(strings.TrimPrefix(out, "ready "))) {
		t.Errorf("configuration %s: %v", conf, err)
	}
	// A second one is as good when it needn't be the one that runs things.
	code, again := m.run(nil, "up", "--detach", "--data", m.data)
	if code != 0 || !strings.Contains(again, out) || !strings.Contains(again, "runs already") {
		t.Errorf("second, detached: %d %s", code, again)
	}
	code, again = m.run(nil, "up", "--data", m.data)
	if code != 2 || !strings.Contains(again, "runs already, at http://127.0.0.1:") {
		t.Errorf("second: %d %s", code, again)
	}
	// Killed, it is taken over.
	if err := syscall.Kill(m.supervisor().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	code, again = m.run(nil, "up", "--detach", "--data", m.data, "--listen", "127.0.0.1:0", "--json")
	var ready supervise.Ready
	if err := json.Unmarshal([]byte(again), &ready); code != 0 || err != nil || ready.TookOver != 4 || ready.Already {
		t.Errorf("take-over: %d %s", code, again)
	}
	if code, out := m.run(nil, "down", "--data", m.data, "--json"); code != 0 || !strings.Contains(out, `"running": true`) {
		t.Errorf("down: %d %s", code, out)
	}
	if code, out := m.run(nil, "down", "--data", m.data); code != 0 || out != "nothing was running\n" {
		t.Errorf("down again: %d %s", code, out)
	}
}

func TestUpSaysWhyNot(t *testing.T) {
	m := newMachine(t)
	for _, detach := range []string{"--detach=false", "--detach"} {
		code, out := m.run(&syscall.Credential{Uid: 65534, Gid: 65534}, "up", "--data", m.data, detach)
		if code != 15 || !strings.Contains(out, "must be run as root") || !strings.Contains(out, "infra.machine") {
			t.Errorf("no root: %d %s", code, out)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		code, out = m.run(nil, "up", "--data", m.data, detach, "--listen", l.Addr().String())
		if code != 15 || !strings.Contains(out, fmt.Sprintf("--listen %s: the address is in use by process %d", l.Addr(), os.Getpid())) {
			t.Errorf("port in use: %d %s", code, out)
		}
		l.Close()
		code, out = m.run(nil, "up", "--data", m.data, detach, "--listen", "0.0.0.0:7070")
		if code != 2 || !strings.Contains(out, "--listen-public") {
			t.Errorf("public: %d %s", code, out)
		}
		broken := filepath.Join(m.data, "cofferdamd", "broken")
		if err := os.WriteFile(broken, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		code, out = m.run(nil, "up", "--data", m.data, detach, "--listen", "127.0.0.1:0", "--json")
		if code != 15 || !strings.Contains(out, "cofferdamd does not start") || !strings.Contains(out, "the database is corrupt") {
			t.Errorf("broken daemon: %d %s", code, out)
		}
		if err := os.Remove(broken); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := m.run(&syscall.Credential{Uid: 65534, Gid: 65534}, "down", "--data", m.data); code != 15 || !strings.Contains(out, "root") {
		t.Errorf("down without root: %d %s", code, out)
	}
}

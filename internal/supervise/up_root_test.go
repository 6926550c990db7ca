//go:build root

package supervise

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// house is a folder with programs and a data folder that other users reach.
type house struct {
	t    *testing.T
	bin  string
	home string
	l    Layout
}

func newHouse(t *testing.T) *house {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root")
	}
	dir, err := os.MkdirTemp("", "supervise")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, bin: filepath.Join(dir, "bin"), home: filepath.Join(dir, "home"), l: Layout{Data: filepath.Join(dir, "data")}}
	for _, d := range []string{h.bin, h.home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyProgram(t, filepath.Join(h.bin, "cofferdam"))
	for _, name := range append(order(), "cofferdam-guest", "runsc") {
		if err := os.Link(filepath.Join(h.bin, "cofferdam"), filepath.Join(h.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := os.Stat(h.l.path("run")); err == nil {
			if _, err := h.down(false); err != nil {
				t.Errorf("down: %v", err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return h
}

func (h *house) down(keep bool) (Stopped, error) {
	return Down(context.Background(), Stop{Data: h.l.Data, KeepSandboxes: keep, Bin: h.bin, Hold: []string{filepath.Join(h.bin, "cofferdam"), "hold"}, Log: slog.New(slog.DiscardHandler)})
}

// up starts a supervisor as a process and returns it with what it told.
func (h *house) up(listen string) (*exec.Cmd, Ready) {
	h.t.Helper()
	cmd := exec.Command(filepath.Join(h.bin, "cofferdam"), "supervise", h.l.Data, listen)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+h.home, "SECRET_OF_THE_CALLER=1", "LANG=C.UTF-8")
	cmd.Env = append(cmd.Env, "SUDO_USER=")
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	var errs lockedLog
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var r Ready
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		_ = cmd.Wait()
		h.t.Fatalf("not ready: %v\n%s", err, errs.String())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return cmd, r
}

func (h *house) records() map[string]Record {
	h.t.Helper()
	m := map[string]Record{}
	for _, name := range order() {
		m[name] = recordOf(h.t, h.l, name)
	}
	return m
}

func TestUpRunsEachDaemonAsItsUserAndDownEndsAll(t *testing.T) {
	h := newHouse(t)
	cmd, ready := h.up("127.0.0.1:0")
	resp, err := http.Get(ready.URL + "/v1/health")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for folder, uid := range map[string]int{"engine": 47810, "cofferdamd": 47810, "gateway": 47811, "worker": 0} {
		info, err := os.Stat(h.l.path(folder))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != uid || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: uid %d, mode %v", folder, st.Uid, info.Mode())
		}
		var seen struct {
			UID  int
			Env  []string
			Args []string
		}
		data, err := os.ReadFile(h.l.path(folder, "seen.json"))
		if err == nil {
			err = json.Unmarshal(data, &seen)
		}
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(seen.Env, " ")
		if seen.UID != uid || strings.Contains(all, "SECRET") || !strings.Contains(all, "LANG=C.UTF-8") || len(seen.Env) > 5 {
			t.Errorf("%s: uid %d, environment %v", folder, seen.UID, seen.Env)
		}
		if strings.Contains(strings.Join(seen.Args, " "), "token-of") || !strings.Contains(strings.Join(seen.Args, " "), "--data "+h.l.Data) {
			t.Errorf("%s: arguments %v", folder, seen.Args)
		}
	}
	for path, mode := range map[string]os.FileMode{h.l.ClientFile(): 0o600, filepath.Join(h.home, "cofferdam", "client.json"): 0o600, h.l.workerToken(): 0o600, h.l.gatewayToken(): 0o600} {
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), "token-of-") {
			t.Errorf("%s: %q %v", path, data, err)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() != mode {
			t.Errorf("%s: %v", path, info.Mode())
		}
	}
	// The gateway's token is its user's alone.
	if info, err := os.Stat(h.l.gatewayToken()); err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != gatewayID {
		t.Errorf("the gateway's token: %+v, %v", info, err)
	}
	for _, f := range h.l.Inspect() {
		if f.Outcome != OK {
			t.Errorf("inspect: %+v", f)
		}
	}
	records := h.records()
	done, err := h.down(false)
	if err != nil || !done.Running {
		t.Fatalf("down: %+v %v", done, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the supervisor's end: %v", err)
	}
	for name, r := range records {
		if r.Alive() {
			t.Errorf("%s lives", name)
		}
	}
	if done, err = h.down(false); err != nil || done.Running {
		t.Errorf("down again: %+v %v", done, err)
	}
}

func TestUpTakesOverFromAKilledSupervisor(t *testing.T) {
	h := newHouse(t)
	cmd, ready := h.up("127.0.0.1:0")
	before := h.records()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for name, r := range before {
		if !r.Alive() {
			t.Errorf("%s died with its supervisor", name)
		}
	}
	if err := os.MkdirAll(h.l.path("worker", "sandboxes", "sb-x"), 0o700); err != nil {
		t.Fatal(err)
	}
	next, again := h.up(strings.TrimPrefix(ready.URL, "http://"))
	if again.TookOver != 4 || again.URL != ready.URL {
		t.Errorf("took over %d at %s", again.TookOver, again.URL)
	}
	after := h.records()
	for name, r := range before {
		if r.Alive() || after[name].PID == r.PID || !after[name].Alive() {
			t.Errorf("%s: before %d (alive %v), after %d", name, r.PID, r.Alive(), after[name].PID)
		}
	}
	if len(h.l.sandboxes()) != 1 {
		t.Error("the take-over destroyed a sandbox")
	}
	if err := next.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = next.Wait()
	done, err := h.down(false)
	if err != nil || len(done.Ended) != 4 || len(h.l.sandboxes()) != 0 {
		t.Errorf("down without a supervisor: %+v %v, sandboxes %v", done, err, h.l.sandboxes())
	}
}

func TestSandboxesEndByDownOnly(t *testing.T) {
	h := newHouse(t)
	cmd, _ := h.up("127.0.0.1:0")
	make1 := func() {
		if err := os.MkdirAll(h.l.path("worker", "sandboxes", "sb-x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	make1()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // what a service manager sends
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(h.l.sandboxes()) != 1 {
		t.Error("a stop by a service manager destroyed the sandbox")
	}
	// No worker lives that could be asked: down starts one to clean up.
	if _, err := h.down(false); err != nil || len(h.l.sandboxes()) != 0 {
		t.Errorf("down: %v, left %v", err, h.l.sandboxes())
	}
	cmd, _ = h.up("127.0.0.1:0")
	make1()
	if done, err := h.down(true); err != nil || len(done.Sandboxes) != 1 {
		t.Errorf("down that keeps: %+v %v", done, err)
	}
	_ = cmd.Wait()
	cmd, _ = h.up("127.0.0.1:0")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil { // a person at the terminal
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || len(h.l.sandboxes()) != 0 {
		t.Errorf("interrupt: %v, left %v", err, h.l.sandboxes())
	}
}

func TestSecondUpIsRefused(t *testing.T) {
	h := newHouse(t)
	_, ready := h.up("127.0.0.1:0")
	err := Up(t.Context(), h.options("127.0.0.1:0"))
	if codeOf(err) != CodeConflict || !strings.Contains(err.Error(), ready.URL) {
		t.Errorf("got %v", err)
	}
	for name, r := range h.records() {
		if !r.Alive() {
			t.Errorf("%s was ended by the second up", name)
		}
	}
}

func (h *house) options(listen string) Options {
	return Options{
		Data: h.l.Data, Listen: listen, Bin: h.bin, Hold: []string{filepath.Join(h.bin, "cofferdam"), "hold"},
		Log: slog.New(slog.DiscardHandler), Ready: func(Ready) {},
	}
}

func TestPortInUseLeavesNothing(t *testing.T) {
	h := newHouse(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = Up(t.Context(), h.options(l.Addr().String()))
	if codeOf(err) != CodeMachine || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v", err)
	}
	h.nothingRuns()
}

func (h *house) nothingRuns() {
	h.t.Helper()
	for _, name := range order() {
		if r, ok, _ := h.l.readRecord(name); ok && r.Alive() {
			h.t.Errorf("%s runs", name)
		}
	}
}

func TestBrokenDaemonStopsTheOthers(t *testing.T) {
	h := newHouse(t)
	for _, dir := range []string{h.l.Data, h.l.path("gateway")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(h.l.path("gateway"), gatewayID, gatewayID); err != nil {
		t.Fatal(err)
	}
	setBehave(t, h.l, "gateway", "broken")
	err := Up(t.Context(), h.options("127.0.0.1:0"))
	if codeOf(err) != CodeProgram || !strings.Contains(err.Error(), "cofferdam-gateway does not start") || !strings.Contains(err.Error(), "corrupt") {
		t.Errorf("got %v", err)
	}
	h.nothingRuns()
}

func TestForeignFolderIsRefused(t *testing.T) {
	h := newHouse(t)
	for _, dir := range []string{h.l.Data, h.l.path("cofferdamd")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := Up(t.Context(), h.options("127.0.0.1:0"))
	if codeOf(err) != CodeMachine || !strings.Contains(err.Error(), "chown") {
		t.Errorf("got %v", err)
	}
}

// Killed at any moment of its start, a supervisor leaves nothing that the next
// one does not find.
func TestSupervisorKilledWhileStarting(t *testing.T) {
	h := newHouse(t)
	for i := range 8 {
		cmd := exec.Command(filepath.Join(h.bin, "cofferdam"), "supervise", h.l.Data, "127.0.0.1:0")
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+h.home)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 25 * time.Millisecond) // a spread of moments, nothing depends on it
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	h.up("127.0.0.1:0")
	if _, err := h.down(false); err != nil {
		t.Fatal(err)
	}
	until(t, "no process of the installation", func() bool { return h.processes() == "" })
}

// processes lists every process whose arguments hold the data folder.
func (h *house) processes() string {
	var found []string
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, dir := range dirs {
		line, err := os.ReadFile(dir + "/cmdline")
		if err == nil && strings.Contains(string(line), h.l.Data) {
			found = append(found, fmt.Sprintf("%s: %q", dir, line))
		}
	}
	return strings.Join(found, "\n")
}

func TestConfigurationOfTheUserBehindSudo(t *testing.T) {
	h := newHouse(t)
	_, ok, err := lookUp("nobody")
	if err != nil || !ok {
		t.Fatal("the machine has no user nobody")
	}
	t.Setenv("SUDO_USER", "nobody")
	t.Setenv("SUDO_UID", "1")
	if _, _, _, err := callerFolder(); err == nil {
		t.Error("believed a SUDO_USER that is not SUDO_UID")
	}
	// A home that leads to root's own folders by a link.
	trap := filepath.Join(h.home, "trap")
	if err := os.Mkdir(trap, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(trap, "cofferdam")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SUDO_USER", "")
	t.Setenv("XDG_CONFIG_HOME", trap)
	if path, err := writeForCaller([]byte("{}")); err == nil {
		t.Errorf("wrote %s through a link", path)
	}
	if _, err := os.Stat("/etc/client.json"); err == nil {
		t.Error("/etc/client.json exists")
	}
}

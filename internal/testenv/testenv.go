// Package testenv is a whole platform from a struct literal: it starts the
// built programs on a data folder and a port of their own, as `cofferdam up`
// does for a user, and gives a test what it needs to use, kill and inspect
// them. Tests only; it needs root.
//
// Words. A daemon's boot is the random id it made when it started, so that a
// test can prove that a daemon which was killed is another one afterwards. A
// census is a list of the host objects that an installation could have left.
package testenv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
)

// Config says what to start. The zero value is a platform with defaults.
type Config struct {
	OperatorPolicy string   // text of the operator's layer; empty: none
	DNS            string   // the resolver that the gateway asks, HOST:PORT; empty: the system's
	Flags          []string // further flags of `cofferdam up`
	Bin            string   // folder of the programs; empty: Bin(t)
	Within         []string // what `cofferdam up` is started by, such as unshare and its arguments; empty: nothing
}

// Env is a running platform.
type Env struct {
	T      testing.TB
	Data   string
	URL    string
	Token  string
	Client *client.Client
	bin    string
	args   []string
	within []string
}

// Daemons are the folders of the daemons that `up` starts, in their order.
func Daemons() []string { return []string{"engine", "cofferdamd", "gateway", "worker"} }

// Bin returns the folder of the built programs: $COFFERDAM_BIN, or the
// project's bin/ after `make build`.
func Bin(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("COFFERDAM_BIN"); dir != "" {
		return dir
	}
	root := Root(t)
	cmd := exec.Command("make", "build")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	return filepath.Join(root, "bin")
}

// Root returns the project's folder.
func Root(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("testenv: no caller")
	}
	if filepath.IsAbs(file) {
		return filepath.Dir(filepath.Dir(filepath.Dir(file)))
	}
	// Built with -trimpath: the path is the module's, so look upwards.
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module github.com/cofferdam/cofferdam\n")) {
			return dir
		}
	}
	t.Fatal("testenv: the project's folder is not above the working folder")
	return ""
}

// Start starts a platform and stops it when the test ends. It fails the test
// when the platform does not become ready, with the daemons' logs.
func Start(t testing.TB, cfg Config) *Env {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("testenv: needs root; run the tests with the root tag as root")
	}
	e := &Env{T: t, Data: folder(t), bin: cfg.Bin, within: cfg.Within}
	if e.bin == "" {
		e.bin = Bin(t)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	e.args = append([]string{"up", "--data", e.Data, "--listen", listen, "--detach"}, cfg.Flags...)
	if !slices.Contains(cfg.Flags, "--images") {
		e.args = append(e.args, "--images", Images(t))
	}
	if cfg.DNS != "" {
		e.args = append(e.args, "--dns", cfg.DNS)
	}
	if cfg.OperatorPolicy != "" {
		file := e.Data + ".operator.yaml"
		if err := os.WriteFile(file, []byte(cfg.OperatorPolicy), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(file) })
		e.args = append(e.args, "--policy-operator", file)
	}
	t.Cleanup(e.stop)
	e.Up()
	return e
}

// Images is where the tests' platforms share their root images: making one
// takes half a minute.
func Images(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "cofferdam-test", "images")
}

// folder makes the data folder: outside of t.TempDir, whose long name would
// not fit into the address of a Unix socket.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cfd")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the daemons run as other users
		t.Fatal(err)
	}
	return dir
}

func (e *Env) stop() {
	if e.T.Failed() {
		e.T.Log(e.Logs())
	}
	e.Down()
	if !e.T.Failed() || os.Getenv("COFFERDAM_KEEP") == "" {
		if err := os.RemoveAll(e.Data); err != nil {
			e.T.Errorf("remove the data folder: %v", err)
		}
	}
}

// Up runs `cofferdam up --detach` with the environment's flags, as at the
// start; a test calls it after it killed the supervisor.
func (e *Env) Up() {
	e.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	argv := slices.Concat(e.within, []string{filepath.Join(e.bin, "cofferdam")}, e.args)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+e.Data, "XDG_CONFIG_HOME="+e.Data+"/config")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		e.T.Fatalf("cofferdam %s: %v\n%s\n%s", strings.Join(e.args, " "), err, out.Bytes(), e.Logs())
	}
	var conf struct{ URL, Token string }
	b, err := os.ReadFile(filepath.Join(e.Data, "client.json"))
	if err == nil {
		err = json.Unmarshal(b, &conf)
	}
	if err != nil {
		e.T.Fatalf("client.json: %v", err)
	}
	e.URL, e.Token = conf.URL, conf.Token
	if e.Client, err = client.New(conf.URL, conf.Token); err != nil {
		e.T.Fatal(err)
	}
}

// Down runs `cofferdam down`.
func (e *Env) Down() {
	e.T.Helper()
	if out, err := e.CLI("down", "--data", e.Data); err != nil {
		e.T.Errorf("cofferdam down: %v\n%s", err, out)
	}
}

// CLI runs the cofferdam program as a user of this platform and returns what
// it printed on both outputs; the error has the exit code.
func (e *Env) CLI(args ...string) (string, error) {
	cmd := e.Command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// Command is the cofferdam program as a user of this platform would run it.
func (e *Env) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(e.bin, "cofferdam"), args...)
	cmd.Env = append(os.Environ(), "COFFERDAM_URL="+e.URL, "COFFERDAM_TOKEN="+e.Token, "HOME="+e.Data)
	return cmd
}

// ExitCode is the exit code in an error of CLI; 0 for nil.
func ExitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// Boot is what a daemon wrote when it was ready.
type Boot struct {
	Program string `json:"program"`
	PID     int    `json:"pid"`
	Boot    string `json:"boot"`
	Address string `json:"address"`
}

// Boot returns the daemon's boot record; its folder names it.
func (e *Env) Boot(daemon string) (Boot, error) {
	var boot Boot
	b, err := os.ReadFile(filepath.Join(e.Data, daemon, "boot.json"))
	if err != nil {
		return boot, err
	}
	return boot, json.Unmarshal(b, &boot)
}

// Kill kills the daemon with SIGKILL and returns what it was. The pid comes
// from its boot record and is checked to be a process of this installation.
func (e *Env) Kill(daemon string) Boot {
	e.T.Helper()
	boot, err := e.Boot(daemon)
	if err != nil {
		e.T.Fatalf("kill %s: %v", daemon, err)
	}
	e.kill(boot.PID)
	return boot
}

// Supervisor returns the pid of the `up` process of this installation.
func (e *Env) Supervisor() int {
	e.T.Helper()
	for _, p := range e.Processes() {
		if p.Name == "cofferdam" && strings.Contains(p.Args, " up ") {
			return p.PID
		}
	}
	e.T.Fatal("no supervisor runs")
	return 0
}

// KillSupervisor kills the `up` process with SIGKILL.
func (e *Env) KillSupervisor() int {
	e.T.Helper()
	pid := e.Supervisor()
	e.kill(pid)
	return pid
}

func (e *Env) kill(pid int) {
	e.T.Helper()
	args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || !bytes.Contains(args, []byte(e.Data)) {
		e.T.Fatalf("process %d is not one of this installation (%q, %v)", pid, args, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		e.T.Fatalf("kill %d: %v", pid, err)
	}
}

// Reborn waits until the daemon is there with another boot id and returns it.
func (e *Env) Reborn(daemon string, old Boot) Boot {
	e.T.Helper()
	var boot Boot
	Until(e.T, 3*time.Minute, daemon+" to come back with another boot id", func() bool {
		var err error
		boot, err = e.Boot(daemon)
		return err == nil && boot.Boot != "" && boot.Boot != old.Boot && boot.PID != old.PID
	})
	return boot
}

// Logs returns the ends of the daemons' logs.
func (e *Env) Logs() string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(e.Data, "log", "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		var lines []string
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "msg=request") || !strings.Contains(line, "status=20") {
				lines = append(lines, line)
			}
		}
		lines = lines[max(0, len(lines)-40):]
		fmt.Fprintf(&b, "--- %s\n%s\n", filepath.Base(f), strings.Join(lines, ""))
	}
	return b.String()
}

// Until polls a condition and fails the test when it does not become true.
func Until(t testing.TB, patience time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// FreePort returns a TCP port of the loopback that was free a moment ago.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// WaitTask waits until the task has ended and returns it.
func (e *Env) WaitTask(id string, patience time.Duration) api.Task {
	e.T.Helper()
	var last api.Task
	Until(e.T, patience, "the end of task "+id, func() bool {
		t, err := e.Client.Task(context.Background(), id)
		if err != nil {
			return false
		}
		last = t
		return t.Ended()
	})
	return last
}

// Stage returns the named stage of a task.
func Stage(t api.Task, name string) api.Stage {
	for _, s := range t.Stages {
		if s.Name == name {
			return s
		}
	}
	return api.Stage{}
}

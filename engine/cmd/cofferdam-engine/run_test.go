package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/cofferdam/cofferdam/engine/internal/embedded"
)

// asEngine, when set, makes this test program the engine, so that it can be
// killed.
const asEngine = "COFFERDAM_TEST_ENGINE"

func TestMain(m *testing.M) {
	if os.Getenv(asEngine) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// engine is an engine on a folder, as a process.
type engine struct {
	t    *testing.T
	data string
	cmd  *exec.Cmd
	log  bytes.Buffer
	boot struct {
		Program, Boot, Address string
		PID                    int
	}
}

func start(t *testing.T, data string) *engine {
	t.Helper()
	e := &engine{t: t, data: data, cmd: exec.Command(os.Args[0], "--data", data)}
	e.cmd.Env = append(os.Environ(), asEngine+"=1")
	e.cmd.Stderr = &e.log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.kill)
	deadline := time.Now().Add(2 * time.Minute)
	for e.boot.PID != e.cmd.Process.Pid {
		if time.Now().After(deadline) {
			e.kill()
			t.Fatalf("the engine does not serve:\n%s", e.log.String())
		}
		b, _ := os.ReadFile(e.file("boot.json"))
		_ = json.Unmarshal(b, &e.boot) // an old or no file: looked at again
		<-time.After(10 * time.Millisecond)
	}
	return e
}

func (e *engine) file(name string) string { return filepath.Join(e.data, "engine", name) }

// kill is kill -9. Only afterwards may the log be read.
func (e *engine) kill() {
	_ = e.cmd.Process.Kill() // it may be gone
	_ = e.cmd.Wait()         // it was killed: always an error
}

func (e *engine) dial(token string) client.Client {
	e.t.Helper()
	c, err := client.NewLazyClient(client.Options{
		HostPort: e.boot.Address, Namespace: embedded.Namespace,
		Credentials:       client.NewAPIKeyStaticCredentials(token),
		ConnectionOptions: client.ConnectionOptions{TLSDisabled: true},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(c.Close)
	return c
}

func (e *engine) token() string {
	e.t.Helper()
	b, err := os.ReadFile(e.file("token"))
	if err != nil {
		e.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestServesWithTheTokenOnly(t *testing.T) {
	e := start(t, t.TempDir())
	for _, name := range []string{"token", "engine.db", "VERSION", "boot.json"} {
		info, err := os.Stat(e.file(name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, token := range []string{"", "wrong", e.token() + "x", strings.ToLower(e.token())} {
		c := e.dial(token)
		var denied *serviceerror.PermissionDenied
		if _, err := c.CheckHealth(ctx, nil); err == nil {
			t.Errorf("token %q: the health check is answered", token)
		}
		if _, err := c.DescribeWorkflowExecution(ctx, "any", ""); !errors.As(err, &denied) {
			t.Errorf("token %q: %v", token, err)
		}
	}
	c := e.dial(e.token())
	d, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: embedded.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Config.WorkflowExecutionRetentionTtl.AsDuration(); got != embedded.Retention {
		t.Errorf("retention %v", got)
	}
	// The token is for tasks, not for the engine.
	_, err = c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{Namespace: "other"})
	var denied *serviceerror.PermissionDenied
	if !errors.As(err, &denied) {
		t.Errorf("the token makes namespaces: %v", err)
	}
}

// Every listener is on the loopback interface, and all but the front demand a
// certificate that nobody else has.
func TestListeners(t *testing.T) {
	e := start(t, t.TempDir())
	listeners := listenersOf(t, e.cmd.Process.Pid)
	if len(listeners) != 5 {
		t.Errorf("listeners: %v", listeners)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, at := range listeners {
		host, _, err := net.SplitHostPort(at)
		if err != nil || host != "127.0.0.1" {
			t.Errorf("listener %s", at)
		}
		if at == e.boot.Address {
			continue
		}
		c, err := client.NewLazyClient(client.Options{
			HostPort: at, Namespace: embedded.Namespace, ConnectionOptions: client.ConnectionOptions{TLSDisabled: true},
			Credentials: client.NewAPIKeyStaticCredentials(e.token()),
		})
		if err != nil {
			t.Fatal(err)
		}
		one, stop := context.WithTimeout(ctx, 3*time.Second)
		_, err = c.WorkflowService().GetSystemInfo(one, &workflowservice.GetSystemInfoRequest{})
		stop()
		c.Close()
		var unavailable *serviceerror.Unavailable
		var late *serviceerror.DeadlineExceeded
		if !errors.As(err, &unavailable) && !errors.As(err, &late) {
			t.Errorf("%s answers without a certificate: %v", at, err)
		}
	}
}

// listenersOf asks ss for the process's listening TCP sockets.
func listenersOf(t *testing.T, pid int) []string {
	t.Helper()
	out, err := exec.Command("ss", "-Hltnp").Output()
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.Contains(line, "pid="+strconv.Itoa(pid)+",") {
			at = append(at, fields[3])
		}
	}
	return at
}

// twoSteps does one step, waits for a signal, and does another.
func twoSteps(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	if err := workflow.ExecuteActivity(ctx, "step").Get(ctx, nil); err != nil {
		return err
	}
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
	return workflow.ExecuteActivity(ctx, "step").Get(ctx, nil)
}

func TestKilledWithAWorkflowInFlight(t *testing.T) {
	e := start(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := e.dial(e.token())
	var steps atomic.Int32
	w := worker.New(c, "q", worker.Options{})
	w.RegisterWorkflowWithOptions(twoSteps, workflow.RegisterOptions{Name: "two"})
	w.RegisterActivityWithOptions(func(context.Context) error { steps.Add(1); return nil }, activity.RegisterOptions{Name: "step"})
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "w", TaskQueue: "q"}, "two"); err != nil {
		t.Fatal(err)
	}
	ended := func() bool {
		d, err := c.DescribeWorkflowExecution(ctx, "w", "")
		return err == nil && d.WorkflowExecutionInfo.Status == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	}
	wait(ctx, t, "the first step", func() bool { return steps.Load() == 1 })
	boot, address := e.boot.Boot, e.boot.Address
	e.kill()
	e = start(t, e.data)
	if e.boot.Boot == boot || e.boot.Address != address {
		t.Errorf("boot %s then %s, address %s then %s", boot, e.boot.Boot, address, e.boot.Address)
	}
	wait(ctx, t, "the signal is taken", func() bool { return c.SignalWorkflow(ctx, "w", "", "go", nil) == nil })
	wait(ctx, t, "the end", ended)
	// A step whose end was not yet acknowledged at the kill may run again.
	if n := steps.Load(); n < 2 || n > 3 {
		t.Errorf("%d steps", n)
	}
}

func wait(ctx context.Context, t *testing.T, what string, done func() bool) {
	t.Helper()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestFilesThatAreMovedAside(t *testing.T) {
	for name, spoil := range map[string]func(e *engine) error{
		"other version": func(e *engine) error {
			return os.WriteFile(e.file("VERSION"), []byte("temporal-server 1.0.0\nshards 4\n"), 0o600)
		},
		"no version": func(e *engine) error { return os.Remove(e.file("VERSION")) },
		"damaged": func(e *engine) error {
			return os.WriteFile(e.file("engine.db"), bytes.Repeat([]byte("no database "), 1000), 0o600)
		},
		"damaged inside": func(e *engine) error {
			f, err := os.OpenFile(e.file("engine.db"), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, 200_000), 8192)
			return errors.Join(err, f.Close())
		},
		"empty": func(e *engine) error { return os.Truncate(e.file("engine.db"), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			e := start(t, t.TempDir())
			e.stop()
			if err := spoil(e); err != nil {
				t.Fatal(err)
			}
			e = start(t, e.data)
			e.stop()
			old, err := filepath.Glob(e.file("engine.db.*.old"))
			if err != nil || len(old) != 1 {
				t.Errorf("moved aside: %v, %v", old, err)
			}
			if !strings.Contains(e.log.String(), "moved aside") {
				t.Errorf("the log does not say so:\n%s", e.log.String())
			}
		})
	}
}

// stop is SIGTERM, and a clean end.
func (e *engine) stop() {
	e.t.Helper()
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		e.t.Fatal(err)
	}
	if err := e.cmd.Wait(); err != nil {
		e.t.Errorf("SIGTERM: %v\n%s", err, e.log.String())
	}
}

func TestOneEngineAFolder(t *testing.T) {
	e := start(t, t.TempDir())
	err := Run(t.Context(), []string{"--data", e.data}, new(bytes.Buffer))
	if !errors.Is(err, embedded.ErrInUse) {
		t.Errorf("a second engine: %v", err)
	}
	e.stop()
}

func TestArguments(t *testing.T) {
	data := t.TempDir()
	for _, listen := range []string{"0.0.0.0:0", "[::]:0", ":7233", "localhost:0"} {
		if err := Run(t.Context(), []string{"--data", data, "--listen", listen}, new(bytes.Buffer)); err == nil {
			t.Errorf("listens on %s", listen)
		}
	}
	for _, args := range [][]string{{"--no-such"}, {"surplus"}} {
		if err := Run(t.Context(), args, new(bytes.Buffer)); !errors.Is(err, errUsage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestPortTaken(t *testing.T) {
	e := start(t, t.TempDir())
	first := e.boot.Address
	e.stop()
	l, err := net.Listen("tcp4", first)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e = start(t, e.data)
	if e.boot.Address == first {
		t.Errorf("serves at %s, which is taken", first)
	}
	e.stop()
}

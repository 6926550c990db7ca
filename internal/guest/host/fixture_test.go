package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent"
)

// roleVariable makes the test program another program: the real guest, as a
// process of its own, or a worker to kill.
const roleVariable = "COFFERDAM_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch role, folder, _ := strings.Cut(os.Getenv(roleVariable), ":"); role {
	case "guest":
		err = serveGuest(folder)
	case "worker":
		err = followAsWorker(folder)
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func serveGuest(folder string) error {
	os.Unsetenv(roleVariable)
	a, err := agent.New(agent.Options{
		Root: filepath.Join(folder, "root"), Workspace: filepath.Join(folder, "workspace"), SameUser: os.Geteuid() != 0,
	})
	if err != nil {
		return err
	}
	return a.Serve(context.Background(), agent.Descriptor(0), agent.Descriptor(1))
}

// place is a guest in a folder, with its FIFOs.
type place struct {
	t      *testing.T
	folder string
	guest  *exec.Cmd
}

// newPlace starts the real guest as a child.
func newPlace(t *testing.T) *place {
	t.Helper()
	p := newFIFOs(t)
	p.guest = exec.Command(os.Args[0])
	p.guest.Env = append(os.Environ(), roleVariable+"=guest:"+p.folder)
	p.guest.Stderr = os.Stderr
	in, out := p.open()
	p.guest.Stdin, p.guest.Stdout = in, out
	if err := p.guest.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	t.Cleanup(func() {
		p.guest.Process.Kill()
		p.guest.Wait()
	})
	return p
}

// newFIFOs makes the folder of a guest without starting one.
func newFIFOs(t *testing.T) *place {
	t.Helper()
	// Not t.TempDir: the workload's user must be able to enter it.
	folder, err := os.MkdirTemp("", "guest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	p := &place{t: t, folder: folder}
	for _, name := range []string{"in", "out"} {
		if err := unix.Mkfifo(filepath.Join(folder, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	workspace := filepath.Join(folder, "workspace")
	if err := os.Mkdir(workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(workspace, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *place) workspace(parts ...string) string {
	return filepath.Join(append([]string{p.folder, "workspace"}, parts...)...)
}

func (p *place) open() (in, out *os.File) {
	p.t.Helper()
	in, out, err := openFIFOs(p.folder)
	if err != nil {
		p.t.Fatal(err)
	}
	return in, out
}

func openFIFOs(folder string) (in, out *os.File, err error) {
	in, err = os.OpenFile(filepath.Join(folder, "in"), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err == nil {
		out, err = os.OpenFile(filepath.Join(folder, "out"), os.O_RDWR|unix.O_NONBLOCK, 0)
	}
	return in, out, err
}

// dial is a worker in this process.
func (p *place) dial() *Conn {
	p.t.Helper()
	in, out := p.open()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Dial(ctx, Options{In: in, Out: out, Dir: filepath.Join(p.folder, "journals"), Logger: testLog(p.t)})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		c.Close()
		in.Close()
		out.Close()
	})
	return c
}

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// soon bounds a call that should not take long, and never decides a test.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// run starts a command and waits for its end.
func run(t *testing.T, c *Conn, cmd guest.Command) (stdout, stderr string, s guest.Status) {
	t.Helper()
	if _, err := c.Start(soon(t), cmd); err != nil {
		t.Fatal(err)
	}
	return attach(t, c.Journals(), cmd.ID)
}

func attach(t *testing.T, j *Journals, id string) (stdout, stderr string, s guest.Status) {
	t.Helper()
	stream, err := j.Attach(soon(t), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var out [3]bytes.Buffer
	for {
		chunk, err := stream.Next()
		if err == io.EOF {
			return out[1].String(), out[2].String(), stream.Status()
		}
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		out[chunk.Fd].Write(chunk.Data)
	}
}

func sh(id, script string) guest.Command {
	return guest.Command{ID: id, Argv: []string{"/bin/sh", "-c", script}}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// childrenOf lists the children of a process with their state.
func childrenOf(pid int) map[int]string {
	children := map[int]string{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			children[child] = fields[0]
		}
	}
	return children
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

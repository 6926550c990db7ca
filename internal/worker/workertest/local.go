// Package workertest is a sandbox.Driver for tests of what lies around one: its
// sandboxes are folders and its commands are processes of this machine. They
// survive the process that started them, and another Local over the same
// folder finds them again, as with a real driver.
//
// Not promised: any isolation whatsoever. Tests only.
package workertest

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Local is the driver.
type Local struct {
	dir string
	mu  sync.Mutex
}

var _ sandbox.Driver = (*Local)(nil)

// New returns a driver over a folder that exists.
func New(dir string) *Local { return &Local{dir: dir} }

func (l *Local) box(id string) string { return filepath.Join(l.dir, id) }

func (l *Local) command(id, command string) string {
	return filepath.Join(l.dir, id, "commands", command)
}

func missing(what string) error { return task.Fail(task.InputNotFound, "no "+what, nil) }

// Create implements sandbox.Driver.
func (l *Local) Create(_ context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info, err := l.read(spec.ID); err == nil {
		return info, nil
	}
	info := sandbox.Info{Spec: spec, State: sandbox.Live, PID: os.Getpid(), Kernel: "local", CreatedAt: time.Now().UTC()}
	text, err := json.Marshal(info)
	if err != nil {
		return info, err
	}
	for _, dir := range []string{"commands", "files"} {
		if err := os.MkdirAll(filepath.Join(l.box(spec.ID), dir), 0o700); err != nil {
			return info, err
		}
	}
	return info, os.WriteFile(filepath.Join(l.box(spec.ID), "info"), text, 0o600)
}

func (l *Local) read(id string) (sandbox.Info, error) {
	var info sandbox.Info
	text, err := os.ReadFile(filepath.Join(l.box(id), "info"))
	if err != nil {
		return info, missing("sandbox " + id)
	}
	return info, json.Unmarshal(text, &info)
}

// script runs the command, keeps its output and, at the end, its exit code.
const script = `d=$1; shift; "$@" >"$d/out" 2>&1 </dev/null & echo $! >"$d/child"
wait $!; echo $? >"$d/exit.new"; mv "$d/exit.new" "$d/exit"`

// Start implements sandbox.Driver.
func (l *Local) Start(_ context.Context, id string, cmd sandbox.Command) (sandbox.Status, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.read(id); err != nil {
		return sandbox.Status{}, err
	}
	dir := l.command(id, cmd.ID)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return l.status(id, cmd.ID), nil
	} else if err != nil {
		return sandbox.Status{}, err
	}
	proc := exec.Command("/bin/sh", append([]string{"-c", script, "sh", dir}, cmd.Argv...)...)
	proc.Dir = filepath.Join(l.box(id), "files")
	proc.Env = append(os.Environ(), cmd.Env...)
	proc.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := proc.Start(); err != nil {
		return sandbox.Status{}, err
	}
	go func() { _ = proc.Wait() }()
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(proc.Process.Pid)), 0o600); err != nil {
		return sandbox.Status{}, err
	}
	status := l.status(id, cmd.ID)
	status.Started = true
	return status, nil
}

func (l *Local) status(id, command string) sandbox.Status {
	s := sandbox.Status{ID: command, Phase: sandbox.CommandRunning, PID: l.pid(id, command)}
	code, err := os.ReadFile(filepath.Join(l.command(id, command), "exit"))
	if info, serr := os.Stat(filepath.Join(l.command(id, command), "out")); serr == nil {
		s.Output, s.StartedAt = info.Size(), info.ModTime().UTC()
	}
	if err == nil {
		s.Phase, s.EndedAt = sandbox.CommandExited, time.Now().UTC()
		if s.ExitCode, err = strconv.Atoi(strings.TrimSpace(string(code))); err != nil {
			s.ExitCode = -1
		}
		if s.ExitCode > 128 {
			s.Signal, s.ExitCode = s.ExitCode-128, -1
		}
	}
	return s
}

func (l *Local) pid(id, command string) int {
	text, err := os.ReadFile(filepath.Join(l.command(id, command), "pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return 0
	}
	return pid
}

// Attach implements sandbox.Driver.
func (l *Local) Attach(ctx context.Context, id, command string, offset int64) (sandbox.Stream, error) {
	if _, err := os.Stat(l.command(id, command)); err != nil {
		return nil, missing("command " + command)
	}
	return &tail{l: l, ctx: ctx, id: id, command: command, offset: offset, buf: make([]byte, 100<<10)}, nil
}

type tail struct {
	l           *Local
	ctx         context.Context
	id, command string
	offset      int64
	buf         []byte
	file        *os.File
}

// Next implements sandbox.Stream.
func (t *tail) Next() (sandbox.Chunk, error) {
	for {
		if t.file == nil {
			file, err := os.Open(filepath.Join(t.l.command(t.id, t.command), "out"))
			if err == nil {
				t.file = file
			}
		}
		ended := t.Status().Phase == sandbox.CommandExited
		if t.file != nil {
			n, _ := t.file.ReadAt(t.buf, t.offset)
			if n > 0 {
				chunk := sandbox.Chunk{Fd: 1, Offset: t.offset, Data: t.buf[:n]}
				t.offset += int64(n)
				return chunk, nil
			}
		}
		if ended {
			return sandbox.Chunk{}, io.EOF
		}
		if _, err := t.l.read(t.id); err != nil {
			return sandbox.Chunk{}, task.Fail(task.InfraSandboxLost, "destroyed", nil)
		}
		select {
		case <-t.ctx.Done():
			return sandbox.Chunk{}, t.ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Status implements sandbox.Stream.
func (t *tail) Status() sandbox.Status { return t.l.status(t.id, t.command) }

// Close implements sandbox.Stream.
func (t *tail) Close() error {
	if t.file != nil {
		return t.file.Close()
	}
	return nil
}

// Signal implements sandbox.Driver. The signal goes to what the shell runs, so
// that the shell can write down how it ended.
func (l *Local) Signal(_ context.Context, id, command string, signal int) error {
	if _, err := os.Stat(l.command(id, command)); err != nil {
		return missing("command " + command)
	}
	if l.status(id, command).Phase == sandbox.CommandExited {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(l.command(id, command), "child"))
	if err != nil {
		return nil // Not there yet.
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.Signal(signal)); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// Put implements sandbox.Driver.
func (l *Local) Put(_ context.Context, id, dir string, in io.Reader) error {
	if _, err := l.read(id); err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(l.box(id), "files"))
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return task.Fail(task.InputInvalid, "not a tar stream", err)
		}
		name := strings.TrimPrefix(path.Join(dir, h.Name), "/")
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		file, err := root.Create(name)
		if err != nil {
			return err
		}
		if _, err := io.Copy(file, r); err != nil {
			file.Close()
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
}

// Get implements sandbox.Driver, for one file.
func (l *Local) Get(_ context.Context, id, name string, _ []string) (io.ReadCloser, error) {
	file, err := os.Open(filepath.Join(l.box(id), "files", filepath.Clean("/"+name)))
	if err != nil {
		return nil, missing("file " + name)
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, err
	}
	out, in := io.Pipe()
	go func() {
		defer file.Close()
		w := tar.NewWriter(in)
		err := w.WriteHeader(&tar.Header{Name: path.Base(name), Mode: 0o644, Size: info.Size()})
		if err == nil {
			_, err = io.Copy(w, file)
		}
		in.CloseWithError(errors.Join(err, w.Close()))
	}()
	return out, nil
}

// Destroy implements sandbox.Driver.
func (l *Local) Destroy(ctx context.Context, id string) error {
	entries, err := os.ReadDir(filepath.Join(l.box(id), "commands"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if l.status(id, e.Name()).Phase == sandbox.CommandExited {
			continue
		}
		if pid := l.pid(id, e.Name()); pid > 1 {
			_ = syscall.Kill(-pid, syscall.SIGKILL) // The session's process group.
		}
	}
	return os.RemoveAll(l.box(id))
}

// List implements sandbox.Driver.
func (l *Local) List(context.Context) ([]sandbox.Info, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	infos := []sandbox.Info{}
	for _, e := range entries {
		if info, err := l.read(e.Name()); err == nil {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b sandbox.Info) int { return strings.Compare(a.ID, b.ID) })
	return infos, nil
}

// Audit implements sandbox.Driver.
func (l *Local) Audit(context.Context) ([]sandbox.Leftover, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var leftovers []sandbox.Leftover
	for _, e := range entries {
		if _, err := l.read(e.Name()); err != nil {
			leftovers = append(leftovers, sandbox.Leftover{Kind: "folder", Name: e.Name()})
		}
	}
	return leftovers, nil
}

// Gateway is a worker.Egress for tests: its epoch is a file, so that a test may
// change it from another process.
type Gateway struct {
	File string // holds the epoch

	mu     sync.Mutex
	Grants []task.Grant // in the order they were set
}

// SetGrant notes the grant.
func (g *Gateway) SetGrant(_ context.Context, grant task.Grant) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Grants = append(g.Grants, grant)
	return nil
}

// Set returns the grants that were set, in order.
func (g *Gateway) Set() []task.Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.Grants)
}

// Epoch reads the file; none is no gateway.
func (g *Gateway) Epoch() string {
	text, err := os.ReadFile(g.File)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// maxSeq is how many records a sandbox has.
const maxSeq = 12_345

// Records makes records up.
func (g *Gateway) Records(_ context.Context, id string, after int64) ([]task.EgressRecord, error) {
	var records []task.EgressRecord
	for seq := after + 1; seq <= maxSeq; seq++ {
		records = append(records, task.EgressRecord{Seq: seq, Sandbox: id, Verdict: "denied"})
	}
	return records, nil
}

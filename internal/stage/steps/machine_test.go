package steps

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// machine is a small working fleet: a sandbox is a folder, a command a real
// process in it. /workspace, /tmp/ and HOME are mapped into the folder by
// rewriting the command.
type machine struct {
	t    *testing.T
	root string

	mu      sync.Mutex
	live    map[string]*place
	made    map[string]sandbox.Spec // ever
	grants  []task.Grant
	epoch   string
	egress  map[string][]task.EgressRecord
	onRun   func(id, command string) error // before a command is run; for faults
	starts  map[string]int                 // by sandbox/command
	onGrant func(task.Grant) error
	deaf    bool // no command takes input
}

type place struct {
	dir      string
	commands map[string]*process
}

type process struct {
	mu     sync.Mutex
	out    []byte
	done   chan struct{}
	status sandbox.Status
	pid    int
	epoch  string

	input io.WriteCloser // nil: it has none, or it is closed
	taken int64
	grown chan struct{} // closed when more was written
}

func newMachine(t *testing.T) *machine {
	m := &machine{
		t: t, root: t.TempDir(), live: map[string]*place{}, made: map[string]sandbox.Spec{},
		epoch: "one", egress: map[string][]task.EgressRecord{}, starts: map[string]int{},
	}
	t.Cleanup(func() {
		for _, id := range m.alive() {
			_ = m.Destroy(context.Background(), id)
		}
	})
	return m
}

func (m *machine) alive() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.live))
}

func (m *machine) place(id string) (*place, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.live[id]
	if !ok {
		return nil, task.Fail(task.InfraSandboxLost, "no such sandbox", nil)
	}
	return p, nil
}

func (m *machine) Create(_ context.Context, spec sandbox.Spec) (string, sandbox.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !sandbox.ValidID(spec.ID) {
		return "", sandbox.Info{}, task.Fail(task.InputInvalid, "bad id", nil)
	}
	if m.live[spec.ID] == nil {
		dir := filepath.Join(m.root, spec.ID)
		for _, d := range []string{"workspace", "tmp", "home"} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
				return "", sandbox.Info{}, err
			}
		}
		m.live[spec.ID] = &place{dir: dir, commands: map[string]*process{}}
		m.made[spec.ID] = spec
	}
	return "w1", sandbox.Info{Spec: spec, State: sandbox.Live, Kernel: "none"}, nil
}

func (m *machine) Grant(_ context.Context, g task.Grant) error {
	if _, err := m.place(g.Sandbox); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.made[g.Sandbox].Network {
		return task.Fail(task.InputInvalid, "a sandbox without a network has no grant", nil)
	}
	m.grants = append(m.grants, g)
	if m.onGrant != nil {
		return m.onGrant(g)
	}
	return nil
}

func mapped(dir, s string) string {
	return strings.NewReplacer("/workspace", dir+"/workspace", "/tmp/", dir+"/tmp/").Replace(s)
}

func (m *machine) Run(ctx context.Context, id string, cmd sandbox.Command, offset int64, out io.Writer, beat func()) (stage.Result, error) {
	p, err := m.place(id)
	if err != nil {
		return stage.Result{}, err
	}
	if m.onRun != nil {
		if err := m.onRun(id, cmd.ID); err != nil {
			return stage.Result{}, err
		}
	}
	proc := m.start(id, p, cmd)
	beat()
	if cmd.Stdin {
		if offset, err = m.follow(ctx, proc, offset, out); err != nil {
			return stage.Result{}, err
		}
	}
	select {
	case <-proc.done:
	case <-ctx.Done():
		return stage.Result{}, ctx.Err()
	}
	proc.mu.Lock()
	defer proc.mu.Unlock()
	if offset > int64(len(proc.out)) {
		return stage.Result{}, task.Fail(task.InputInvalid, "offset beyond the end", nil)
	}
	if _, err := out.Write(proc.out[offset:]); err != nil {
		return stage.Result{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return stage.Result{Status: proc.status, EpochBefore: proc.epoch, EpochAfter: m.epoch}, nil
}

func (m *machine) start(id string, p *place, cmd sandbox.Command) *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if proc, ok := p.commands[cmd.ID]; ok {
		return proc
	}
	m.starts[id+"/"+cmd.ID]++
	proc := &process{done: make(chan struct{}), grown: make(chan struct{}), epoch: m.epoch, status: sandbox.Status{ID: cmd.ID, Phase: sandbox.CommandRunning, StartedAt: time.Now()}}
	p.commands[cmd.ID] = proc
	argv := make([]string, len(cmd.Argv))
	for i, a := range cmd.Argv {
		argv[i] = mapped(p.dir, a)
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir = filepath.Join(p.dir, "workspace")
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(p.dir, "home"), "TMPDIR=" + filepath.Join(p.dir, "tmp"), "T=" + filepath.Join(p.dir, "tmp")}, cmd.Env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Stdout, c.Stderr = proc, proc
	c.WaitDelay = 50 * time.Millisecond
	if cmd.Stdin {
		in, err := c.StdinPipe()
		if err != nil {
			m.t.Error(err)
		}
		proc.input = in
	}
	if err := c.Start(); err != nil {
		proc.status.Phase, proc.status.ExitCode, proc.status.Error = sandbox.CommandExited, -1, err.Error()
		close(proc.done)
		return proc
	}
	proc.pid = c.Process.Pid
	go func() {
		_ = c.Wait()
		proc.mu.Lock()
		proc.status.Phase, proc.status.ExitCode, proc.status.EndedAt = sandbox.CommandExited, c.ProcessState.ExitCode(), time.Now()
		if ws := c.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
			proc.status.Signal = int(ws.Signal())
		}
		proc.mu.Unlock()
		close(proc.done)
	}()
	return proc
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = append(p.out, b...)
	close(p.grown)
	p.grown = make(chan struct{})
	return len(b), nil
}

// follow copies output as it comes, until the process ends or out fails.
func (m *machine) follow(ctx context.Context, p *process, offset int64, out io.Writer) (int64, error) {
	for {
		p.mu.Lock()
		news, grown := p.out[min(offset, int64(len(p.out))):], p.grown
		p.mu.Unlock()
		if _, err := out.Write(news); err != nil {
			return offset, err
		}
		offset += int64(len(news))
		select {
		case <-p.done:
			return offset, nil
		case <-ctx.Done():
			return offset, ctx.Err()
		case <-grown:
		}
	}
}

// Input gives a process what it has not taken yet, at most ten bytes at once.
func (m *machine) Input(_ context.Context, id, command string, in sandbox.Input) (sandbox.Taken, error) {
	if m.deaf {
		return sandbox.Taken{}, task.Fail(task.InfraWorkerLost, "the worker does not answer", nil)
	}
	p, err := m.place(id)
	if err != nil {
		return sandbox.Taken{}, err
	}
	m.mu.Lock()
	proc := p.commands[command]
	m.mu.Unlock()
	if proc == nil {
		return sandbox.Taken{}, task.Fail(task.InputNotFound, "no such command", nil)
	}
	proc.mu.Lock()
	defer proc.mu.Unlock()
	if in.Offset > proc.taken {
		return sandbox.Taken{}, task.Fail(task.InputInvalid, "a gap", nil)
	}
	if proc.input == nil {
		return sandbox.Taken{Offset: proc.taken}, nil
	}
	data := in.Data[min(proc.taken-in.Offset, int64(len(in.Data))):]
	data = data[:min(len(data), 10)]
	proc.taken += int64(len(data))
	_, err = proc.input.Write(data)
	if err != nil || in.Close && proc.taken == in.Offset+int64(len(in.Data)) {
		_ = proc.input.Close()
		proc.input = nil
	}
	return sandbox.Taken{Offset: proc.taken, Open: proc.input != nil}, nil
}

func (m *machine) Kill(_ context.Context, id, command string) error {
	p, err := m.place(id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	proc := p.commands[command]
	m.mu.Unlock()
	if proc == nil {
		return task.Fail(task.InputNotFound, "no such command", nil)
	}
	if proc.pid > 0 {
		_ = syscall.Kill(-proc.pid, syscall.SIGKILL)
		<-proc.done
	}
	return nil
}

func (m *machine) Put(_ context.Context, id, dir string, from io.Reader) error {
	p, err := m.place(id)
	if err != nil {
		return err
	}
	dir = mapped(p.dir, dir+"/")
	archive := tar.NewReader(from)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := filepath.Join(dir, h.Name)
		if !strings.HasPrefix(to, filepath.Clean(dir)) {
			return task.Fail(task.InputInvalid, "leaves the folder: "+h.Name, nil)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(to, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, to)
		case tar.TypeLink:
			err = os.Link(filepath.Join(dir, h.Linkname), to)
		default:
			var b []byte
			if b, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(to, b, fs.FileMode(h.Mode).Perm())
			}
		}
		if err != nil {
			return err
		}
	}
}

func (m *machine) Get(_ context.Context, id, path string, exclude []string) (io.ReadCloser, error) {
	p, err := m.place(id)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	root := filepath.Clean(mapped(p.dir, path))
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		if slices.Contains(exclude, rel) {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			link, _ = os.Readlink(name)
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name = filepath.Join(filepath.Base(path), rel)
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, task.Fail(task.InputNotFound, "no such file", err)
	}
	return io.NopCloser(&out), errors.Join(err, w.Close())
}

func (m *machine) Destroy(ctx context.Context, id string) error {
	p, err := m.place(id)
	if err != nil {
		return nil
	}
	for command := range p.commands {
		if err := m.Kill(ctx, id, command); err != nil {
			return err
		}
	}
	m.mu.Lock()
	delete(m.live, id)
	m.mu.Unlock()
	return os.RemoveAll(p.dir)
}

func (m *machine) Egress(_ context.Context, id string, after int64) ([]task.EgressRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []task.EgressRecord
	for _, r := range m.egress[id] {
		if r.Seq > after {
			out = append(out, r)
		}
	}
	return out, nil
}

// restartGateway changes the gateway's epoch once the agent runs, and lets the
// agent go on.
func (m *machine) restartGateway(id string) {
	for {
		m.mu.Lock()
		p := m.live[id]
		running := p != nil && p.commands["agent"] != nil
		if running {
			m.epoch += "+"
		}
		m.mu.Unlock()
		if running {
			if err := os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o644); err != nil {
				m.t.Error(err)
			}
			return
		}
		<-time.After(time.Millisecond)
	}
}

package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// machines is a fleet of one machine whose commands are journals that a test
// writes to.
type machines struct {
	mu      sync.Mutex
	boxes   map[string]sandbox.Info
	grants  map[string]task.Grant
	cmds    map[string]*journal // "sandbox/command"
	starts  int
	files   map[string][]byte
	reports []fleet.Report
	script  func(j *journal, cmd sandbox.Command) // what a command does when started
	fail    error

	consoles map[*journal]*console
	agent    fleet.Agent
}

func newMachines() *machines {
	return &machines{boxes: map[string]sandbox.Info{}, grants: map[string]task.Grant{}, cmds: map[string]*journal{}, files: map[string][]byte{}}
}

func (f *machines) Create(_ context.Context, spec sandbox.Spec) (string, sandbox.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return "", sandbox.Info{}, f.fail
	}
	if i, ok := f.boxes[spec.ID]; ok {
		return "w1", i, nil
	}
	i := sandbox.Info{Spec: spec, State: sandbox.Live, PID: 7, Kernel: "gvisor systrap", CreatedAt: time.Now()}
	f.boxes[spec.ID] = i
	return "w1", i, nil
}

func (f *machines) Grant(_ context.Context, g task.Grant) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.grants[g.Sandbox] = g
	return nil
}

func (f *machines) Destroy(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.boxes, id)
	return nil
}

func (f *machines) Info(_ context.Context, id string) (string, sandbox.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.boxes[id]
	if !ok {
		return "", sandbox.Info{}, missing("sandbox")
	}
	return "w1", i, nil
}

func (f *machines) List(context.Context) ([]fleet.Placed, []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []fleet.Placed
	for _, id := range slices.Sorted(maps.Keys(f.boxes)) {
		out = append(out, fleet.Placed{Worker: "w1", Info: f.boxes[id]})
	}
	return out, nil
}

// Exec answers, as a worker does, only when there is something to say.
func (f *machines) Exec(ctx context.Context, id string, cmd sandbox.Command, offset int64) (sandbox.Stream, error) {
	st, err := f.Start(ctx, id, cmd)
	if err != nil {
		return nil, err
	}
	j, err := f.journal(id, cmd.ID)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { j.mu.Lock(); j.grown.Broadcast(); j.mu.Unlock() })()
	j.mu.Lock()
	for j.size <= offset && j.st.Phase == sandbox.CommandRunning && ctx.Err() == nil {
		j.grown.Wait()
	}
	j.mu.Unlock()
	if ctx.Err() != nil {
		return nil, task.Fail(task.InfraWorkerLost, "the worker did not answer in the time that was given", ctx.Err())
	}
	stream, err := f.Attach(ctx, id, cmd.ID, offset)
	if err == nil {
		stream.(*reader).started = st.Started
	}
	return stream, err
}

func (f *machines) Start(_ context.Context, id string, cmd sandbox.Command) (sandbox.Status, error) {
	f.mu.Lock()
	if _, ok := f.boxes[id]; !ok {
		f.mu.Unlock()
		return sandbox.Status{}, missing("sandbox")
	}
	j, known := f.cmds[id+"/"+cmd.ID]
	if !known {
		f.starts++
		j = newJournal(cmd.ID)
		f.cmds[id+"/"+cmd.ID] = j
	}
	script := f.script
	f.mu.Unlock()
	if !known && script != nil {
		script(j, cmd)
	}
	st := j.status()
	st.Started = !known
	return st, nil
}

func (f *machines) journal(id, command string) (*journal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j, ok := f.cmds[id+"/"+command]
	if !ok {
		return nil, missing("command")
	}
	return j, nil
}

func (f *machines) Status(_ context.Context, id, command string) (sandbox.Status, error) {
	j, err := f.journal(id, command)
	if err != nil {
		return sandbox.Status{}, err
	}
	return j.status(), nil
}

func (f *machines) Attach(ctx context.Context, id, command string, offset int64) (sandbox.Stream, error) {
	j, err := f.journal(id, command)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { j.mu.Lock(); j.grown.Broadcast(); j.mu.Unlock() })
	return &reader{j: j, ctx: ctx, cancel: cancel, at: offset}, nil
}

func (f *machines) Kill(_ context.Context, id, command string) error {
	j, err := f.journal(id, command)
	if err != nil {
		return err
	}
	j.end(sandbox.Status{ExitCode: -1, Signal: 9})
	return nil
}

func (f *machines) Put(_ context.Context, id, dir string, tar io.Reader) error {
	data, err := io.ReadAll(tar)
	if err != nil {
		return fmt.Errorf("tar: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[id+dir] = data
	return nil
}

func (f *machines) Get(_ context.Context, id, path string, _ []string) (io.ReadCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.files[id+path]
	if !ok {
		return nil, missing("file")
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (f *machines) Workers() []fleet.Worker {
	return []fleet.Worker{{ID: "w1", State: fleet.Connected, Boot: "b1", Gateway: "g1"}}
}

func (f *machines) Doctor(context.Context) []fleet.Report { return f.reports }

// journal is the output of one command.
type journal struct {
	mu    sync.Mutex
	grown *sync.Cond
	parts []sandbox.Chunk
	size  int64
	st    sandbox.Status
}

func newJournal(id string) *journal {
	j := &journal{st: sandbox.Status{ID: id, Phase: sandbox.CommandRunning, StartedAt: time.Now()}}
	j.grown = sync.NewCond(&j.mu)
	return j
}

func (j *journal) write(fd int, data string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.parts = append(j.parts, sandbox.Chunk{Fd: fd, Offset: j.size, Data: []byte(data)})
	j.size += int64(len(data))
	j.grown.Broadcast()
}

func (j *journal) end(st sandbox.Status) {
	j.mu.Lock()
	defer j.mu.Unlock()
	st.ID, st.Phase, st.StartedAt, st.EndedAt = j.st.ID, sandbox.CommandExited, j.st.StartedAt, time.Now()
	j.st = st
	j.grown.Broadcast()
}

func (j *journal) status() sandbox.Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	st := j.st
	st.Output = j.size
	return st
}

type reader struct {
	j      *journal
	ctx    context.Context
	cancel context.CancelFunc
	at     int64

	started bool
}

func (r *reader) Next() (sandbox.Chunk, error) {
	r.j.mu.Lock()
	defer r.j.mu.Unlock()
	for {
		if err := r.ctx.Err(); err != nil {
			return sandbox.Chunk{}, err
		}
		for _, p := range r.j.parts {
			if end := p.Offset + int64(len(p.Data)); end > r.at {
				skip := r.at - p.Offset
				c := sandbox.Chunk{Fd: p.Fd, Offset: r.at, Data: bytes.Clone(p.Data[skip:])}
				r.at = end
				return c, nil
			}
		}
		if r.j.st.Phase == sandbox.CommandExited {
			return sandbox.Chunk{}, io.EOF
		}
		r.j.grown.Wait()
	}
}

func (r *reader) Status() sandbox.Status {
	st := r.j.status()
	st.Started = r.started
	return st
}

func (r *reader) Close() error { r.cancel(); return nil }

package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func missing(what string) error { return task.Fail(task.InputNotFound, "no such "+what, nil) }

// memory is a record of tasks, events, logs, owners, tokens and blobs that
// works and forgets at its end.
type memory struct {
	mu      sync.Mutex
	tasks   map[string]task.Task
	order   []string
	keys    map[string][2]string // idempotency key: task, request digest
	cancels map[string]bool
	events  map[string][]task.Event
	wakes   map[string][]chan struct{}
	logs    map[string][]byte
	egress  map[string][]task.EgressRecord
	owners  map[string][2]string
	boxes   map[string]string // sandboxes of tasks
	tokens  []identity.Token
	blobs   map[task.Digest][]byte
	records []string
	broken  error // every answer, when set
}

func newMemory() *memory {
	return &memory{
		tasks: map[string]task.Task{}, keys: map[string][2]string{}, cancels: map[string]bool{}, events: map[string][]task.Event{},
		wakes: map[string][]chan struct{}{}, logs: map[string][]byte{}, egress: map[string][]task.EgressRecord{},
		owners: map[string][2]string{}, boxes: map[string]string{}, blobs: map[task.Digest][]byte{},
	}
}

func (m *memory) CreateTask(_ context.Context, t task.Task, digest string) (task.Task, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return task.Task{}, false, m.broken
	}
	if k, ok := m.keys[t.IdempotencyKey]; ok {
		if k[1] != digest {
			return task.Task{}, false, task.Fail(task.InputConflict, "the idempotency key was used for another request", nil)
		}
		return m.tasks[k[0]], false, nil
	}
	m.keys[t.IdempotencyKey] = [2]string{t.ID, digest}
	m.tasks[t.ID] = t
	m.order = append(m.order, t.ID)
	return t, true, nil
}

func (m *memory) Task(_ context.Context, id string) (task.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tasks[id]
	if !ok {
		return t, missing("task")
	}
	return t, m.broken
}

func (m *memory) Tasks(_ context.Context, owner string, limit int, before string) ([]task.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []task.Task
	seen := before == ""
	for _, id := range slices.Backward(m.order) {
		if seen && (owner == "" || m.tasks[id].RequestedBy == owner) && len(out) < limit {
			out = append(out, m.tasks[id])
		}
		seen = seen || id == before
	}
	return out, nil
}

func (m *memory) RequestCancel(_ context.Context, id string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cancels[id] = true
	return !m.tasks[id].State.Ended(), nil
}

func (m *memory) Events(_ context.Context, id string, after int64, limit int) ([]task.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.events[id]
	after = min(after, int64(len(all)))
	return slices.Clone(all[after:min(after+int64(limit), int64(len(all)))]), nil
}

func (m *memory) Watch(id string) (<-chan struct{}, func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := make(chan struct{}, 1)
	m.wakes[id] = append(m.wakes[id], c)
	return c, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.wakes[id] = slices.DeleteFunc(m.wakes[id], func(o chan struct{}) bool { return o == c })
	}
}

// emit adds events; the last ends the task when end is set.
func (m *memory) emit(id string, n int, end bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range n {
		seq := int64(len(m.events[id]) + 1)
		m.events[id] = append(m.events[id], task.Event{Seq: seq, Task: id, Time: time.Now(), Type: "stage", Data: task.Stage{Name: task.Agent, State: task.StageRunning, Attempts: int(seq)}})
	}
	if end {
		t := m.tasks[id]
		t.State = task.Succeeded
		m.tasks[id] = t
	}
	for _, c := range m.wakes[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (m *memory) setTask(t task.Task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks[t.ID] = t
}

func logKey(id string, attempt int, name task.StageName) string {
	return fmt.Sprintf("%s/%d/%s", id, attempt, name)
}

func (m *memory) appendLog(id string, attempt int, name task.StageName, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := logKey(id, attempt, name)
	m.logs[k] = append(m.logs[k], text...)
}

func (m *memory) OpenLog(_ context.Context, id string, attempt int, name task.StageName, offset int64) (io.ReadCloser, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	log := m.logs[logKey(id, attempt, name)]
	return io.NopCloser(bytes.NewReader(bytes.Clone(log[min(offset, int64(len(log))):]))), int64(len(log)), nil
}

func (m *memory) Egress(_ context.Context, id string) ([]task.EgressRecord, error) {
	return m.egress[id], nil
}

func (m *memory) ClaimSandbox(_ context.Context, id, owner, digest string) (string, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, ok := m.owners[id]; ok {
		return o[0], o[1], nil
	}
	m.owners[id] = [2]string{owner, digest}
	return owner, digest, nil
}

func (m *memory) SandboxOwner(_ context.Context, id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, ok := m.owners[id]; ok {
		return o[0], nil
	}
	if t, ok := m.tasks[m.boxes[id]]; ok {
		return t.RequestedBy, nil
	}
	return "", missing("sandbox")
}

func (m *memory) AddToken(_ context.Context, t identity.Token) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens = append(m.tokens, t)
	return nil
}

func (m *memory) TokenByHash(_ context.Context, hash string) (identity.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tokens {
		if t.Hash == hash {
			return t, nil
		}
	}
	return identity.Token{}, missing("token")
}

func (m *memory) Tokens(context.Context) ([]identity.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.tokens), nil
}

func (m *memory) RemoveToken(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.tokens)
	m.tokens = slices.DeleteFunc(m.tokens, func(t identity.Token) bool { return t.ID == id })
	if len(m.tokens) == n {
		return missing("token")
	}
	return nil
}

// blobs keeps bytes by their hash.
type blobs struct{ *memory }

func (b blobs) Put(_ context.Context, r io.Reader, limit int64) (task.Digest, int64, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return "", 0, err
	}
	if int64(len(data)) > limit {
		return "", 0, task.Fail(task.LimitSize, "too large", nil)
	}
	sum := sha256.Sum256(data)
	d := task.Digest("sha256:" + hex.EncodeToString(sum[:]))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blobs[d] = data
	return d, int64(len(data)), nil
}

func (b blobs) Open(_ context.Context, d task.Digest) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.blobs[d]
	if !ok {
		return nil, missing("blob")
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// account is an audit without signatures.
type account struct{ *memory }

func (a account) Receipt(_ context.Context, id string) ([]byte, error) {
	return []byte(`{"task":"` + id + `"}`), nil
}

func (a account) Export(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, "{\"seq\":1}\n{\"seq\":2}\n")
	return err
}

func (a account) Record(_ context.Context, _, key, kind, seenBy string, facts any) error {
	// The audit refuses a member of this name, whatever it holds.
	if _, ok := facts.(map[string]any)["token"]; ok || kind == "" || seenBy != "control plane" {
		return fmt.Errorf("facts %v of kind %q seen by %q", facts, kind, seenBy)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, key)
	return nil
}

// engine counts what it was asked for.
type engine struct {
	mu       sync.Mutex
	started  []string
	canceled []string
	err      error
}

func (e *engine) Start(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started = append(e.started, id)
	return e.err
}

func (e *engine) Cancel(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.canceled = append(e.canceled, id)
	return e.err
}

// policies reads lines "allow HOST"; anything else is wrong.
type policies struct{}

func (policies) Compile(spec task.Spec) (stage.Plan, error) {
	plan := stage.Plan{Digest: "sha256:" + task.Digest(strings.Repeat("0", 64)), Limits: task.DefaultLimits(), Rules: map[task.StageName][]task.Rule{}}
	n := 0
	for line := range strings.Lines(spec.Policy) {
		n++
		host, ok := strings.CutPrefix(strings.TrimSpace(line), "allow ")
		if !ok {
			return plan, task.Fail(task.InputPolicy, fmt.Sprintf("line %d: agent.networkk: no such field", n), nil)
		}
		plan.Rules[task.Agent] = append(plan.Rules[task.Agent], task.Rule{ID: fmt.Sprintf("agent.network.allow[%d]", n-1), Host: host, Ports: []uint16{443}})
	}
	return plan, nil
}

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

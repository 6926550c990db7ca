package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/identity"
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
	owners  map[string][2]string
	boxes   map[string]string // sandboxes of tasks
	tokens  []identity.Token
	blobs   map[task.Digest][]byte
	records []string
	removed map[string]task.Removed
	history map[string][]task.StageRun
	broken  error // every answer, when set
}

func newMemory() *memory {
	return &memory{
		tasks: map[string]task.Task{}, keys: map[string][2]string{}, cancels: map[string]bool{}, events: map[string][]task.Event{},
		wakes: map[string][]chan struct{}{}, logs: map[string][]byte{},
		owners: map[string][2]string{}, boxes: map[string]string{}, blobs: map[task.Digest][]byte{},
		history: map[string][]task.StageRun{},
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

// tell adds an event that is not of the agent's stage.
func (m *memory) tell(id, kind string, data any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events[id] = append(m.events[id], task.Event{Seq: int64(len(m.events[id]) + 1), Task: id, Time: time.Now(), Type: kind, Data: data})
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

// linePolicies reads lines "allow HOST"; anything else is wrong.
type linePolicies struct{}

func (linePolicies) Layers(_ context.Context, project string) (task.Layers, error) {
	if project != "" && project != "web" {
		return task.Layers{}, missing("project")
	}
	return task.Layers{Operator: "version: 1\n", Project: project}, nil
}

func (linePolicies) Compile(spec task.Spec, _ task.Layers) (stage.Plan, error) {
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

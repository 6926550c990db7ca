package steps

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/output/flags"
	"github.com/cofferdam/cofferdam/internal/output/flags/secrets"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/fact"
	"github.com/cofferdam/cofferdam/internal/task"
)

const taskID = "t-aaaaaaaaaaaaaaaa"

// desk is the control plane's record in memory: facts, logs, blobs, audit.
type desk struct {
	mu      sync.Mutex
	task    task.Task
	logs    map[string][]byte
	boxes   []sandbox.Spec
	egress  map[string]int64
	blobs   map[task.Digest][]byte
	audit   map[string]string // key → kind
	said    map[string]string // key → facts
	receipt int
	agent   map[string]task.AgentEvent
}

func (d *desk) AddAgentEvent(_ context.Context, _, key string, e task.AgentEvent) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.agent == nil {
		d.agent = map[string]task.AgentEvent{}
	}
	if _, known := d.agent[key]; !known {
		d.agent[key] = e
	}
	return nil
}

func (d *desk) Task(_ context.Context, id string) (task.Task, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id != d.task.ID {
		return task.Task{}, task.Fail(task.InputNotFound, "no such task", nil)
	}
	t := d.task
	t.Stages, t.Outputs = slices.Clone(t.Stages), slices.Clone(t.Outputs)
	return t, nil
}

func (d *desk) SetTask(_ context.Context, _ string, u stage.TaskUpdate) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if u.State != "" && u.State != d.task.State {
		if !d.task.State.CanBecome(u.State) {
			return fmt.Errorf("task can't go from %s to %s", d.task.State, u.State)
		}
		d.task.State = u.State
	}
	if u.Reason != "" {
		d.task.Reason = u.Reason
	}
	for _, f := range []struct{ to, from *string }{{&d.task.Text, &u.Text}, {&d.task.Commit, &u.Commit}, {&d.task.Worker, &u.Worker}} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	if u.Attempt != 0 {
		d.task.Attempt = u.Attempt
	}
	if u.PolicyDigest != "" {
		d.task.PolicyDigest = u.PolicyDigest
	}
	if u.Layers != nil {
		d.task.Layers = *u.Layers
	}
	return nil
}

func (d *desk) SetStage(_ context.Context, _ string, _ int, s task.Stage) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.task.Stages {
		if d.task.Stages[i].Name == s.Name {
			d.task.Stages[i] = s
			return nil
		}
	}
	d.task.Stages = append(d.task.Stages, s)
	return nil
}

func (d *desk) AddOutput(_ context.Context, _ string, o task.Output) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.task.Outputs = append(slices.DeleteFunc(d.task.Outputs, func(have task.Output) bool { return have.Name == o.Name }), o)
	return nil
}

type deskLog struct {
	d   *desk
	key string
}

func logKey(attempt int, name task.StageName) string { return fmt.Sprintf("%d/%s", attempt, name) }

func (d *desk) Log(_ context.Context, _ string, attempt int, name task.StageName) (stage.LogWriter, error) {
	return &deskLog{d, logKey(attempt, name)}, nil
}

func (l *deskLog) Write(b []byte) (int, error) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.d.logs[l.key] = append(l.d.logs[l.key], b...)
	return len(b), nil
}

func (l *deskLog) Offset() int64 {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	return int64(len(l.d.logs[l.key]))
}

func (l *deskLog) Close() error { return nil }

func (d *desk) OpenLog(_ context.Context, _ string, attempt int, name task.StageName, offset int64) (io.ReadCloser, int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.logs[logKey(attempt, name)]
	for round := 2; round <= stage.MaxRounds; round++ {
		b = append(slices.Clone(b), d.logs[logKey(attempt, stage.RoundLog(name, round))]...)
	}
	return io.NopCloser(bytes.NewReader(b[offset:])), int64(len(b)), nil
}

func (d *desk) AddEgress(_ context.Context, _ string, records []task.EgressRecord) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range records {
		d.egress[r.Sandbox] = max(d.egress[r.Sandbox], r.Seq)
	}
	return nil
}

func (d *desk) AddSandbox(_ context.Context, _ string, spec sandbox.Spec) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.ContainsFunc(d.boxes, func(s sandbox.Spec) bool { return s.ID == spec.ID }) {
		d.boxes = append(d.boxes, spec)
	}
	return nil
}

func (d *desk) SandboxesOf(context.Context, string) ([]sandbox.Spec, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.boxes), nil
}

func (d *desk) Put(_ context.Context, r io.Reader, limit int64) (task.Digest, int64, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return "", 0, err
	}
	if int64(len(b)) > limit {
		return "", 0, task.Fail(task.LimitSize, "too large", nil)
	}
	digest, err := fact.Digest(b)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blobs[digest] = b
	return digest, int64(len(b)), err
}

func (d *desk) Open(_ context.Context, digest task.Digest) (io.ReadCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.blobs[digest]
	if !ok {
		return nil, task.Fail(task.InputNotFound, "no such blob", nil)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (d *desk) Record(_ context.Context, _, key, kind, _ string, facts any) error {
	text, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.audit[key]; !ok {
		d.audit[key], d.said[key] = kind, string(text)
	}
	return nil
}

func (d *desk) Receipt(context.Context, string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.receipt++
	return []byte("receipt"), nil
}

type plans struct {
	plan    stage.Plan
	compile func(task.Layers) (stage.Plan, error) // in place of plan
}

func (p *plans) Compile(_ task.Spec, layers task.Layers) (stage.Plan, error) {
	if p.compile != nil {
		return p.compile(layers)
	}
	return p.plan, nil
}

func (p *plans) Layers(context.Context, string) (task.Layers, error) { return task.Layers{}, nil }

// house is a task with everything around it.
type house struct {
	*desk
	t       *testing.T
	machine *machine
	plan    *plans
	lender  *lender
	guarded *guarded
	work    *Work
}

func newHouse(t *testing.T, spec task.Spec) *house {
	t.Helper()
	d := &desk{
		task: task.Task{ID: taskID, State: task.Queued, Spec: spec},
		logs: map[string][]byte{}, egress: map[string]int64{}, blobs: map[task.Digest][]byte{}, audit: map[string]string{}, said: map[string]string{},
	}
	h := &house{desk: d, t: t, machine: newMachine(t), plan: &plans{plan: stage.Plan{Digest: "sha256:plan"}}, lender: &lender{revoked: map[string]bool{}}, guarded: &guarded{rules: map[string]task.FileRules{}}}
	h.work = New(Deps{
		Sandboxes: h.machine, Facts: d, Logs: d, Blobs: d, Recorder: d, Policies: h.plan, Leases: h.lender, Harnesses: fakeHarnesses{},
		Permission: h.guarded, FileFacts: h.guarded, Judge: flags.New(&secrets.Finder{}),
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	return h
}

// through runs the stages up to and including last, or until one fails.
func (h *house) through(last task.StageName, attempt int) stage.Outcome {
	h.t.Helper()
	var o stage.Outcome
	for _, name := range task.StageNames() {
		o = h.do(name, attempt)
		if name == last || stage.After(o, stage.MaxRounds) != stage.Proceed {
			return o
		}
	}
	return o
}

func (h *house) do(name task.StageName, attempt int) stage.Outcome {
	h.t.Helper()
	o, err := h.work.Do(h.t.Context(), name, stage.Input{Task: taskID, Attempt: attempt, Round: 1})
	if err != nil {
		h.t.Fatalf("%s: %v", name, err)
	}
	return o
}

func (h *house) bytes(output string) string {
	h.t.Helper()
	for _, o := range h.task.Outputs {
		if o.Name == output {
			return string(h.blobs[o.Digest])
		}
	}
	h.t.Fatalf("no output %q in %+v", output, h.task.Outputs)
	return ""
}

func (h *house) box(role string) string { return stage.SandboxID(taskID, 1, role) }

// repository makes a git repository by a script and returns the blob of its
// bundle.
func (h *house) repository(script string) task.Digest {
	h.t.Helper()
	dir := h.t.TempDir()
	c := exec.Command("sh", "-euc", "git init -q -b main . && git config user.name T && git config user.email t@t.invalid\n"+script+"\ngit bundle create -q ../repo.bundle --all HEAD")
	repo := filepath.Join(dir, "repo")
	if err := os.MkdirAll(repo, 0o755); err != nil {
		h.t.Fatal(err)
	}
	c.Dir = repo
	c.Env = append(os.Environ(), gitEnv()...)
	if out, err := c.CombinedOutput(); err != nil {
		h.t.Fatalf("repository: %v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "repo.bundle"))
	if err != nil {
		h.t.Fatal(err)
	}
	digest, _, err := h.Put(h.t.Context(), bytes.NewReader(b), 1<<30)
	if err != nil {
		h.t.Fatal(err)
	}
	return digest
}

func shell(script string) task.AgentSpec {
	return task.AgentSpec{Name: "command", Argv: []string{"sh", "-euc", script}}
}

func fails(t *testing.T, o stage.Outcome, want task.Reason, text string) {
	t.Helper()
	if o.State != task.StageFailed || o.Reason != want || !strings.Contains(o.Text, text) {
		t.Fatalf("outcome %+v, want %s with %q", o, want, text)
	}
}

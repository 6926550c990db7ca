package retention_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/output"
	"github.com/cofferdam/cofferdam/internal/output/retention"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/task"
)

// place is an installation's memory: real rows, blobs and audit, and a limit on
// how many calls of them go through before everything fails, as if killed.
type place struct {
	t     *testing.T
	dir   string
	store *store.Store
	blobs *output.Blobs
	audit *audit.Log
	left  int // calls until the end; negative: no end
	now   time.Time
}

var errKilled = errors.New("killed")

func open(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir(), left: -1, now: time.Now()}
	var err error
	if p.store, err = store.Open(t.Context(), store.Options{Dir: p.dir}); err != nil {
		t.Fatal(err)
	}
	key, err := audit.NewKey(filepath.Join(p.dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	if p.audit, err = audit.Open(t.Context(), audit.Options{Store: p.store.Audit(), Key: key}); err != nil {
		t.Fatal(err)
	}
	p.reborn()
	t.Cleanup(func() {
		if err := errors.Join(p.blobs.Close(), p.store.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// reborn opens the blobs anew: what was pinned is not any more.
func (p *place) reborn() {
	p.t.Helper()
	if p.blobs != nil {
		if err := p.blobs.Close(); err != nil {
			p.t.Fatal(err)
		}
	}
	var err error
	if p.blobs, err = output.Open(filepath.Join(p.dir, "blobs")); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) keeper(tasks, outputs time.Duration) *retention.Keeper {
	return retention.New(retention.Options{
		Rows: mortalRows{p.store, p}, Blobs: mortalBlobs{p.blobs, p}, Audit: mortalAudit{p}, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return p.now }, Tasks: tasks, Outputs: outputs,
	})
}

func (p *place) step() error {
	if p.left == 0 {
		return errKilled
	}
	p.left--
	return nil
}

type mortalRows struct {
	retention.Rows
	p *place
}

func (m mortalRows) RemoveTask(ctx context.Context, id, by string) (task.Removed, error) {
	if err := m.p.step(); err != nil {
		return task.Removed{}, err
	}
	return m.Rows.RemoveTask(ctx, id, by)
}

func (m mortalRows) Told(ctx context.Context, id string) error {
	return errors.Join(m.p.step(), m.when(func() error { return m.Rows.Told(ctx, id) }))
}

func (m mortalRows) when(do func() error) error {
	if m.p.left == 0 {
		return nil
	}
	return do()
}

func (m mortalRows) BlobSettled(ctx context.Context, d task.Digest) error {
	if err := m.p.step(); err != nil {
		return err
	}
	return m.Rows.BlobSettled(ctx, d)
}

func (m mortalRows) RemoveLogs(ctx context.Context, id string) error {
	if err := m.p.step(); err != nil {
		return err
	}
	return m.Rows.RemoveLogs(ctx, id)
}

type mortalBlobs struct {
	retention.Blobs
	p *place
}

func (m mortalBlobs) Remove(ctx context.Context, d task.Digest, referenced func(context.Context) (bool, error)) (output.Outcome, int64, error) {
	if err := m.p.step(); err != nil {
		return output.Pinned, 0, err
	}
	return m.Blobs.Remove(ctx, d, referenced)
}

type mortalAudit struct{ p *place }

func (m mortalAudit) Record(ctx context.Context, id, key, kind, by string, facts any) error {
	if err := m.p.step(); err != nil {
		return err
	}
	return m.p.audit.Record(ctx, id, key, kind, by, facts)
}

func (p *place) put(text string) task.Digest {
	p.t.Helper()
	d, _, err := p.blobs.Put(p.t.Context(), strings.NewReader(text), 1<<20)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// task makes a task with something in every table, and ends it.
func (p *place) task(key, own string) (id string, receipt []byte) {
	p.t.Helper()
	ctx := p.t.Context()
	made, _, err := p.store.CreateTask(ctx, task.Task{RequestedBy: "alice", IdempotencyKey: key, Spec: task.Spec{Prompt: "a prompt", Repo: task.Repo{Bundle: p.put("bundle of " + own)}}}, "request "+own)
	p.must(err)
	id = made.ID
	box := "sb-" + id[2:]
	p.must(p.store.SetTask(ctx, id, stage.TaskUpdate{State: task.Running, Attempt: 1}))
	p.must(p.store.AddSandbox(ctx, id, sandbox.Spec{ID: box, Task: id, Role: "agent"}))
	p.must(p.store.AddEgress(ctx, id, []task.EgressRecord{{Seq: 1, Sandbox: box, Verdict: "allowed"}}))
	p.must(p.store.AddFileDenials(ctx, id, []task.FileDenial{{Seq: 1, Sandbox: box}}))
	p.must(p.store.AddAgentEvent(ctx, id, "k", task.AgentEvent{}))
	w, err := p.store.Log(ctx, id, 1, task.Agent)
	p.must(err)
	_, err = w.Write([]byte("a log"))
	p.must(errors.Join(err, w.Close()))
	for name, text := range map[string]string{"patch": own, "shared": "of both"} {
		o := task.Output{Name: name, Kind: "file", Digest: p.put(text), Size: int64(len(text)), Path: []byte("x\xff")}
		p.must(p.store.AddOutput(ctx, id, o))
		p.must(p.audit.Record(ctx, id, "output/"+name, "output.kept", "control plane", o))
	}
	p.must(p.store.SetStage(ctx, id, 1, task.Stage{Name: task.Agent, State: task.StageSucceeded}))
	p.must(p.audit.Record(ctx, id, "task.ended", "task.ended", "control plane", map[string]any{"task": id, "state": task.Succeeded, "attempts": 1}))
	receipt, err = p.audit.Receipt(ctx, id)
	p.must(err)
	p.must(p.store.SetTask(ctx, id, stage.TaskUpdate{State: task.Succeeded}))
	return id, receipt
}

func (p *place) stored() string {
	p.t.Helper()
	var all []string
	for _, dir := range []string{"blobs", "logs"} {
		p.must(filepath.WalkDir(filepath.Join(p.dir, dir), func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				all = append(all, e.Name())
			}
			return err
		}))
	}
	return strings.Join(all, " ")
}

func (p *place) has(text string) bool {
	p.t.Helper()
	d := digest(p.t, text)
	_, err := p.blobs.Stat(p.t.Context(), d)
	return err == nil
}

func digest(t *testing.T, text string) task.Digest {
	b, err := output.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	d, _, err := b.Put(t.Context(), strings.NewReader(text), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A removal that is killed before each of its steps in turn is finished by the
// next pass: nothing of the task is left, nothing of another is gone, and the
// receipt verifies.
func TestRemovalKilledAnywhere(t *testing.T) {
	for cut := 0; ; cut++ {
		p := open(t)
		id, receipt := p.task("key", "first")
		other, _ := p.task("other", "second")
		p.reborn()
		p.left = cut
		_, err := p.keeper(0, 0).Remove(t.Context(), id, "alice")
		whole := p.left != 0
		p.left = -1
		p.reborn()
		if err != nil && task.ReasonOf(err) == "" && !errors.Is(err, errKilled) {
			t.Fatalf("cut %d: %v", cut, err)
		}
		if cut == 0 {
			if _, err := p.store.Task(t.Context(), id); err != nil {
				t.Fatalf("killed before it began, the task is gone: %v", err)
			}
			if _, err := p.keeper(0, 0).Remove(t.Context(), id, "alice"); err != nil {
				t.Fatal(err)
			}
		} else {
			p.must(p.keeper(0, 0).Pass(t.Context()))
		}
		p.gone(id, other, receipt)
		if whole {
			if cut < 6 {
				t.Fatalf("a removal has %d steps; the test cuts too few", cut)
			}
			return
		}
	}
}

// gone judges that the task is removed and the other is whole.
func (p *place) gone(id, other string, receipt []byte) {
	p.t.Helper()
	ctx := p.t.Context()
	if _, err := p.store.Task(ctx, id); task.ReasonOf(err) != task.InputNotFound {
		p.t.Errorf("the task: %v", err)
	}
	if was, err := p.store.Removed(ctx, id); err != nil || was.Owner != "alice" || was.By != "alice" || was.At.IsZero() {
		p.t.Errorf("the removal is remembered as %+v, %v", was, err)
	}
	if p.has("first") || p.has("bundle of first") || !p.has("of both") || !p.has("second") || !p.has("bundle of second") {
		p.t.Errorf("on the disk: %s", p.stored())
	}
	if strings.Count(p.stored(), ".log") != 1 {
		p.t.Errorf("logs: %s", p.stored())
	}
	if t, err := p.store.Task(ctx, other); err != nil || len(t.Outputs) != 2 || string(t.Outputs[0].Path) != "x\xff" {
		p.t.Errorf("the other task: %+v, %v", t.Outputs, err)
	}
	if again, err := p.audit.Receipt(ctx, id); err != nil || string(again) != string(receipt) {
		p.t.Errorf("the receipt changed: %v", err)
	}
	var export strings.Builder
	if err := p.audit.Export(ctx, &export); err != nil || strings.Count(export.String(), `"task.removed/`+id) != 1 {
		p.t.Errorf("the account tells of the removal %d times: %v", strings.Count(export.String(), `"task.removed/`+id), err)
	}
	if strings.Contains(export.String(), "a prompt") {
		p.t.Error("the prompt is in the account")
	}
	// The same key is not a new request.
	_, _, err := p.store.CreateTask(ctx, task.Task{RequestedBy: "alice", IdempotencyKey: "key"}, "request first")
	if task.ReasonOf(err) != task.InputConflict || !strings.Contains(err.Error(), id) {
		p.t.Errorf("the key of the removed task: %v", err)
	}
	if _, made, err := p.store.CreateTask(ctx, task.Task{RequestedBy: "bob", IdempotencyKey: "key"}, "x"); err != nil || !made {
		p.t.Errorf("another's same key: %v", err)
	}
}

func TestTasksThatRunStay(t *testing.T) {
	p := open(t)
	made, _, err := p.store.CreateTask(t.Context(), task.Task{RequestedBy: "alice"}, "r")
	p.must(err)
	if _, err := p.keeper(0, 0).Remove(t.Context(), made.ID, "alice"); task.ReasonOf(err) != task.InputConflict {
		t.Errorf("removing a task that runs: %v", err)
	}
	p.now = p.now.Add(1000 * time.Hour)
	p.must(p.keeper(time.Second, time.Second).Pass(t.Context()))
	if _, err := p.store.Task(t.Context(), made.ID); err != nil {
		t.Error(err)
	}
	if _, err := p.keeper(0, 0).Remove(t.Context(), "t-aaaaaaaaaaaaaaaa", "alice"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("an unknown task: %v", err)
	}
}

func TestKeepingTimes(t *testing.T) {
	p := open(t)
	old, _ := p.task("a", "first")
	p.reborn()
	p.must(p.keeper(0, 0).Pass(t.Context()))
	if _, err := p.store.Task(t.Context(), old); err != nil || !p.has("first") {
		t.Fatalf("kept for ever, it is gone: %v", err)
	}
	p.now = p.now.Add(2 * time.Hour)
	p.must(p.keeper(10*time.Hour, time.Hour).Pass(t.Context()))
	tk, err := p.store.Task(t.Context(), old)
	if err != nil || len(tk.Outputs) != 2 || tk.Outputs[0].Removed == nil || p.has("first") || p.has("bundle of first") || strings.Contains(p.stored(), ".log") {
		t.Fatalf("outputs that are too old: %+v, %v; %s", tk.Outputs, err, p.stored())
	}
	p.now = p.now.Add(9 * time.Hour)
	p.must(p.keeper(10*time.Hour, time.Hour).Pass(t.Context()))
	if was, err := p.store.Removed(t.Context(), old); err != nil || was.By != task.Retention {
		t.Errorf("a task that is too old: %+v, %v", was, err)
	}
}

// A blob that was stored a moment ago has no reference yet and stays.
func TestWhatIsBeingKeptStays(t *testing.T) {
	p := open(t)
	id, _ := p.task("a", "first")
	p.reborn()
	d := p.put("first") // another task's, on its way to its row
	r, err := p.keeper(0, 0).Remove(t.Context(), id, "alice")
	if err != nil || r.Later != 1 || !p.has("first") {
		t.Fatalf("%+v, %v", r, err)
	}
	p.blobs.Settle(d)
	p.must(p.keeper(0, 0).Pass(t.Context()))
	if p.has("first") {
		t.Error("settled without a reference, it is there")
	}
	if err := p.blobs.Hold(t.Context(), d); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("holding what is gone: %v", err)
	}
}

func TestOrphansGoAfterADay(t *testing.T) {
	p := open(t)
	p.put("orphan")
	p.reborn()
	p.must(p.keeper(0, 0).Pass(t.Context()))
	if !p.has("orphan") {
		t.Fatal("it went too early")
	}
	p.now = p.now.Add(25 * time.Hour)
	p.must(p.keeper(0, 0).Pass(t.Context()))
	if p.has("orphan") {
		t.Error("it is there after a day")
	}
}

func TestRunEnds(t *testing.T) {
	p := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.keeper(0, 0).Run(ctx, nil); close(done) }()
	cancel()
	<-done
}

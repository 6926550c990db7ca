package evidence

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/audit/evidence"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/frozen"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	box    = "sb-aaaaaaaaaaaaaaaa"
	taskID = "t-aaaaaaaaaaaaaaaa"
)

// plane is everything that the desk asks, but for the rows.
type plane struct {
	key    *audit.Key
	info   sandbox.Info
	told   []string
	fault  map[string]error // by what is told
	output int64
}

func (p *plane) tell(what string) error {
	p.told = append(p.told, what)
	return p.fault[what]
}

func (p *plane) Info(context.Context, string) (string, sandbox.Info, error) {
	return "w-1", p.info, p.fault["info"]
}

func (p *plane) Freeze(context.Context, string) (sandbox.Info, error) {
	info := p.info
	info.Frozen = true
	return info, p.tell("freeze")
}
func (p *plane) Release(context.Context, string) error { return p.tell("release") }
func (p *plane) Destroy(context.Context, string) error { return p.tell("destroy") }
func (p *plane) Remember(string, string)               {}

func (p *plane) Inspect(context.Context, string, string) ([]sandbox.Status, error) {
	return []sandbox.Status{{ID: "agent", Phase: sandbox.CommandRunning, Output: p.output, Processes: []sandbox.Process{{PID: 7, State: "T", Command: "sh"}}}}, p.fault["inspect"]
}

// endless is the output of a command that was stopped: it never ends.
type endless struct{ sandbox.Stream }

func (endless) Next() (sandbox.Chunk, error) { return sandbox.Chunk{Data: []byte("0123456789")}, nil }
func (endless) Close() error                 { return nil }

func (p *plane) Attach(context.Context, string, string, int64) (sandbox.Stream, error) {
	return endless{}, p.fault["attach"]
}

func (p *plane) Get(_ context.Context, _, path string, _ []string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("tar of " + path)), p.fault["get "+path]
}

func (p *plane) Egress(_ context.Context, _ string, after int64) ([]task.EgressRecord, error) {
	if after == 2 {
		return nil, nil
	}
	return []task.EgressRecord{{Seq: after + 1, Sandbox: box}}, p.fault["egress"]
}

func (p *plane) Denials(context.Context, string, int64) ([]task.FileDenial, error) {
	return nil, p.fault["denials"]
}

func (p *plane) End(context.Context, string, string, string) error { return p.tell("leases end") }

func (p *plane) Task(context.Context, string) (task.Task, error) {
	return task.Task{ID: taskID, Spec: task.Spec{Policy: "version: 1\n"}, Layers: task.Layers{Operator: "version: 1\n"}}, p.fault["task"]
}

func (p *plane) RequestCancel(context.Context, string) (bool, error) { return true, p.tell("cancel") }
func (p *plane) Cancel(context.Context, string) error                { return p.tell("engine") }

func (p *plane) Record(_ context.Context, of, _, kind, _ string, _ any) error {
	return p.tell(kind + " of " + of)
}

func (p *plane) Account(_ context.Context, _ string, w io.Writer) ([]byte, error) {
	_, err := io.WriteString(w, "{\"seq\":1}\n")
	return nil, err
}

func (p *plane) SignEvidence(sandbox string, manifest task.Digest) (string, error) {
	return p.key.SignEvidence(sandbox, manifest)
}
func (p *plane) Origin() string { return p.key.Origin() }

func newDesk(t *testing.T) (*Desk, *plane, context.Context) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	key, err := audit.NewKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{key: key, fault: map[string]error{}, output: 25, info: sandbox.Info{Spec: sandbox.Spec{ID: box, Task: taskID}, State: sandbox.Live}}
	d := &Desk{
		Rows: frozen.New(s.Base()), Places: p, Finds: p, Leases: p, Tasks: p, Engine: p, Account: p,
		Dir: t.TempDir(), Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	return d, p, operation.As(t.Context(), identity.Principal{User: "admin", Role: identity.Admin})
}

func wants(t *testing.T, err error, reason task.Reason, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %q", err, text)
		return
	}
	if f, ok := errors.AsType[*task.Failure](err); ok && f.Reason != reason {
		t.Errorf("%s: %v, want %s", f.Reason, err, reason)
	}
}

// TestFreeze: facts first, then the machine, and the task last, so that its end does
// not take the sandbox along where the machine did not hear.
func TestFreeze(t *testing.T) {
	d, p, ctx := newDesk(t)
	in := &freezing{box, api.Freezing{Reason: "odd"}}
	p.fault["freeze"] = task.Fail(task.InfraWorkerLost, "the machine is away", nil)
	_, err := d.freeze(ctx, in)
	wants(t, err, task.InfraWorkerLost, "the machine is away")
	want := []string{"sandbox.frozen of " + taskID, "leases end", "freeze"}
	if !slices.Equal(p.told, want) {
		t.Errorf("told %q", p.told)
	}
	// Again, when it is back: once on record.
	p.fault, p.told = map[string]error{}, nil
	out, err := d.freeze(ctx, in)
	if err != nil || out.Body.Sandbox != box || out.Body.Task != taskID || out.Body.By != "admin" || out.Body.Reason != "odd" || !out.Body.Ending || out.Body.State != "live" {
		t.Fatalf("%+v, %v", out, err)
	}
	if want := []string{"leases end", "freeze", "cancel", "engine"}; !slices.Equal(p.told, want) {
		t.Errorf("told %q", p.told)
	}
	if all, err := d.list(ctx, nil); err != nil || len(all.Body.Sandboxes) != 1 || all.Body.Sandboxes[0].Worker != "w-1" {
		t.Errorf("%+v, %v", all, err)
	}
	// An engine that is away does not undo it.
	p.fault["engine"] = errors.New("away")
	if _, err := d.freeze(ctx, in); err != nil {
		t.Error(err)
	}
}

func TestFreezeIsRefused(t *testing.T) {
	d, p, ctx := newDesk(t)
	for _, id := range []string{"x", "sb-../../../../etc/"} {
		if _, err := d.freeze(ctx, &freezing{ID: id}); err == nil {
			t.Errorf("%q is frozen", id)
		}
	}
	gone := task.Fail(task.InputNotFound, "no sandbox", nil)
	p.fault["info"] = gone
	_, err := d.freeze(ctx, &freezing{ID: box})
	wants(t, err, task.InputNotFound, "no sandbox")
	delete(p.fault, "info")
	p.fault["sandbox.frozen of "+taskID] = errors.New("the disk is full")
	if _, err := d.freeze(ctx, &freezing{ID: box}); err == nil || slices.Contains(p.told, "freeze") {
		t.Errorf("frozen without a record: %v", err)
	}
	for what, ask := range map[string]func() error{
		"export":  func() error { _, err := d.export(ctx, &path{box}); return err },
		"release": func() error { _, err := d.release(ctx, &path{box}); return err },
	} {
		err := ask()
		wants(t, err, task.InputConflict, "freeze it first")
		if slices.Contains(p.told, "destroy") {
			t.Errorf("%s destroyed it", what)
		}
	}
}

// taken is an archive as it was put together.
func taken(t *testing.T, d *Desk, p *plane, ctx context.Context) (evidence.Report, []byte) {
	t.Helper()
	kept, err := d.kept(ctx, box)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	digest, err := d.collect(ctx, kept, &out)
	if err != nil {
		t.Fatal(err)
	}
	report := evidence.Verify(p.key.Public(), bytes.NewReader(out.Bytes()))
	if !report.OK() || report.Digest != digest {
		t.Fatalf("%q", report.Findings)
	}
	return report, out.Bytes()
}

func TestArchive(t *testing.T) {
	d, p, ctx := newDesk(t)
	if _, err := d.freeze(ctx, &freezing{ID: box}); err != nil {
		t.Fatal(err)
	}
	report, raw := taken(t, d, p, ctx)
	sizes := map[string]int64{}
	for _, e := range report.Manifest.Entries {
		sizes[e.Name] = e.Size
	}
	for name, size := range map[string]int64{
		"frozen.json": 0, "task.json": 0, "spec.json": 0, "policy/operator.yaml": 11, "policy/task.yaml": 11, "audit.jsonl": 10, "sandbox.json": 0, "processes.json": 0,
		"commands/0000.out": 25, "egress.jsonl": 0, "denials.jsonl": 0,
		"files/workspace.tar": 17, "files/home.tar": 18, "files/tmp.tar": 11, "files/var-tmp.tar": 15,
	} {
		if have, ok := sizes[name]; !ok || size > 0 && have != size {
			t.Errorf("%s: %d bytes, %v", name, have, ok)
		}
	}
	left := map[string]bool{}
	for _, l := range report.Manifest.Left {
		left[l.Name] = true
	}
	if !left["memory"] || !left["files elsewhere"] || !left["receipt.json"] || len(left) != 3 {
		t.Errorf("left out: %v", report.Manifest.Left)
	}
	if !bytes.Contains(raw, []byte("tar of /workspace")) || bytes.Count(raw, []byte(`"seq":`)) < 2 {
		t.Error("what was found is not in it")
	}
	// What can't be had is named, and the rest is there.
	lost := task.Fail(task.InfraSandboxLost, "the sandbox is dead", nil)
	for _, what := range []string{"inspect", "attach", "egress", "denials", "get /workspace", "task"} {
		p.fault[what] = lost
	}
	report, _ = taken(t, d, p, ctx)
	why := map[string]string{}
	for _, l := range report.Manifest.Left {
		why[l.Name] = l.Why
	}
	for _, name := range []string{"processes.json", "egress.jsonl", "denials.jsonl", "files/workspace.tar", "task.json"} {
		if why[name] != "the sandbox is dead" {
			t.Errorf("%s: left out because of %q", name, why[name])
		}
	}
	// Our own disk is no finding of the sandbox's.
	d.Dir = "/nowhere/at/all"
	if _, err := d.export(ctx, &path{box}); err == nil {
		t.Error("exported without a disk")
	} else {
		wants(t, err, task.InfraStorage, "disk")
	}
}

func TestRelease(t *testing.T) {
	d, p, ctx := newDesk(t)
	if _, err := d.freeze(ctx, &freezing{ID: box}); err != nil {
		t.Fatal(err)
	}
	p.told = nil
	p.fault["destroy"] = task.Fail(task.InfraWorkerLost, "the machine is away", nil)
	_, err := d.release(ctx, &path{box})
	wants(t, err, task.InfraWorkerLost, "the machine is away")
	// A machine that was forgotten has lost it.
	p.fault["destroy"] = task.Fail(task.InfraSandboxLost, "its worker was forgotten", nil)
	if _, err := d.release(ctx, &path{box}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"sandbox.released of " + taskID, "release", "destroy", "sandbox.released of " + taskID, "release", "destroy"}; !slices.Equal(p.told, want) {
		t.Errorf("told %q", p.told)
	}
	_, err = d.release(ctx, &path{box})
	wants(t, err, task.InputNotFound, "was released")
	_, err = d.freeze(ctx, &freezing{ID: box})
	wants(t, err, task.InputConflict, "kept and released")
	if all, err := d.list(ctx, nil); err != nil || len(all.Body.Sandboxes) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestPartsAreBounded(t *testing.T) {
	b := &bounded{to: io.Discard, left: 4}
	if _, err := b.Write([]byte("123")); err != nil {
		t.Fatal(err)
	}
	_, err := b.Write([]byte("45"))
	wants(t, err, task.LimitSize, "more than")
	if b.fault != nil {
		t.Error("it is the disk's fault")
	}
}

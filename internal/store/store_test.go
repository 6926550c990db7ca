package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// clock counts seconds.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Second)
	return c.now
}

func openAt(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Dir: dir, Now: newClock().Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func open(t testing.TB) *Store {
	t.Helper()
	return openAt(t, t.TempDir())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, s *Store, of task.Task) task.Task {
	t.Helper()
	made, created, err := s.CreateTask(t.Context(), of, "sha256:request")
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	return made
}

// read returns the task and its events.
func read(t testing.TB, s *Store, id string) (task.Task, []task.Event) {
	t.Helper()
	got, err := s.Task(t.Context(), id)
	must(t, err)
	events, err := s.Events(t.Context(), id, 0, 10000)
	must(t, err)
	for i, e := range events {
		if e.Seq != int64(i+1) || e.Task != id || e.Time.IsZero() {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
	return got, events
}

func TestCreateTask(t *testing.T) {
	s := open(t)
	want := task.Task{
		RequestedBy: "alice", Repo: "r", Ref: "main", IdempotencyKey: "k", PolicyDigest: "sha256:p",
		Spec: task.Spec{Prompt: "a\x00b'\"\\ ü\u2028 \xff", Repo: task.Repo{Bundle: "sha256:b", Name: "'; DROP TABLE tasks; --"}, Agent: task.AgentSpec{Name: "command", Argv: []string{"sh", "-c", "exit 1"}}},
	}
	made := create(t, s, want)
	if !validTask(made.ID) || made.State != task.Queued || made.RequestedBy != "alice" || made.CreatedAt.IsZero() || len(made.Stages) != 9 {
		t.Fatalf("made %+v", made)
	}
	want.Spec.Prompt = strings.ToValidUTF8(want.Spec.Prompt, "\ufffd") // as JSON has it
	if diff := cmp.Diff(want.Spec, made.Spec); diff != "" {
		t.Errorf("spec: %s", diff)
	}
	for i, st := range made.Stages {
		if st.Name != task.StageNames()[i] || st.State != task.StagePending || st.Attempts != 0 {
			t.Errorf("stage %d is %+v", i, st)
		}
	}
	again, created, err := s.CreateTask(t.Context(), want, "sha256:request")
	if err != nil || created || again.ID != made.ID {
		t.Errorf("the same key again: %v, %v, %v", again.ID, created, err)
	}
	if _, _, err := s.CreateTask(t.Context(), want, "sha256:other"); task.ReasonOf(err) != task.InputConflict {
		t.Errorf("the key for another request: %v", err)
	}
	bob := want
	bob.RequestedBy = "bob"
	if other := create(t, s, bob); other.ID == made.ID {
		t.Error("bob got alice's task")
	}
	want.IdempotencyKey = ""
	if first, second := create(t, s, want), create(t, s, want); first.ID == second.ID {
		t.Error("requests without a key are one task")
	}
	for _, id := range []string{"x", "t-", "t-AAAAAAAAAAAAAAAA", "t-aaaaaaaaaaaaaaaa/../x", "t-aaaaaaaaaaaaaaaa\n"} {
		if _, _, err := s.CreateTask(t.Context(), task.Task{ID: id}, ""); task.ReasonOf(err) != task.InputInvalid {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

// TestOneKeyOneTask shows it when many ask at once.
func TestOneKeyOneTask(t *testing.T) {
	s := open(t)
	var mu sync.Mutex
	ids, created := map[string]bool{}, 0
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			made, fresh, err := s.CreateTask(context.Background(), task.Task{RequestedBy: "a", IdempotencyKey: "k"}, "d")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			ids[made.ID] = true
			if fresh {
				created++
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || created != 1 {
		t.Errorf("%d tasks, %d created", len(ids), created)
	}
}

func TestTextIsKeptAsItIs(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{RequestedBy: "o'hara"}).ID
	for _, text := range []string{"it's", `back\slash "quoted"`, "?; DROP TABLE tasks; --", "line\nline\r\t", "ü 😀 \u202e", "nul \x00 behind", "\x00'; --", "bad \xff", "?0 ?1 {x}"} {
		must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{Text: text, Worker: text}))
		want := strings.NewReplacer("\x00", "\ufffd", "\xff", "\ufffd").Replace(text)
		if got, _ := read(t, s, id); got.Text != want || got.Worker != want {
			t.Errorf("%q came back as %q", text, got.Text)
		}
	}
}

func TestListsOfTasks(t *testing.T) {
	s := open(t)
	var ids []string
	for i := range 5 {
		ids = append(ids, create(t, s, task.Task{RequestedBy: []string{"alice", "bob"}[i%2]}).ID)
	}
	list := func(owner string, limit int, before string) (out []string) {
		all, err := s.Tasks(t.Context(), owner, limit, before)
		must(t, err)
		for _, x := range all {
			out = append(out, x.ID)
		}
		return out
	}
	for _, c := range []struct{ got, want []string }{
		{list("", 2, ""), []string{ids[4], ids[3]}},
		{list("", 2, ids[3]), []string{ids[2], ids[1]}},
		{list("", 9, ids[0]), nil},
		{list("bob", 9, ""), []string{ids[3], ids[1]}},
		{list("alice", 9, ids[4]), []string{ids[2], ids[0]}},
		{list("carol", 9, ""), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	if _, err := s.Tasks(t.Context(), "", 5, "t-none"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("before an unknown task: %v", err)
	}
	must(t, s.SetTask(t.Context(), ids[1], stage.TaskUpdate{State: task.Failed, Reason: task.InputInvalid}))
	for id, want := range map[string]bool{ids[2]: true, ids[1]: false} {
		for range 2 {
			if open, err := s.RequestCancel(t.Context(), id); err != nil || open != want {
				t.Errorf("RequestCancel: %v, %v", open, err)
			}
			if asked, err := s.CancelRequested(t.Context(), id); err != nil || asked != want {
				t.Errorf("CancelRequested: %v, %v", asked, err)
			}
		}
	}
	opened, err := s.OpenTasks(t.Context())
	cancelled, err2 := s.CancelledOpen(t.Context())
	if err := errors.Join(err, err2); err != nil || !slices.Equal(opened, []string{ids[0], ids[2], ids[3], ids[4]}) || !slices.Equal(cancelled, []string{ids[2]}) {
		t.Errorf("open %v, cancelled %v, %v", opened, cancelled, err)
	}
}

func TestMovesOfATask(t *testing.T) {
	states := []task.State{task.Queued, task.Running, task.Waiting, task.Succeeded, task.Failed, task.StateCancelled, "nonsense"}
	paths := map[task.State][]task.State{task.Queued: {}, task.Running: {task.Running}, task.Waiting: {task.Running, task.Waiting}, task.Succeeded: {task.Running, task.Succeeded}, task.Failed: {task.Failed}, task.StateCancelled: {task.StateCancelled}}
	s := open(t)
	for from, path := range paths {
		for _, to := range states {
			id := create(t, s, task.Task{}).ID
			for _, st := range path {
				must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{State: st}))
			}
			before, told := read(t, s, id)
			err := s.SetTask(t.Context(), id, stage.TaskUpdate{State: to})
			after, now := read(t, s, id)
			switch allowed := from.CanBecome(to); {
			case allowed && (err != nil || after.State != to || len(now) != len(told)+1):
				t.Errorf("%s → %s: %v, state %s", from, to, err, after.State)
			case from == to && (err != nil || len(now) != len(told)):
				t.Errorf("%s again: %v, %d events", from, err, len(now)-len(told))
			case !allowed && from != to && (task.ReasonOf(err) != task.InfraInternal || after.State != before.State || len(now) != len(told)):
				t.Errorf("%s → %s was not refused: %v", from, to, err)
			}
			if (after.EndedAt != nil) != after.State.Ended() {
				t.Errorf("%s has the end %v", after.State, after.EndedAt)
			}
		}
	}
}

func TestSetTaskFillsAndKeeps(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{}).ID
	must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{State: task.Running, Attempt: 1}))
	must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{Worker: "w1", Commit: "c0ffee", PolicyDigest: "sha256:p"}))
	must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{Attempt: 2, Reason: task.InfraWorkerLost, Text: "trying again"}))
	must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{Attempt: 1}))
	got, _ := read(t, s, id)
	if got.Worker != "w1" || got.Commit != "c0ffee" || got.PolicyDigest != "sha256:p" || got.Attempt != 2 || got.Reason != task.InfraWorkerLost {
		t.Errorf("got %+v", got)
	}
	must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{State: task.Succeeded}))
	got, events := read(t, s, id)
	if got.Reason != "" || got.Text != "" || got.Usage.WallSeconds <= 0 {
		t.Errorf("a success has reason %q, text %q, wall time %v", got.Reason, got.Text, got.Usage.WallSeconds)
	}
	wall := got.Usage.WallSeconds
	if got, _ = read(t, s, id); got.Usage.WallSeconds != wall {
		t.Errorf("the wall time of an ended task grows from %v to %v", wall, got.Usage.WallSeconds)
	}
	last, ok := events[len(events)-1].Data.(task.Task)
	if !ok || last.State != task.Succeeded || events[len(events)-1].Type != "task" {
		t.Errorf("the last event is %+v", events[len(events)-1])
	}
	if err := s.SetTask(t.Context(), "t-none", stage.TaskUpdate{State: task.Running}); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("an unknown task: %v", err)
	}
}

func TestStages(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{}).ID
	at := func(n int) *time.Time {
		x := time.Date(2026, 3, 1, 10, n, 0, 0, time.UTC)
		return &x
	}
	three := 3
	set := func(attempt int, st task.Stage, events int) task.Stage {
		t.Helper()
		_, before := read(t, s, id)
		for range 2 { // the second changes nothing
			must(t, s.SetStage(t.Context(), id, attempt, st))
		}
		got, after := read(t, s, id)
		if len(after)-len(before) != events {
			t.Errorf("%s %s: %d events, want %d", st.Name, st.State, len(after)-len(before), events)
		}
		return got.Stages[slices.Index(task.StageNames(), st.Name)]
	}
	got := set(1, task.Stage{Name: task.Agent, State: task.StageRunning, Sandbox: "sb-1", StartedAt: at(1)}, 1)
	if got.Attempts != 1 || got.Sandbox != "sb-1" || !got.StartedAt.Equal(*at(1)) || got.EndedAt != nil {
		t.Errorf("running: %+v", got)
	}
	got = set(1, task.Stage{Name: task.Agent, State: task.StageFailed, Reason: task.InfraSandboxLost, Text: "x", ExitCode: &three, EndedAt: at(2)}, 1)
	if got.Sandbox != "sb-1" || !got.StartedAt.Equal(*at(1)) || !got.EndedAt.Equal(*at(2)) || *got.ExitCode != 3 {
		t.Errorf("failed: %+v", got)
	}
	got = set(1, task.Stage{Name: task.Agent, State: task.StageRunning, Sandbox: "sb-1", StartedAt: at(1)}, 0)
	if got.State != task.StageFailed {
		t.Errorf("a late repetition: %+v", got)
	}
	got = set(1, task.Stage{Name: task.Agent, State: task.StageRunning, StartedAt: at(3)}, 1)
	if got.State != task.StageRunning || got.Attempts != 2 || got.EndedAt != nil || got.ExitCode != nil || got.Reason != "" {
		t.Errorf("run again in the attempt: %+v", got)
	}
	got = set(2, task.Stage{Name: task.Agent, State: task.StageRunning, Attempts: 7, StartedAt: at(4)}, 1)
	if got.Attempts != 7 || got.Sandbox != "" {
		t.Errorf("the caller's count: %+v", got)
	}
	if got = set(3, task.Stage{Name: task.Agent, State: task.StageSucceeded, StartedAt: at(5)}, 1); got.Attempts != 3 || got.EndedAt == nil {
		t.Errorf("third attempt: %+v", got)
	}
	if got = set(1, task.Stage{Name: task.Verify, State: task.StageSkipped}, 1); got.StartedAt != nil || got.Attempts != 0 || got.EndedAt == nil {
		t.Errorf("skipped: %+v", got)
	}
	for _, bad := range []task.Stage{{Name: "x", State: task.StageRunning}, {State: task.StageRunning}} {
		if err := s.SetStage(t.Context(), id, 1, bad); task.ReasonOf(err) != task.InfraInternal {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := s.SetStage(t.Context(), id, 0, task.Stage{Name: task.Agent}); err == nil {
		t.Error("attempt 0 was taken")
	}
}

func TestOutputs(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{}).ID
	for range 2 {
		must(t, s.AddOutput(t.Context(), id, task.Output{Name: "patch", Kind: "patch", Digest: "sha256:1", Size: 5}))
		must(t, s.AddOutput(t.Context(), id, task.Output{Name: "bites", Kind: "patch", Digest: "sha256:4", Verdict: task.FlagApprove, Findings: []task.Finding{{ID: "build.make", Flag: task.FlagBuild, Path: `"\303"`, Line: 3, Why: "w"}}}))
		must(t, s.AddOutput(t.Context(), id, task.Output{Name: "log.agent", Kind: "log", Digest: "sha256:2", Flags: []string{"executes on commit"}}))
	}
	must(t, s.AddOutput(t.Context(), id, task.Output{Name: "patch", Kind: "patch", Digest: "sha256:3", Size: 6}))
	got, events := read(t, s, id)
	want := []task.Output{{Name: "patch", Kind: "patch", Digest: "sha256:3", Size: 6, Flags: []string{}}, {Name: "bites", Kind: "patch", Digest: "sha256:4", Flags: []string{}, Verdict: task.FlagApprove, Findings: []task.Finding{{ID: "build.make", Flag: task.FlagBuild, Path: `"\303"`, Line: 3, Why: "w"}}}, {Name: "log.agent", Kind: "log", Digest: "sha256:2", Flags: []string{"executes on commit"}}}
	if diff := cmp.Diff(want, got.Outputs); diff != "" {
		t.Error(diff)
	}
	if len(events) != 5 { // the task, three outputs, one replaced; repetitions tell nothing
		t.Errorf("%d events, want 5", len(events))
	}
}

func TestSandboxesAndOwners(t *testing.T) {
	s := open(t)
	id, other := create(t, s, task.Task{RequestedBy: "alice"}).ID, create(t, s, task.Task{}).ID
	spec := sandbox.Spec{ID: "sb-aaaaaaaaaaaaaaaa", Task: id, Role: "agent", Network: true, Limits: task.Limits{Memory: 5}}
	for range 2 {
		must(t, s.AddSandbox(t.Context(), id, spec))
	}
	must(t, s.AddSandbox(t.Context(), id, sandbox.Spec{ID: "sb-bbbbbbbbbbbbbbbb", Role: "verify"}))
	if err := s.AddSandbox(t.Context(), other, spec); task.ReasonOf(err) != task.InfraInternal {
		t.Errorf("another task's sandbox: %v", err)
	}
	specs, err := s.SandboxesOf(t.Context(), id)
	must(t, err)
	if len(specs) != 2 || !reflect.DeepEqual(specs[0], spec) {
		t.Errorf("sandboxes %+v", specs)
	}
	if got, events := read(t, s, id); got.Usage.Sandboxes != 2 || len(events) != 3 {
		t.Errorf("%d sandboxes, %d events", got.Usage.Sandboxes, len(events))
	}
	for _, claim := range []string{"bob", "carol"} {
		owner, digest, err := s.ClaimSandbox(t.Context(), "sb-cccccccccccccccc", claim, "d-"+claim)
		if err != nil || owner != "bob" || digest != "d-bob" {
			t.Errorf("claimed by %q, %q, %v", owner, digest, err)
		}
	}
	if _, _, err := s.ClaimSandbox(t.Context(), spec.ID, "bob", ""); task.ReasonOf(err) != task.InputConflict {
		t.Errorf("claiming a task's sandbox: %v", err)
	}
	for id, want := range map[string]string{"sb-cccccccccccccccc": "bob", spec.ID: "alice"} {
		if owner, err := s.SandboxOwner(t.Context(), id); err != nil || owner != want {
			t.Errorf("owner %q, %v", owner, err)
		}
	}
	if _, err := s.SandboxOwner(t.Context(), "sb-x"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("nobody's: %v", err)
	}
}

func TestEgress(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{}).ID
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	records := []task.EgressRecord{
		{Seq: 1, Conn: 1, Time: at, Sandbox: "sb-1", Name: "a", Port: 443, Verdict: "allowed", Rule: "r"},
		{Seq: 2, Conn: 2, Time: at, Sandbox: "sb-1", Name: "b", Port: 80, Verdict: "denied", Reason: task.PolicyDenied},
		{Seq: 3, Conn: 1, Time: at, Sandbox: "sb-1", Done: true, Verdict: "allowed", BytesIn: 10, BytesOut: 4},
	}
	// What the gateway answers itself is told and counts for nothing.
	own := task.EgressRecord{Seq: 9, Time: at, Sandbox: "sb-3", Name: task.TokenHost, Port: 443, Verdict: "allowed", Done: true, BytesIn: 99}
	must(t, s.AddEgress(t.Context(), id, records[:2]))
	must(t, s.AddEgress(t.Context(), id, records))
	must(t, s.AddEgress(t.Context(), id, []task.EgressRecord{{Seq: 1, Time: at, Sandbox: "sb-2", Verdict: "?"}}))
	must(t, s.AddEgress(t.Context(), id, []task.EgressRecord{own}))
	must(t, s.AddEgress(t.Context(), id, nil))
	got, events := read(t, s, id)
	if u := got.Usage; u.EgressAllowed != 1 || u.EgressDenied != 2 || u.BytesIn != 10 || u.BytesOut != 4 {
		t.Errorf("usage %+v", u)
	}
	if len(events) != 6 || events[1].Type != "egress" || events[1].Data.(task.EgressRecord) != records[0] {
		t.Errorf("events %+v", events)
	}
	all, err := s.Egress(t.Context(), id)
	must(t, err)
	if len(all) != 5 || !slices.Equal(all[:3], records) {
		t.Errorf("records %+v", all)
	}
}

func TestUnknownTasks(t *testing.T) {
	s := open(t)
	const id = "t-aaaaaaaaaaaaaaaa"
	ctx := t.Context()
	if _, err := s.Task(ctx, "t-\x00'"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("an id that is none: %v", err)
	}
	_, e1 := s.Task(ctx, id)
	_, e2 := s.Events(ctx, id, 0, 1)
	_, e3 := s.RequestCancel(ctx, id)
	_, e4 := s.Log(ctx, id, 1, task.Agent)
	_, _, e5 := s.OpenLog(ctx, id, 1, task.Agent, 0)
	_, e6 := s.Egress(ctx, id)
	_, e7 := s.SandboxesOf(ctx, id)
	_, e8 := s.CancelRequested(ctx, id)
	for i, err := range []error{
		e1, e2, e3, e4, e5, e6, e7, e8, s.SetTask(ctx, id, stage.TaskUpdate{}), s.SetStage(ctx, id, 1, task.Stage{Name: task.Agent}),
		s.AddOutput(ctx, id, task.Output{Name: "x"}), s.AddEgress(ctx, id, []task.EgressRecord{{}}), s.AddSandbox(ctx, id, sandbox.Spec{ID: "sb-aaaaaaaaaaaaaaaa"}),
	} {
		if task.ReasonOf(err) != task.InputNotFound {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func TestEventsPage(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{}).ID
	for i := range 10 {
		must(t, s.AddOutput(t.Context(), id, task.Output{Name: fmt.Sprint(i)}))
	}
	page, err := s.Events(t.Context(), id, 4, 3)
	must(t, err)
	if len(page) != 3 || page[0].Seq != 5 || page[2].Data.(task.Output).Name != "5" {
		t.Errorf("page %+v", page)
	}
}

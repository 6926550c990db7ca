package store

import (
	"io"
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func logText(t *testing.T, s *Store, id string, attempt int, name task.StageName, offset int64) (string, int64) {
	t.Helper()
	r, size, err := s.OpenLog(t.Context(), id, attempt, name, offset)
	must(t, err)
	b, err := io.ReadAll(r)
	must(t, err)
	must(t, r.Close())
	return string(b), size
}

// Every round of every attempt stays on record, also when only the latest shows.
func TestHistoryKeepsEveryRound(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{RequestedBy: "ann"}).ID
	set := func(attempt int, name task.StageName, round int, state task.StageState, reason task.Reason, sandbox string) {
		t.Helper()
		must(t, s.SetStage(t.Context(), id, attempt, task.Stage{Name: name, State: state, Reason: reason, Round: round, Attempts: attempt, Sandbox: sandbox}))
	}
	begin := func(attempt int, name task.StageName, round int, sandbox string) {
		t.Helper()
		now := s.now()
		must(t, s.SetStage(t.Context(), id, attempt, task.Stage{Name: name, State: task.StageRunning, Round: round, Attempts: attempt, Sandbox: sandbox, StartedAt: &now}))
	}
	begin(1, task.Provision, 1, "")
	set(1, task.Provision, 1, task.StageFailed, task.InfraSandboxCreate, "")
	begin(2, task.Provision, 1, "")
	set(2, task.Provision, 1, task.StageSucceeded, "", "")
	begin(2, task.Verify, 1, "sb-aaaaaaaaaaaaaaaa")
	set(2, task.Verify, 1, task.StageFailed, task.InfraSandboxLost, "sb-aaaaaaaaaaaaaaaa")
	begin(2, task.Verify, 2, "sb-bbbbbbbbbbbbbbbb")
	set(2, task.Verify, 0, task.StageSucceeded, "", "") // as close does, which knows no round
	must(t, s.SetStage(t.Context(), id, 2, task.Stage{Name: task.Act, State: task.StageSkipped, Attempts: 2}))
	runs, err := s.History(t.Context(), id)
	must(t, err)
	type short struct {
		attempt, round int
		name           task.StageName
		state          task.StageState
		reason         task.Reason
		sandbox        string
	}
	var got []short
	for _, r := range runs {
		got = append(got, short{r.Attempt, r.Round, r.Name, r.State, r.Reason, r.Sandbox})
		if r.StartedAt == nil || r.EndedAt == nil {
			t.Errorf("a run without times: %+v", r)
		}
	}
	want := []short{
		{1, 1, task.Provision, task.StageFailed, task.InfraSandboxCreate, ""},
		{2, 1, task.Provision, task.StageSucceeded, "", ""},
		{2, 1, task.Verify, task.StageFailed, task.InfraSandboxLost, "sb-aaaaaaaaaaaaaaaa"},
		{2, 2, task.Verify, task.StageSucceeded, "", "sb-bbbbbbbbbbbbbbbb"},
	}
	if len(got) < 4 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
		t.Errorf("history\n%+v\nwant\n%+v", got, want)
	}
	if _, err := s.History(t.Context(), "t-zzzzzzzzzzzzzzzz"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("an unknown task's history: %v", err)
	}
}

// The rounds' logs are files of their own and are read as one.
func TestRoundsOfALogAreReadAsOne(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{RequestedBy: "ann"}).ID
	for round, text := range map[int]string{1: "first\n", 3: "third\n"} {
		w, err := s.Log(t.Context(), id, 1, stage.RoundLog(task.Verify, round))
		must(t, err)
		if w.Offset() != 0 {
			t.Errorf("round %d begins at %d", round, w.Offset())
		}
		_, err = io.WriteString(w, text)
		must(t, err)
		must(t, w.Close())
	}
	for offset, want := range map[int64]string{0: "first\nthird\n", 3: "st\nthird\n", 6: "third\n", 8: "ird\n", 12: "", 99: ""} {
		if got, size := logText(t, s, id, 1, task.Verify, offset); got != want || size != 12 {
			t.Errorf("from %d: %q of %d, want %q of 12", offset, got, size, want)
		}
	}
	if got, _ := logText(t, s, id, 1, "verify.3", 0); got != "third\n" {
		t.Errorf("the third round alone: %q", got)
	}
	for _, name := range []task.StageName{"verify.1", "verify.02", "verify.x", "verify.-2", "verify.2.2", "verify.100", "../verify.2", "none.2"} {
		if _, err := s.Log(t.Context(), id, 1, name); task.ReasonOf(err) != task.InputNotFound {
			t.Errorf("a log called %q: %v", name, err)
		}
	}
}

func TestProjects(t *testing.T) {
	s := open(t)
	if _, err := s.Project(t.Context(), "web"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("no such project: %v", err)
	}
	for _, text := range []string{"version: 1\n", "version: 1\nsudo: false\n"} {
		must(t, s.SetProject(t.Context(), task.Project{Name: "web", Text: text, Digest: task.Digest("sha256:" + text), By: "ann"}))
		got, err := s.Project(t.Context(), "web")
		must(t, err)
		if got.Text != text || got.By != "ann" || got.Digest != task.Digest("sha256:"+text) || got.At.IsZero() {
			t.Errorf("project %+v", got)
		}
	}
	must(t, s.SetProject(t.Context(), task.Project{Name: "api", Text: "version: 1\n"}))
	list, err := s.Projects(t.Context())
	must(t, err)
	if len(list) != 2 || list[0].Name != "api" || list[1].Name != "web" {
		t.Errorf("projects %+v", list)
	}
	must(t, s.RemoveProject(t.Context(), "web"))
	if err := s.RemoveProject(t.Context(), "web"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("removed twice: %v", err)
	}
}

// The layers of a task are those of its admission, and what the repository asked
// for and was not given is told.
func TestLayersStayWithTheTask(t *testing.T) {
	s := open(t)
	layers := task.Layers{Operator: "version: 1\n", Project: "version: 1\nsudo: false\n"}
	made, _, err := s.CreateTask(t.Context(), task.Task{RequestedBy: "ann", Layers: layers}, "sha256:1")
	must(t, err)
	got, err := s.Task(t.Context(), made.ID)
	must(t, err)
	if got.Layers.Operator != layers.Operator || got.Layers.Project != layers.Project {
		t.Errorf("layers %+v", got.Layers)
	}
	layers.Repository, layers.Narrowed = "version: 1\n", []string{"line 3: not given"}
	for range 2 {
		must(t, s.SetTask(t.Context(), made.ID, stage.TaskUpdate{Layers: &layers}))
	}
	events, err := s.Events(t.Context(), made.ID, 0, 100)
	must(t, err)
	told := 0
	for _, e := range events {
		if note, ok := e.Data.(task.PolicyNote); ok && e.Type == "policy" && len(note.Narrowed) == 1 && note.Layer == task.LayerRepository {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times in %+v", told, events)
	}
}

package server

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

// History makes up nothing: memory has one run of setup for each task.
func (m *memory) History(_ context.Context, id string) ([]task.StageRun, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.history[id], nil
}

// judge keeps projects in memory and has one opinion on texts: "wrong" is none,
// and "failing" has an example that fails.
type judge struct {
	linePolicies
	mu       sync.Mutex
	projects map[string]task.Project
}

func newJudge() *judge { return &judge{projects: map[string]task.Project{}} }

func (j *judge) Explain(spec task.Spec, layers task.Layers, stage task.StageName) (api.PolicyExplanation, error) {
	if spec.Policy == "wrong" {
		return api.PolicyExplanation{}, task.Fail(task.InputPolicy, "policy line 1: wrong", nil)
	}
	if spec.Policy == "too much" {
		return api.PolicyExplanation{}, task.Fail(task.PolicyCeiling, "policy line 1: too much", nil)
	}
	return api.PolicyExplanation{PolicyDigest: "sha256:1", Layers: []api.PolicyLayer{}, Lines: []api.PolicyLine{{Field: "stage", Text: string(stage) + layers.Project}}}, nil
}

func (j *judge) Check(spec task.Spec, _ task.Layers) ([]api.PolicyExample, error) {
	return []api.PolicyExample{{Line: 2, Text: "agent a.test:443", Expect: "allowed", Got: "denied", Why: "is denied", Passed: spec.Policy != "failing"}}, nil
}

func (j *judge) CheckProject(_, text string) ([]api.PolicyExample, error) {
	if text == "wrong" {
		return nil, task.Fail(task.InputPolicy, "policy of project line 1: wrong", nil)
	}
	return j.Check(task.Spec{Policy: text}, task.Layers{})
}

func (j *judge) SetProject(_ context.Context, p task.Project) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.projects[p.Name] = p
	return nil
}

func (j *judge) Project(_ context.Context, name string) (task.Project, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p, ok := j.projects[name]
	if !ok {
		return p, missing("project")
	}
	return p, nil
}

func (j *judge) Projects(context.Context) ([]task.Project, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []task.Project
	for _, name := range slices.Sorted(maps.Keys(j.projects)) {
		all = append(all, j.projects[name])
	}
	return all, nil
}

func (j *judge) RemoveProject(_ context.Context, name string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.projects, name)
	return nil
}

func wantCode(t *testing.T, err error, code, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), code) || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %s with %q", err, code, text)
	}
}

func TestProjectsAreTheAdmins(t *testing.T) {
	s := newSite(t)
	admin, alice := s.as(t, "admin"), s.as(t, "alice")
	_, err := alice.SetProject(t.Context(), "web", "fine")
	wantCode(t, err, "policy.denied", "")
	wantCode(t, alice.RemoveProject(t.Context(), "web"), "policy.denied", "")
	for _, name := range []string{"-x", ".x", "a b", "ä"} {
		_, err = admin.SetProject(t.Context(), name, "fine")
		wantCode(t, err, "input.invalid", "name")
	}
	_, err = admin.SetProject(t.Context(), "web", "wrong")
	wantCode(t, err, "input.policy", "line 1")
	_, err = admin.SetProject(t.Context(), "web", "failing")
	wantCode(t, err, "input.policy", "line 2: the example")
	p, err := admin.SetProject(t.Context(), "web", "fine")
	if err != nil || p.Name != "web" || p.By != "admin" || !strings.HasPrefix(p.Digest, "sha256:") {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err = alice.Project(t.Context(), "web"); err != nil || p.Text != "fine" {
		t.Errorf("%+v, %v", p, err)
	}
	list, err := alice.Projects(t.Context())
	if err != nil || len(list) != 1 || list[0].Text != "" || list[0].Name != "web" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := admin.RemoveProject(t.Context(), "web"); err != nil {
		t.Error(err)
	}
	wantCode(t, admin.RemoveProject(t.Context(), "web"), "input.not_found", `no project "web"`)
	_, err = alice.Project(t.Context(), "web")
	wantCode(t, err, "input.not_found", `no project "web"`)
}

func TestPolicyQuestions(t *testing.T) {
	s := newSite(t)
	alice := s.as(t, "alice")
	e, err := alice.ExplainPolicy(t.Context(), api.PolicyQuestion{Policy: "x", Project: "web", Stage: "agent"})
	if err != nil || len(e.Lines) != 1 || e.Lines[0].Text != "agentweb" {
		t.Errorf("%+v, %v", e, err)
	}
	_, err = alice.ExplainPolicy(t.Context(), api.PolicyQuestion{Stage: "export"})
	wantCode(t, err, "input.invalid", "stage")
	_, err = alice.ExplainPolicy(t.Context(), api.PolicyQuestion{Policy: "wrong"})
	wantCode(t, err, "input.policy", "line 1")
	_, err = alice.ExplainPolicy(t.Context(), api.PolicyQuestion{Policy: "too much"})
	wantCode(t, err, "policy.ceiling", "line 1")
	_, err = alice.ExplainPolicy(t.Context(), api.PolicyQuestion{Project: "none"})
	wantCode(t, err, "input.not_found", `no project "none"`)
	c, err := alice.CheckPolicy(t.Context(), api.PolicyQuestion{Policy: "failing"})
	if err != nil || c.Passed || len(c.Examples) != 1 || c.Examples[0].Line != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = alice.CheckPolicy(t.Context(), api.PolicyQuestion{Policy: "fine"}); err != nil || !c.Passed {
		t.Errorf("%+v, %v", c, err)
	}
}

// A task keeps the layers of its admission; the answer about it has its history
// and what its repository was not given.
func TestTaskKeepsItsLayers(t *testing.T) {
	s := newSite(t)
	alice := s.as(t, "alice")
	req := api.TaskRequest{Repo: api.Repo{URL: "https://a.test/x"}, Agent: api.Agent{Name: "command", Argv: []string{"true"}}, Project: "none"}
	_, _, err := alice.CreateTask(t.Context(), req, "")
	wantCode(t, err, "input.invalid", "there is no project")
	req.Project = "web"
	made, _, err := alice.CreateTask(t.Context(), req, "")
	if err != nil || made.Project != "web" {
		t.Fatalf("%+v, %v", made, err)
	}
	kept, err := s.Task(t.Context(), made.ID)
	if err != nil || kept.Layers.Operator == "" || kept.Layers.Project != "web" {
		t.Errorf("layers %+v, %v", kept.Layers, err)
	}
	now := time.Now().UTC()
	kept.Layers.Narrowed = []string{"line 2: not yours"}
	s.setTask(kept)
	s.history[made.ID] = []task.StageRun{{Attempt: 2, Stage: task.Stage{Name: task.Verify, Round: 3, State: task.StageFailed, Reason: task.InfraSandboxLost, Text: "gone", StartedAt: &now}}}
	got, err := alice.Task(t.Context(), made.ID)
	if err != nil || len(got.Narrowed) != 1 || len(got.History) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if h := got.History[0]; h.Attempt != 2 || h.Round != 3 || h.Stage != "verify" || h.Reason != "infra.sandbox_lost" || h.Text != "gone" {
		t.Errorf("history %+v", h)
	}
}

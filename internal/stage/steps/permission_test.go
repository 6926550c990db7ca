package steps

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// guarded is a small permission over the machine: it remembers what was asked.
type guarded struct {
	rules   map[string]task.FileRules
	denials []task.FileDenial
	fail    error
	told    []task.FileDenial
}

func (g *guarded) Protect(_ context.Context, id string, rules task.FileRules) (task.FileProtection, error) {
	if g.fail != nil {
		return task.FileProtection{}, g.fail
	}
	g.rules[id] = rules
	return task.FileProtection{Rules: rules.Effective(), Widened: rules.Widened()}, nil
}

func (g *guarded) Denials(_ context.Context, id string, after int64) ([]task.FileDenial, error) {
	if _, ok := g.rules[id]; !ok {
		return nil, task.Fail(task.InputNotFound, "no such sandbox", nil)
	}
	return g.denials[min(after, int64(len(g.denials))):], nil
}

func (g *guarded) AddFileDenials(_ context.Context, _ string, list []task.FileDenial) error {
	g.told = append(g.told, list...)
	return nil
}

// Whatever the agent got into its workspace, the patch has no protected path that
// the policy did not widen, and the stage says what was left out.
func TestPatchHasNoProtectedPath(t *testing.T) {
	h := guardedHouse(t, `mkdir -p .claude .CLAUDE .vscode sub/.claude && echo '{}' > .claude/settings.json && echo x > .CLAUDE/x && echo '{}' > .vscode/tasks.json
echo '* filter=x' > .gitattributes; echo x > .Mcp.json; echo ok > fine; echo ok > sub/.claude/y; rm -f check.sh; printf x > ".claude/odd
name"`)
	h.plan.plan.Files = task.FileRules{Writable: []string{".vscode"}, Hidden: []string{"check.sh"}}
	if o := h.through(task.Export, 1); o.State != task.StageSucceeded {
		t.Fatalf("%+v", o)
	}
	patch := h.bytes("patch")
	for _, want := range []string{"b/fine", "b/.vscode/tasks.json", "b/sub/.claude/y"} {
		if !strings.Contains(patch, want) {
			t.Errorf("%s is missing:\n%s", want, patch)
		}
	}
	for _, bad := range []string{" b/.claude", " b/.CLAUDE", ".gitattributes", ".Mcp.json", "check.sh", "odd"} {
		if strings.Contains(patch, bad) {
			t.Errorf("%s is in the patch:\n%s", bad, patch)
		}
	}
	row := h.stage(task.Export)
	if !strings.Contains(row.Text, "policy.files") || !strings.Contains(row.Text, ".claude/settings.json") || strings.Contains(row.Text, "\n") {
		t.Errorf("the stage says %q", row.Text)
	}
	if row := h.stage(task.Agent); !strings.Contains(row.Text, "widened by policy: .vscode") {
		t.Errorf("the agent's stage says %q", row.Text)
	}
}

// What is refused is taken over when the stage ends, also when it failed, and
// told in its text and the account.
func TestRefusedWritesAreTold(t *testing.T) {
	h := guardedHouse(t, "exit 3")
	h.guarded.denials = []task.FileDenial{{Seq: 1, Operation: "open", Path: "/workspace/.envrc", Error: "EROFS"}, {Seq: 2, Operation: "open", Path: "/workspace/.envrc", Error: "EROFS", Count: 6}}
	o := h.through(task.Agent, 1)
	if o.Reason != task.AgentFailed || !strings.Contains(o.Text, "7 refused on protected files (policy.files)") {
		t.Errorf("%+v", o)
	}
	if len(h.guarded.told) != 2 {
		t.Errorf("told %+v", h.guarded.told)
	}
	kinds := slices.Collect(maps.Values(h.audit))
	if !slices.Contains(kinds, "files.refused") || !slices.Contains(kinds, "files.protected") {
		t.Errorf("the account has %q", kinds)
	}
}

// A workspace that can't be protected ends the task before the agent starts.
func TestUnprotectableWorkspaceEndsTheTask(t *testing.T) {
	h := guardedHouse(t, "touch started")
	h.guarded.fail = task.Fail(task.PolicyFiles, `".git" is no folder`, nil)
	if o := h.through(task.Agent, 1); o.Reason != task.PolicyFiles || o.State != task.StageFailed {
		t.Errorf("%+v", o)
	}
	id := h.box(stage.RoleAgent)
	if _, err := os.Stat(filepath.Join(h.machine.root, id, "workspace", "started")); err == nil {
		t.Error("the agent started")
	}
}

func guardedHouse(t *testing.T, agent string) *house {
	t.Helper()
	h := newHouse(t, task.Spec{Agent: shell(agent)})
	h.task.Spec.Repo.Bundle = h.repository("echo exit > check.sh; git add .; git commit -qm base")
	return h
}

// stage is the row of a stage.
func (h *house) stage(name task.StageName) task.Stage {
	h.t.Helper()
	for _, row := range h.task.Stages {
		if row.Name == name {
			return row
		}
	}
	h.t.Fatalf("no row of %s", name)
	return task.Stage{}
}

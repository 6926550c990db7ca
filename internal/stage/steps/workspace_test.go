package steps

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// An agent that removes its workspace, or what makes it a repository, ends with
// a reason of its own and no patch, and nothing is tried again.
func TestWorkspaceGone(t *testing.T) {
	for name, c := range map[string]struct{ agent, text string }{
		"git removed":  {`rm -rf .git`, "was removed"},
		"all removed":  {`rm -rf "$PWD"`, "was removed"},
		"emptied":      {`rm -rf .git && mkdir .git`, "has no HEAD"},
		"file":         {`rm -rf .git && echo "gitdir: /nowhere" > .git`, "no folder"},
		"link":         {`mv .git ../real && ln -s ../real .git`, "no folder"},
		"pipe":         {`rm -rf .git && mkfifo .git`, "no folder"},
		"HEAD folder":  {`rm .git/HEAD && mkdir .git/HEAD`, "no file"},
		"HEAD removed": {`rm .git/HEAD`, "has no HEAD"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, task.Spec{Agent: shell(c.agent), Verify: "true"})
			fails(t, h.through(task.Act, 1), task.WorkspaceGone, c.text)
			if task.WorkspaceGone.Retryable() {
				t.Error("it would be tried again")
			}
			for _, o := range h.task.Outputs {
				if o.Name == "patch" {
					t.Error("there is a patch")
				}
			}
		})
	}
}

// unreadableFleet can't read an agent's files.
type unreadableFleet struct{ stage.Sandboxes }

func (f unreadableFleet) Get(ctx context.Context, id, path string, exclude []string) (io.ReadCloser, error) {
	if strings.HasPrefix(path, "/workspace") {
		return nil, task.Fail(task.InputInvalid, "permission denied", nil)
	}
	return f.Sandboxes.Get(ctx, id, path, exclude)
}

func TestWorkspaceUnreadable(t *testing.T) {
	h := start(t, task.Spec{Agent: shell("true")})
	succeeds(t, h.through(task.Agent, 1))
	h.work.Sandboxes = present{unreadableFleet{h.machine}}
	fails(t, h.do(task.Export, 1), task.WorkspaceGone, "can't be read: permission denied")
}

// A sandbox that is lost is not the agent's doing.
func TestWorkspaceOfALostSandbox(t *testing.T) {
	h := start(t, task.Spec{Agent: shell("true")})
	succeeds(t, h.through(task.Agent, 1))
	h.machine.forget(h.box(stage.RoleAgent))
	fails(t, h.do(task.Export, 1), task.InfraSandboxLost, "")
}

// forget loses a sandbox as a machine that went away does.
func (m *machine) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, id)
}

// Names of any bytes are in the patch, as git quotes them.
func TestPatchHasNamesOfAnyBytes(t *testing.T) {
	h := start(t, task.Spec{Agent: shell(`printf 'x\n' > "$(printf 'caf\351')"; printf 'y\n' > "$(printf 'a\tb')"; printf 'z\n' > "$(printf 'line\nbreak')"`), Verify: `test "$(cat caf*)" = x`})
	succeeds(t, h.through(task.Act, 1))
	patch := h.bytes("patch")
	for _, want := range []string{`"b/caf\351"`, `"b/a\tb"`, `"b/line\nbreak"`} {
		if !strings.Contains(patch, want) {
			t.Errorf("the patch lacks %s:\n%s", want, patch)
		}
	}
}

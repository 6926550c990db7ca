package steps

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Links, repositories, modes, kinds and short names in a protected path's place
// are left out of the patch as its contents are.
func TestPatchHasNoProtectedPathOfAnotherKind(t *testing.T) {
	h := newHouse(t, task.Spec{Agent: shell(`chmod +x .envrc; ln -s sub .idea; ln -s ../.. .CLAUDE
mkdir -p CLAUDE~1 .devcontainer.json sub && echo x > CLAUDE~1/settings.json && echo x > VSCODE~1 && echo x > GITATT~1 && echo x > MCP~1.JSO
rm -rf .vscode && echo x > .vscode; rm .mcp.json && mkdir .mcp.json && echo x > .mcp.json/x
for r in .cursor nested; do git init -q $r && (cd $r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && echo x > file); done
printf '%s\n' '* filter=evil' > sub/.gitattributes; git config filter.evil.clean 'touch /tmp/ran'; echo ok > fine`)})
	h.task.Spec.Repo.Bundle = h.repository("echo a > .envrc; mkdir .vscode; echo a > .vscode/tasks.json; echo '{}' > .mcp.json; git add .; git commit -qm base")
	h.plan.plan.Files = task.FileRules{}
	if o := h.through(task.Export, 1); o.State != task.StageSucceeded {
		t.Fatalf("%+v", o)
	}
	patch := h.bytes("patch")
	if !strings.Contains(patch, "b/fine") {
		t.Errorf("fine is missing:\n%s", patch)
	}
	for _, bad := range []string{".envrc", ".idea", ".CLAUDE", "CLAUDE~1", "VSCODE~1", "GITATT~1", "MCP~1", ".vscode", ".mcp.json", ".cursor", ".git/", "160000"} {
		if strings.Contains(patch, bad) {
			t.Errorf("%s is in the patch:\n%s", bad, patch)
		}
	}
}

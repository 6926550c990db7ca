//go:build root

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// What setup left and the agent tries against protected files: refused inside,
// told outside, and not in the patch. Commits work all the while.
func TestProtectedFilesOfATask(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	dir := small(t)
	agent := `cd /workspace
git config core.pager ./p && exit 31
echo x > .git/hooks/pre-commit && exit 32
mkdir -p .claude && echo '{}' > .claude/settings.json && exit 33
mv .git .git2 && exit 34
mkdir .vscode && echo '{}' > .vscode/tasks.json || exit 35
test -z "$(git status --porcelain | grep -v vscode)" || exit 36
echo 42 > answer.txt && git add -A && git commit -qm work || exit 37
git update-index --add --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),.claude/settings.json && git commit -qm plumbing
git show HEAD:.claude/settings.json | grep -q evil || exit 38
mkdir -p .Claude && echo '{}' > .Claude/settings.json
exit 0`
	got := run(t, e, api.TaskRequest{
		Repo: bundle(t, e, dir), Agent: sh(agent), Verify: "./check.sh && test ! -e .claude && test ! -e .Claude && test -e .vscode/tasks.json",
		Setup:  "ln -s /etc .mcp.json; (setsid sh -c 'exec 9>>.git/config; while :; do echo \"# x\" >&9; done' >/dev/null 2>&1 &)",
		Policy: "version: 1\nfiles: {writable: [.vscode]}\n",
	})
	must(t, e, got, api.Succeeded, "")

	patch := string(output(t, e, got.ID, "patch"))
	for _, bad := range []string{".claude", ".Claude", ".mcp.json", ".git/", ".envrc", "opencode"} {
		if strings.Contains(patch, bad) {
			t.Errorf("the patch has %s:\n%s", bad, patch)
		}
	}
	if !strings.Contains(patch, "answer.txt") || !strings.Contains(patch, ".vscode/tasks.json") {
		t.Errorf("the patch is\n%s", patch)
	}
	shown, err := e.CLI("task", "show", got.ID)
	for _, want := range []string{"widened by policy: .vscode", "refused on protected files (policy.files)", "left out of the patch", ".Claude/settings.json"} {
		if err != nil || !strings.Contains(shown, want) {
			t.Errorf("task show lacks %q: %v\n%s", want, err, shown)
		}
	}
	list, err := e.Client.FileDenials(context.Background(), got.ID)
	if err != nil {
		t.Fatal(err)
	}
	for path, errno := range map[string]string{
		"/workspace/.git/config": "EBUSY", "/workspace/.git/hooks/pre-commit": "EROFS", "/workspace/.claude/settings.json": "EROFS", "/workspace/.git": "EBUSY",
	} {
		found := false
		for _, d := range list {
			found = found || d.Path == path && d.Error == errno && d.Program != ""
		}
		if !found {
			t.Errorf("no refusal of %s with %s in %+v", path, errno, list)
		}
	}
	if out, err := e.CLI("task", "files", got.ID); err != nil || !strings.Contains(out, "/workspace/.git/hooks/pre-commit") {
		t.Errorf("task files: %v\n%s", err, out)
	}
	checkFilesInReceipt(t, e, got.ID)
}

// checkFilesInReceipt looks for the widening and the refusals in a receipt that
// verifies.
func checkFilesInReceipt(t *testing.T, e *testenv.Env, id string) {
	t.Helper()
	receipt, key := filepath.Join(t.TempDir(), "receipt.json"), filepath.Join(t.TempDir(), "key")
	for name, args := range map[string][]string{receipt: {"task", "receipt", id}, key: {"audit", "key"}} {
		text, err := e.Command(args...).Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := e.CLI("audit", "verify", "--key", key, receipt); err != nil {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
	text, err := os.ReadFile(receipt)
	if err != nil || !json.Valid(text) {
		t.Fatalf("receipt: %v", err)
	}
	for _, want := range []string{"files.protected", "widened", ".vscode", "files.refused", "files.stripped"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the receipt lacks %q", want)
		}
	}
}

// A repository that setup replaced by a link is not protected and not run on.
func TestReplacedRepositoryEndsTheTask(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	got := run(t, e, api.TaskRequest{Repo: bundle(t, e, small(t)), Setup: "mv .git /tmp/g && ln -s /tmp/g .git", Agent: sh("true")})
	must(t, e, got, api.Failed, "policy.files")
}

//go:build root

package e2e

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
)

// presetWork is what the presets for git let a git do, and what they don't.
const presetWork = `set -u
export GIT_TERMINAL_PROMPT=0
for what in app lib; do git clone -q https://git.test/acme/$what.git /tmp/$what || echo "NO CLONE OF $what"; done
cd /tmp/app && git fetch -q origin || echo "NO FETCH"
echo made > made.txt; git add made.txt; git -c user.name=a -c user.email=a@b commit -qm made
git push -q origin HEAD:refs/heads/made || echo "NO PUSH"
cd /tmp/lib
echo "== push to lib"; git push origin HEAD:refs/heads/stolen && echo LEAK
echo "== other"; git clone https://git.test/acme/other.git /tmp/other && echo LEAK
echo "== archive"; git archive --remote=https://git.test/acme/app.git HEAD >/dev/null && echo LEAK
echo "== api"; curl -sS https://git.test/acme/app/settings
cd /workspace && echo done > done.txt
`

// A real git works under git-push for one repository and git-fetch for another,
// and gets no further.
func TestGitUnderPresets(t *testing.T) {
	// Presets are for the port that https has.
	f, e := serveForge(t, "127.83.7.1:443")
	f.lend(t, e)
	got := run(t, e, api.TaskRequest{
		Repo:  bundle(t, e, small(t)),
		Agent: sh(presetWork),
		Policy: "version: 1\nagent:\n  network:\n    allow:\n" +
			"      - {preset: git-push, host: git.test, repository: acme/app, credential: forge}\n" +
			"      - {preset: git-fetch, host: git.test, repository: acme/lib, credential: forge}\n",
	})
	must(t, e, got, api.Succeeded, "")
	said := log(t, e, got.ID, "agent")
	if strings.Contains("\n"+said, "\nNO ") || strings.Contains(said, "\nLEAK") || strings.Count(said, "403") < 3 || !strings.Contains(said, `"code":"policy.denied"`) {
		t.Errorf("the agent's log:\n%s", tail(said))
	}
	if refs := git(t, f.folder, "--git-dir", "acme/app.git", "for-each-ref", "refs/heads/made"); refs == "" {
		t.Error("nothing was pushed")
	}
	if refs := git(t, f.folder, "--git-dir", "acme/lib.git", "for-each-ref", "refs/heads/stolen"); refs != "" {
		t.Error("a repository to be read was pushed to")
	}
	if f.had("GET /acme/lib.git/info/refs?service=git-receive-pack") || f.had("GET /acme/other") || f.had("GET /acme/app/settings") || len(f.strange) > 0 {
		t.Errorf("the server had %q and %q", f.asked, f.strange)
	}
}

//go:build root

package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

const forgeToken = "ghp_REALTOKEN0123456789abcdefREALTOKEN01"

// forge is git's own server behind Basic authentication, over TLS.
type forge struct {
	port    int
	folder  string
	backend http.Handler

	mu       sync.Mutex
	asked    []string // method, path and query of what came with the token
	strange  []string // and of what came otherwise
	headings bytes.Buffer
}

// serveForge serves acme/app with the submodule acme/lib, and acme/other, as
// git.test, and starts a platform that trusts and reaches it.
func serveForge(t *testing.T, listen string) (*forge, *testenv.Env) {
	t.Helper()
	f := &forge{folder: t.TempDir()}
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	f.backend = &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + f.folder, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=robot", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	app, lib := small(t), small(t)
	git(t, lib, "commit", "-q", "--allow-empty", "-m", "the library")
	head := strings.TrimSpace(git(t, lib, "rev-parse", "HEAD"))
	if err := os.WriteFile(filepath.Join(app, ".gitmodules"), []byte("[submodule \"lib\"]\n\tpath = lib\n\turl = git@git.test:acme/lib.git\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, app, "update-index", "--add", "--cacheinfo", "160000,"+head+",lib")
	git(t, app, "add", ".gitmodules")
	git(t, app, "commit", "-q", "-m", "a submodule by ssh")
	for name, from := range map[string]string{"app": app, "lib": lib, "other": lib} {
		git(t, f.folder, "clone", "-q", "--bare", from, "acme/"+name+".git")
	}
	far := egresstest.NewFar(t)
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	f.port = at.Port
	egresstest.Serve(t, l, far.Certificate(t, "git.test", time.Now().Add(time.Hour)), true, f)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, far.PEM, 0o644); err != nil {
		t.Fatal(err)
	}
	return f, testenv.Start(t, testenv.Config{
		DNS: testenv.Names(t, map[string]string{"git.test.": at.IP.String()}).Addr, Flags: []string{"--roots", roots},
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: git.test, ports: [%d]}\n", f.port),
	})
}

// ServeHTTP lets nobody in without the token.
func (f *forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	right := user == "x-access-token" && password == forgeToken
	f.mu.Lock()
	fmt.Fprintln(&f.headings, r.URL, r.Header, password)
	if line := r.Method + " " + r.URL.RequestURI(); right {
		f.asked = append(f.asked, line)
	} else {
		f.strange = append(f.strange, line)
	}
	f.mu.Unlock()
	if !right {
		w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	f.backend.ServeHTTP(w, r)
}

// lend puts the token into the vault, for both repositories.
func (f *forge) lend(t *testing.T, e *testenv.Env) {
	t.Helper()
	cmd := e.Command("credential", "add", "forge", "--kind", "git", "--host", "git.test", "--port", strconv.Itoa(f.port),
		"--set", "repository=acme/app, acme/lib", "--set", "push=yes", "--env", "FORGE_TOKEN")
	cmd.Stdin = strings.NewReader(forgeToken + "\n")
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte(forgeToken)) {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
}

// had says whether a request with the token came that begins so.
func (f *forge) had(begin string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range f.asked {
		if strings.HasPrefix(line, begin) {
			return true
		}
	}
	return false
}

// gitWork is what an agent does with git, and where it looks for a token.
const gitWork = `set -u
test -f lib/README.md || test -n "$(ls -A lib)" || echo "NO SUBMODULE"
(while [ ! -e /tmp/done ]; do cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' '; done > /tmp/argv) &
export GIT_TRACE=1 GIT_TRACE_CURL=1 GIT_CURL_VERBOSE=1 GIT_TRACE_REDACT=0 GIT_TRACE_SETUP=1
git clone --recurse-submodules git@git.test:acme/app.git /tmp/app || echo "NO CLONE"
cd /tmp/app
ls -A lib | grep -q . || echo "NO SUBMODULE OF THE CLONE"
git fetch ssh://git@git.test/acme/app.git HEAD || echo "NO FETCH"
echo made > made.txt; git add made.txt; git -c user.name=a -c user.email=a@b commit -qm made
git push origin HEAD:refs/heads/made || echo "NO PUSH"
printf 'protocol=https\nhost=git.test:PORT\n\n' | git credential fill
echo "== other"; git push https://git.test:PORT/acme/other.git HEAD:refs/heads/stolen && echo LEAK
echo "== read other"; git clone https://git.test:PORT/acme/other.git /tmp/other && echo LEAK
echo "== none"; git clone git@git.test:acme/none.git /tmp/none && echo LEAK
echo "== own"; git clone https://me:mine@git.test:PORT/acme/app.git /tmp/own || echo "NO CLONE WITH A NAME"
echo "== api"; curl -sS https://git.test:PORT/api/v1/user
touch /tmp/done; wait
unset GIT_TRACE GIT_TRACE_CURL GIT_CURL_VERBOSE GIT_TRACE_SETUP
echo "== config"; git config -l --show-origin; git -C lib config -l --show-origin
echo "== reflog"; git reflog; git remote -v
echo "== argv"; sort -u /tmp/argv
echo "== env"; env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'
echo "== files"; grep -rIH . /tmp/app /tmp/own /workspace/.git "$HOME" 2>/dev/null
cp made.txt /workspace/made.txt
`

// Git clones, fetches and pushes with a credential it never sees, through
// addresses for SSH and in submodules too; what it shows of itself has the
// placeholder at most (B13). Another repository is refused.
func TestGitNeverSeesItsToken(t *testing.T) {
	f, e := serveForge(t, "127.0.0.1:0")
	f.lend(t, e)
	got := run(t, e, api.TaskRequest{
		Repo:   api.Repo{URL: fmt.Sprintf("https://git.test:%d/acme/app.git", f.port), Credential: "forge"},
		Agent:  sh(strings.ReplaceAll(gitWork, "PORT", strconv.Itoa(f.port))),
		Policy: fmt.Sprintf("version: 1\nagent:\n  network:\n    allow:\n      - {host: git.test, ports: [%d], credential: forge}\n", f.port),
	})
	must(t, e, got, api.Succeeded, "")
	said := log(t, e, got.ID, "agent")

	// What follows has the script itself in it, as an argument.
	did, _, found := strings.Cut(said, "\n== config\n")
	if !found || strings.Contains("\n"+did, "\nNO ") || strings.Contains(did, "\nLEAK") {
		t.Errorf("the agent's log:\n%s", tail(did))
	}
	for _, what := range []string{
		"GET /acme/app.git/info/refs?service=git-upload-pack", "POST /acme/app.git/git-upload-pack", "GET /acme/lib.git/info/refs?service=git-upload-pack",
		"GET /acme/app.git/info/refs?service=git-receive-pack", "POST /acme/app.git/git-receive-pack",
	} {
		if !f.had(what) {
			t.Errorf("the server had no %s", what)
		}
	}
	if f.had("GET /acme/other") || f.had("GET /acme/none") || f.had("POST /acme/other") || f.had("GET /api") || len(f.strange) > 0 || strings.Contains(f.headings.String(), "placeholder") {
		t.Errorf("the server had %q and %q", f.asked, f.strange)
	}
	if refs := git(t, f.folder, "--git-dir", "acme/app.git", "for-each-ref", "refs/heads/made"); refs == "" {
		t.Error("nothing was pushed")
	}
	if refs := git(t, f.folder, "--git-dir", "acme/other.git", "for-each-ref", "refs/heads/stolen"); refs != "" {
		t.Error("another repository was pushed to")
	}
	if strings.Count(did, "The requested URL returned error: 403") != 3 || !strings.Contains(did, `"code":"policy.credential"`) {
		t.Errorf("what is refused is not told:\n%s", tail(did))
	}
	if !strings.Contains(said, "username=x-access-token\npassword=ghp_placeholder") {
		t.Error("git's own question for a password has no placeholder as an answer")
	}

	shown, err := e.CLI("task", "show", got.ID)
	if err != nil {
		t.Error(err)
	}
	export, err := e.CLI("audit", "export")
	if err != nil {
		t.Error(err)
	}
	traffic, err := e.CLI("task", "egress", got.ID)
	if err != nil || !strings.Contains(traffic, "self-test") {
		t.Errorf("task egress: %v\n%s", err, traffic)
	}
	for _, path := range []string{"/acme/other.git/info/refs", "/acme/none.git/info/refs", "/api/v1/user"} {
		refused := false
		for line := range strings.Lines(traffic) {
			refused = refused || strings.Contains(line, path) && strings.Contains(line, "policy.credential")
		}
		if !refused {
			t.Errorf("task egress has no refusal of %s:\n%s", path, traffic)
		}
	}
	patch := string(output(t, e, got.ID, "patch"))
	if !strings.Contains(patch, "made.txt") {
		t.Errorf("the patch:\n%s", patch)
	}
	file := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(file, output(t, e, got.ID, "bundle"), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, f.folder, "--git-dir", "acme/app.git", "fetch", "-q", file, "refs/heads/*:refs/heads/*")
	history := git(t, f.folder, "--git-dir", "acme/app.git", "log", "-p", "--all")
	whole := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + forgeToken))
	for what, text := range map[string]string{
		"log": said, "checkout's log": log(t, e, got.ID, "checkout"), "task show": shown, "export": export, "task egress": traffic,
		"patch": patch, "bundle": history, "daemons' logs": e.Logs(),
	} {
		if strings.Contains(text, forgeToken) || strings.Contains(text, whole) {
			t.Errorf("%s has the token", what)
		}
	}
	valueNowhere(t, e.Data, forgeToken)
	valueNowhere(t, e.Data, whole)
}

func tail(s string) string { return s[max(0, len(s)-8000):] }

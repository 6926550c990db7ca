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

// From request to verified receipt, by the command line, and nothing is left.
func TestRequestToReceipt(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	before := e.Census()
	dir := small(t)

	out, err := e.CLI("run", "--repo", dir, "--verify", "./check.sh", "--json", "--", "sh", "-c", "echo 42 > answer.txt; dmesg 2>/dev/null | head -5; cat /proc/version")
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	list, err := e.Client.Tasks(context.Background(), 1, "")
	if err != nil || len(list.Tasks) != 1 {
		t.Fatalf("tasks: %v, %v", list, err)
	}
	task, err := e.Client.Task(context.Background(), list.Tasks[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	must(t, e, task, api.Succeeded, "")

	if want := git(t, dir, "rev-parse", "HEAD"); task.Commit != want {
		t.Errorf("commit %q, want %q", task.Commit, want)
	}
	agent, verify := testenv.Stage(task, "agent"), testenv.Stage(task, "verify")
	if agent.Sandbox == "" || verify.Sandbox == "" || agent.Sandbox == verify.Sandbox {
		t.Errorf("agent in %q, verify in %q; want two sandboxes", agent.Sandbox, verify.Sandbox)
	}
	if text := log(t, e, task.ID, "agent"); !strings.Contains(text, "gVisor") {
		t.Errorf("the agent's kernel does not say it is gVisor: %q", text)
	}
	patch := output(t, e, task.ID, "patch")
	file := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(file, patch, 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "apply", file)
	if b, _ := os.ReadFile(filepath.Join(dir, "answer.txt")); string(b) != "42\n" {
		t.Errorf("the patch makes answer.txt %q", b)
	}
	var report map[string]any
	if err := json.Unmarshal(output(t, e, task.ID, "report"), &report); err != nil {
		t.Errorf("the report is not JSON: %v", err)
	}

	receipt := filepath.Join(t.TempDir(), "receipt.json")
	key := filepath.Join(t.TempDir(), "key")
	for name, args := range map[string][]string{receipt: {"task", "receipt", task.ID}, key: {"audit", "key"}} {
		text, err := e.Command(args...).Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := e.CLI("audit", "verify", "--key", key, receipt); err != nil {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
	if out, err := e.CLI("doctor", "--data", e.Data); err != nil {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	e.Unchanged(before)
}

// What a task leaves but in the patch is worth nothing to the verifier.
func TestFixThatIsNotInThePatchFailsVerification(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	dir := repo(t, map[string]string{
		"check.sh": "#!/bin/sh\n[ -e \"$HOME/fixed\" ] || [ -e /tmp/fixed ] || [ -e /go/pkg/mod/fixed ] || [ -e \"$HOME/go/pkg/mod/fixed\" ] || [ -e .git/fixed ] || git config fixed.yes || git rev-parse -q --verify refs/heads/fixed || git stash list | grep -q fixed\n",
	})
	for name, fix := range map[string]string{
		"HOME":         "touch $HOME/fixed",
		"tmp":          "touch /tmp/fixed",
		"module cache": "mkdir -p $HOME/go/pkg/mod && touch $HOME/go/pkg/mod/fixed",
		"git folder":   "touch .git/fixed",
		"git config":   "git config fixed.yes 1",
		"git branch":   "git branch fixed",
		"git hook":     "printf '#!/bin/sh\ntouch $HOME/fixed' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout",
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, e, api.TaskRequest{Repo: bundle(t, e, dir), Agent: sh(fix + "; true"), Verify: "./check.sh"})
			must(t, e, got, api.Failed, "verify.failed")
		})
	}
	t.Run("the check itself can pass", func(t *testing.T) {
		got := run(t, e, api.TaskRequest{Repo: bundle(t, e, dir), Agent: sh("printf '#!/bin/sh\nexit 0\n' > check.sh"), Verify: "./check.sh"})
		must(t, e, got, api.Succeeded, "")
	})
}

// Each way a task ends has its state, its reason code and its exit code.
func TestEndings(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	dir := small(t)
	fix := "echo 42 > answer.txt"
	policy := func(text string) string {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range []struct {
		name   string
		args   []string
		agent  string
		code   int
		reason string
	}{
		{"agent fails", nil, "exit 3", 10, "agent.failed"},
		{"no such program", nil, "exec /no/such/program", 10, "agent.failed"},
		{"verification fails", []string{"--verify", "./check.sh"}, "true", 11, "verify.failed"},
		{"setup fails", []string{"--setup", "exit 9"}, fix, 17, "setup.failed"},
		{"no time", []string{"--policy", policy("version: 1\nlimits: {time: 2s}\n")}, "trap '' TERM; while :; do :; done", 13, "limit.time"},
		{"no memory", []string{"--policy", policy("version: 1\nlimits: {memory: 256MiB}\n")}, "exec tail /dev/zero", 13, "limit.memory"},
		{"too much output", []string{"--policy", policy("version: 1\nlimits: {output: 64KiB}\n")}, "exec yes", 13, "limit.output"},
		{"no disk", []string{"--policy", policy("version: 1\nlimits: {disk: 64MiB}\n")}, "exec dd if=/dev/zero of=big bs=1M count=1000", 13, "limit.disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"run", "--repo", dir, "--json"}, c.args...)
			out, err := e.CLI(append(args, "--", "sh", "-c", c.agent)...)
			if code := testenv.ExitCode(err); code != c.code || !strings.Contains(out, c.reason) {
				t.Errorf("exit code %d, want %d with %s\n%s", code, c.code, c.reason, out)
			}
		})
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"unknown repository", []string{"run", "--repo", "/no/such/folder", "--", "true"}, 2, []string{"/no/such/folder"}},
		{"not a repository", []string{"run", "--repo", t.TempDir(), "--", "true"}, 2, []string{"git"}},
		{"unknown ref", []string{"run", "--repo", dir, "--ref", "nowhere", "--", "true"}, 2, []string{"nowhere"}},
		{"unknown policy field", []string{"run", "--repo", dir, "--policy", policy("version: 1\nagent:\n  netz: {}\n"), "--", "true"}, 2, []string{"line 3", "agent.netz", "unknown field"}},
		{"unknown task", []string{"task", "show", "t-aaaaaaaaaaaaaaaa"}, 2, []string{"input.not_found"}},
		{"unknown sandbox", []string{"sandbox", "exec", "sb-aaaaaaaaaaaaaaaa", "--", "true"}, 2, []string{"input.not_found"}},
		{"no agent", []string{"run", "--repo", dir}, 2, []string{"--"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := e.CLI(c.args...)
			if code := testenv.ExitCode(err); code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, out)
			}
			for _, w := range c.want {
				if !strings.Contains(out, w) {
					t.Errorf("says %q, want %q in it", out, w)
				}
			}
		})
	}
	if out, err := e.CLI("doctor", "--data", e.Data); err != nil {
		t.Errorf("doctor: %v\n%s", err, out)
	}
}

// A cancel reaches the running command, and the same key gives the same task.
func TestCancelAndIdempotency(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	before := e.Census()
	ctx := context.Background()
	req := api.TaskRequest{Repo: bundle(t, e, small(t)), Agent: sh("sleep 600")}
	first, created, err := e.Client.CreateTask(ctx, req, "key-1")
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	again, created, err := e.Client.CreateTask(ctx, req, "key-1")
	if err != nil || created || again.ID != first.ID {
		t.Fatalf("the same key made %q (created %v, %v), want %q", again.ID, created, err, first.ID)
	}
	other := req
	other.Prompt = "something else"
	if _, _, err := e.Client.CreateTask(ctx, other, "key-1"); err == nil || !strings.Contains(err.Error(), "input.conflict") {
		t.Errorf("the same key for another request: %v, want input.conflict", err)
	}
	inFlight(t, e, first.ID, "agent")
	if err := e.Client.CancelTask(ctx, first.ID); err != nil {
		t.Fatal(err)
	}
	got := e.WaitTask(first.ID, patience)
	must(t, e, got, api.Cancelled, "cancelled")
	e.Unchanged(before)
}

// inFlight waits until the stage runs.
func inFlight(t testing.TB, e *testenv.Env, id, stage string) {
	t.Helper()
	testenv.Until(t, patience, "stage "+stage+" of "+id+" to run", func() bool {
		got, err := e.Client.Task(context.Background(), id)
		if err == nil && got.Ended() {
			must(t, e, got, api.Running, "")
		}
		return err == nil && testenv.Stage(got, stage).State == "running"
	})
}

// Whatever a repository can hold is in the patch: links to anywhere, modes,
// bytes, odd names, removals; what the agent does to git is not.
func TestPatchHoldsEveryKindOfChange(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	dir := repo(t, map[string]string{"gone.txt": "x\n", "mode.sh": "echo\n", "kept.txt": "y\n"})
	agent := `set -e
rm gone.txt; chmod 644 mode.sh
ln -s /usr/bin/python3 absolute; ln -s ../outside up; ln -s kept.txt inner; ln -s nowhere dangling
printf '\000\001\377' > bytes.bin; touch 'a name with spaces' "$(printf 'new\nline')"; mkdir -p deep/er; echo z > deep/er/f
mkfifo pipe; git config core.fsmonitor ./payload; git config diff.external ./payload; git config filter.x.clean ./payload
printf '* filter=x\n' > .gitattributes; printf '#!/bin/sh\ntouch /tmp/payload-ran; cat\n' > payload; chmod +x payload
mkdir nested && git -C nested init -q && echo n > nested/file`
	verify := `[ ! -e gone.txt ] && [ ! -x mode.sh ] && [ "$(readlink absolute)" = /usr/bin/python3 ] && [ "$(readlink up)" = ../outside ] &&
[ "$(readlink inner)" = kept.txt ] && [ -L dangling ] && [ "$(od -An -tx1 bytes.bin | tr -d ' ')" = 0001ff ] && [ -e 'a name with spaces' ] &&
[ -e "$(printf 'new\nline')" ] && [ "$(cat deep/er/f)" = z ] && [ ! -e /tmp/payload-ran ] && [ -x payload ] && ! git config filter.x.clean`
	// The protection of git's own files is taken away: what they could do is to do no harm anyway.
	widened := "version: 1\nfiles: {writable: [.git/config, .gitattributes]}\n"
	got := run(t, e, api.TaskRequest{Repo: bundle(t, e, dir), Agent: sh(agent), Verify: verify, Policy: widened})
	must(t, e, got, api.Succeeded, "")
	if patch := output(t, e, got.ID, "patch"); len(patch) == 0 {
		t.Error("the patch is empty")
	}
}

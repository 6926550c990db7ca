//go:build root

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// patience is how long a small task may take on a slow and busy machine.
const patience = 3 * time.Minute

// git runs git in dir with a configuration of its own.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// repo makes a git repository with the files and returns its folder.
func repo(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "base")
	return dir
}

// small is a repository whose test fails until answer.txt says 42.
func small(t testing.TB) string {
	return repo(t, map[string]string{
		"answer.txt": "41\n",
		"check.sh":   "#!/bin/sh\n[ \"$(cat answer.txt)\" = 42 ]\n",
	})
}

// bundle uploads the repository as the command line would.
func bundle(t testing.TB, e *testenv.Env, dir string) api.Repo {
	t.Helper()
	file := filepath.Join(t.TempDir(), "repo.bundle")
	git(t, dir, "bundle", "create", "-q", file, "HEAD", "--branches", "--tags")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	blob, err := e.Client.UploadBundle(context.Background(), bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return api.Repo{Bundle: blob.Digest, Name: dir}
}

// submit creates a task of a plain command.
func submit(t testing.TB, e *testenv.Env, req api.TaskRequest) api.Task {
	t.Helper()
	if req.Agent.Name == "" {
		req.Agent.Name = "command"
	}
	created, _, err := e.Client.CreateTask(context.Background(), req, "")
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// sh is the agent that runs a shell script.
func sh(script string) api.Agent {
	return api.Agent{Name: "command", Argv: []string{"sh", "-c", script}}
}

// run submits the task and waits for its end.
func run(t testing.TB, e *testenv.Env, req api.TaskRequest) api.Task {
	t.Helper()
	return e.WaitTask(submit(t, e, req).ID, patience)
}

// log returns the log of one stage.
func log(t testing.TB, e *testenv.Env, id, stage string) string {
	t.Helper()
	return string(output(t, e, id, "log."+stage))
}

// output returns an output's bytes.
func output(t testing.TB, e *testenv.Env, id, name string) []byte {
	t.Helper()
	body, _, err := e.Client.Output(context.Background(), id, name)
	if err != nil {
		t.Fatalf("output %s: %v", name, err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("output %s: %v", name, err)
	}
	return b
}

// must fails the test unless the task ended in state for reason.
func must(t testing.TB, e *testenv.Env, got api.Task, state, reason string) {
	t.Helper()
	if got.State == state && got.Reason == reason {
		return
	}
	dump, _ := json.MarshalIndent(got, "", "  ")
	var logs strings.Builder
	for _, s := range got.Stages {
		var b bytes.Buffer
		if body, _, err := e.Client.Output(context.Background(), got.ID, "log."+s.Name); err == nil {
			io.Copy(&b, io.LimitReader(body, 4000))
			body.Close()
			logs.WriteString("--- log." + s.Name + "\n" + b.String() + "\n")
		}
	}
	t.Fatalf("the task ended %s for %q, want %s for %q\n%s\n%s", got.State, got.Reason, state, reason, dump, logs.String())
}

// sandboxOf creates a sandbox without a task; it goes when the test ends.
func sandboxOf(t testing.TB, e *testenv.Env, req api.SandboxRequest) api.Sandbox {
	t.Helper()
	s, err := e.Client.CreateSandbox(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Client.RemoveSandbox(context.Background(), s.ID); err != nil {
			t.Errorf("remove %s: %v", s.ID, err)
		}
	})
	return s
}

// execIn runs a shell script in the sandbox and returns its output and status.
func execIn(t testing.TB, e *testenv.Env, id, script string) (string, api.CommandStatus) {
	t.Helper()
	var out bytes.Buffer
	status, err := e.Client.Run(context.Background(), id, api.ExecRequest{Argv: []string{"sh", "-c", script}}, &out, &out)
	if err != nil {
		t.Fatalf("exec %q: %v", script, err)
	}
	return out.String(), status
}

// stageRuns says whether the event tells that the stage runs.
func stageRuns(ev api.Event, stage string) bool {
	var s api.Stage
	return json.Unmarshal(ev.Data, &s) == nil && s.Name == stage && s.State == "running"
}

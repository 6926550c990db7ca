package apart

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

// setup makes of the checkout what repositories may be: with a submodule and a
// linked work tree.
const setup = `set -e
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
mkdir /tmp/lib && cd /tmp/lib && git init -q -b main && echo lib > lib.txt && git add . && git commit -qm lib
cd /workspace && git -c protocol.file.allow=always submodule --quiet add /tmp/lib sub
git worktree add -q /tmp/tree -b side
echo hidden from agents > hidden.pem`

// Task runs argv as the agent of a task that is lent the credentials, in a checkout
// of files, and gives what it said.
func (p *Platform) Task(ctx context.Context, f *Far, files map[string][]byte, argv []string) (api.Task, string, error) {
	bundle, err := p.bundle(ctx, files)
	if err != nil {
		return api.Task{}, "", fmt.Errorf("the repository that the task works on: %w", err)
	}
	blob, err := p.Client.UploadBundle(ctx, bytes.NewReader(bundle), int64(len(bundle)))
	if err != nil {
		return api.Task{}, "", err
	}
	t, _, err := p.Client.CreateTask(ctx, api.TaskRequest{
		Repo: api.Repo{Bundle: blob.Digest, Name: "attack"}, Setup: setup, Policy: f.Policy(), Agent: api.Agent{Name: "command", Argv: argv},
	}, "")
	if err != nil {
		return api.Task{}, "", err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !t.Ended() {
		select {
		case <-ctx.Done():
			return t, "", context.Cause(ctx)
		case <-tick.C:
		}
		now, err := p.Client.Task(ctx, t.ID)
		if err != nil {
			return t, "", err
		}
		t = now
	}
	said, err := p.output(ctx, t.ID, "log.agent")
	if t.State != api.Succeeded {
		err = errors.Join(err, fmt.Errorf("the task ended as %s for %s: %s", t.State, t.Reason, t.Text))
	}
	return t, said, err
}

// bundle makes a repository of the files with this machine's git.
func (p *Platform) bundle(ctx context.Context, files map[string][]byte) ([]byte, error) {
	dir := filepath.Join(p.Data, "repository")
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o755)); err != nil {
			return nil, err
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "base"}, {"bundle", "create", "-q", "../repository.bundle", "HEAD", "main"}} {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = dir
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + p.Data, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_AUTHOR_NAME=attack", "GIT_AUTHOR_EMAIL=attack@invalid", "GIT_COMMITTER_NAME=attack", "GIT_COMMITTER_EMAIL=attack@invalid",
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("git %s: %w: %.200s", args[0], err, out)
		}
	}
	return os.ReadFile(filepath.Join(p.Data, "repository.bundle"))
}

func (p *Platform) output(ctx context.Context, task, name string) (string, error) {
	body, _, err := p.Client.Output(ctx, task, name)
	if err != nil {
		return "", fmt.Errorf("%s of the task: %w", name, err)
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, 64<<20))
	return string(text), err
}

// holds says whether a text has a value, or the part of one that no plan tells.
func (f *Far) holds(text []byte) bool {
	for _, v := range f.Values {
		if bytes.Contains(text, []byte(v[len(f.Ports.Begins):])) || bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString([]byte(gitUser+":"+v)))) ||
			bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString([]byte(user+":"+v)))) {
			return true
		}
	}
	return false
}

// AtRest looks for the values in every file of the platform. It gives the file that
// has one, and how many were read.
func (p *Platform) AtRest(f *Far) (found string, files int, err error) {
	err = filepath.WalkDir(p.Data, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // what went away meanwhile has nothing to see
		}
		file, err := os.Open(name)
		if err != nil {
			return nil // likewise
		}
		defer file.Close()
		files++
		b := make([]byte, 1<<20)
		kept := 0
		for {
			n, err := file.Read(b[kept:])
			if f.holds(b[:kept+n]) {
				found = strings.TrimPrefix(name, p.Data)
				return fs.SkipAll
			}
			if err != nil || n == 0 {
				return nil // its end
			}
			// A value may stand at the end of one piece and the beginning of the next.
			kept = copy(b, b[max(0, kept+n-100):kept+n])
		}
	})
	return found, files, err
}

// Told looks for the values in what the API tells of a task. It gives what has one,
// and how much was read.
func (p *Platform) Told(ctx context.Context, f *Far, task string) (found string, read int, err error) {
	look := func(what string, text []byte) {
		read += len(text)
		if f.holds(text) {
			found = what
		}
	}
	t, err := p.Client.Task(ctx, task)
	if err != nil {
		return "", 0, err
	}
	traffic, err := p.Client.Egress(ctx, task)
	if err != nil {
		return "", 0, err
	}
	events, err := p.Client.AgentEvents(ctx, task, 0)
	if err != nil {
		return "", 0, err
	}
	creds, err := p.Client.Credentials(ctx)
	if err != nil {
		return "", 0, err
	}
	for what, v := range map[string]any{"the task": t, "its traffic": traffic, "its events": events, "the credentials": creds} {
		text, err := json.Marshal(v)
		if err != nil {
			return "", 0, err
		}
		look(what, text)
	}
	receipt, err := p.Client.Receipt(ctx, task)
	if err != nil {
		return "", 0, err
	}
	look("its receipt", receipt)
	for _, o := range t.Outputs {
		text, err := p.output(ctx, task, o.Name)
		if err != nil {
			return "", 0, err
		}
		look("its "+o.Name, []byte(text))
	}
	return found, read, nil
}

// Patch gives the paths that the patch of a task changes.
func (p *Platform) Patch(ctx context.Context, task string) ([]string, error) {
	text, err := p.output(ctx, task, "patch")
	if err != nil {
		return nil, err
	}
	var paths []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "diff --git a/"); ok {
			name, _, _ := strings.Cut(rest, " b/")
			paths = append(paths, name)
		}
	}
	return paths, nil
}

package steps

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Facts of the audit about file rules.
type (
	filesProtected struct {
		Task    string `json:"task"`
		Attempt int    `json:"attempt"`
		Sandbox string `json:"sandbox"`
		task.FileProtection
	}
	filesRefused struct {
		Task    string            `json:"task"`
		Sandbox string            `json:"sandbox"`
		LastSeq int64             `json:"lastSeq"`
		Refused int64             `json:"refused"`         // with those that records stand for
		First   []task.FileDenial `json:"first,omitempty"` // at most maxFirst
		Digest  task.Digest       `json:"digest"`          // of the records as JSON, a line each
	}
	filesStripped struct {
		Task    string      `json:"task"`
		Attempt int         `json:"attempt"`
		Reason  task.Reason `json:"reason"`
		Paths   []string    `json:"paths"`
		More    int         `json:"more,omitempty"` // paths that are not listed
	}
)

const (
	maxFirst    = 10  // refusals in the audit
	maxStripped = 100 // paths in the audit
)

// modulesScript takes from submodules' configurations what git writes again at
// each update although it knows it: once they are read-only, updates would fail.
// It runs what setup left and may do anything; the protection comes after it.
const modulesScript = `cd /workspace && [ -e .gitmodules ] || exit 0
git submodule --quiet foreach --recursive 'git config --unset core.worktree || :' || :
`

// indexScript keeps git from calling paths changed that the workload can't see.
const indexScript = `cd /workspace && git --literal-pathspecs ls-files -z -- "$@" | git update-index -z --skip-worktree --stdin || :
`

// protect applies the plan's file rules to the agent's sandbox, after everything
// that ran in it has ended. A repeated run finds it done and ends nothing.
func (r *run) protect(ctx context.Context) error {
	_, err := r.exec(ctx, command{
		id: "agent-modules", argv: []string{"sh", "-c", modulesScript}, env: gitEnv(), timeout: time.Minute,
	}, 0, nil)
	r.row.ExitCode = nil
	if err != nil {
		return err
	}
	done, err := r.Permission.Protect(ctx, r.row.Sandbox, r.plan.Files)
	if err != nil {
		return lost(err)
	}
	r.protected = true
	unseen := append(append([]string{}, r.plan.Files.Hidden...), done.Replaced...)
	if len(unseen) > 0 {
		argv := append([]string{"sh", "-c", indexScript, "index"}, unseen...)
		_, err := r.exec(ctx, command{id: "agent-index", argv: argv, env: gitEnv(), timeout: time.Minute}, 0, nil)
		r.row.ExitCode = nil
		if err != nil {
			return err
		}
	}
	if len(done.Widened) > 0 {
		r.note("widened by policy: " + listed(done.Widened))
	}
	return r.Recorder.Record(ctx, r.in.Task, "files.protected/"+r.row.Sandbox, "files.protected", seenByWorker, filesProtected{
		Task: r.in.Task, Attempt: r.in.Attempt, Sandbox: r.row.Sandbox, FileProtection: done,
	})
}

// note adds to the stage's text what people should know of it.
func (r *run) note(text string) {
	if r.notes != "" {
		r.notes += "; "
	}
	r.notes += text
}

// withNotes is a stage's text with the notes.
func (r *run) withNotes(text string) string {
	switch {
	case r.notes == "":
		return text
	case text == "":
		return r.notes
	}
	return text + "; " + r.notes
}

// listed names the first of many.
func listed(paths []string) string {
	const most = 5
	shown := make([]string, 0, most)
	for _, p := range paths[:min(most, len(paths))] {
		shown = append(shown, fmt.Sprintf("%+q", p)[1:])
		shown[len(shown)-1] = strings.TrimSuffix(shown[len(shown)-1], `"`)
	}
	text := strings.Join(shown, ", ")
	if more := len(paths) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// refused takes over what the sandbox's kernel refused, and returns how much that
// was. A sandbox that is unknown or was not protected has none.
func (w *Work) refused(ctx context.Context, taskID, sandboxID string) (int64, error) {
	list, err := w.Permission.Denials(ctx, sandboxID, 0)
	if hasReason(err, task.InputNotFound) || hasReason(err, task.InfraSandboxLost) || err == nil && len(list) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := w.FileFacts.AddFileDenials(ctx, taskID, list); err != nil {
		return 0, err
	}
	facts := filesRefused{Task: taskID, Sandbox: sandboxID, First: list[:min(len(list), maxFirst)]}
	sum := sha256.New()
	lines := json.NewEncoder(sum)
	for _, d := range list {
		if err := lines.Encode(d); err != nil {
			return 0, err
		}
		facts.LastSeq = d.Seq
		facts.Refused += max(d.Count, 1)
	}
	facts.Digest = task.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil)))
	key := fmt.Sprintf("files.refused/%s/%d", sandboxID, facts.LastSeq)
	return facts.Refused, w.Recorder.Record(ctx, taskID, key, "files.refused", seenByWorker, facts)
}

// settleFiles takes over what was refused in the stage that ends.
func (r *run) settleFiles(ctx context.Context) {
	if !r.protected {
		return
	}
	n, err := r.refused(ctx, r.in.Task, r.row.Sandbox)
	if err != nil {
		r.Logger.Warn("refused writes not collected; close tries again", "task", r.in.Task, "sandbox", r.row.Sandbox, "err", err)
		return
	}
	if n > 0 {
		r.note(fmt.Sprintf("%d refused on protected files (%s)", n, task.PolicyFiles))
	}
}

// flagStripped marks a patch that something was left out of.
const flagStripped = "files"

// protectedNames reads NUL-ended names and returns those that the agent may not
// have changed.
func protectedNames(names io.Reader, rules task.FileRules) ([]string, error) {
	var list []string
	r := bufio.NewReader(names)
	for {
		name, err := r.ReadString(0)
		name = strings.TrimSuffix(name, "\x00")
		if name != "" && rules.Access(name) != task.AccessWritable {
			list = append(list, name)
		}
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// stripped records what was left out of the patch.
func (r *run) stripped(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	r.note(fmt.Sprintf("left out of the patch, since it is protected (%s): %s", task.PolicyFiles, listed(names)))
	facts := filesStripped{Task: r.in.Task, Attempt: r.in.Attempt, Reason: task.PolicyFiles, More: max(0, len(names)-maxStripped)}
	for _, n := range names[:min(len(names), maxStripped)] {
		facts.Paths = append(facts.Paths, fmt.Sprintf("%+q", n))
	}
	return r.Recorder.Record(ctx, r.in.Task, fmt.Sprintf("files.stripped/%d", r.in.Attempt), "files.stripped", seenByControl, facts)
}

package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage/steps/fact"
	"github.com/cofferdam/cofferdam/internal/stage/steps/script"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	maxFirst    = 10  // refusals in the audit
	maxStripped = 100 // paths in the audit
)

// protect applies the plan's file rules to the agent's sandbox, after everything
// that ran in it has ended. A repeated run finds it done and ends nothing.
func (r *run) protect(ctx context.Context) error {
	_, err := r.exec(ctx, command{
		id: "agent-modules", argv: []string{"sh", "-c", script.Modules}, env: gitEnv(), timeout: time.Minute,
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
		argv := append([]string{"sh", "-c", script.Index, "index"}, unseen...)
		_, err := r.exec(ctx, command{id: "agent-index", argv: argv, env: gitEnv(), timeout: time.Minute}, 0, nil)
		r.row.ExitCode = nil
		if err != nil {
			return err
		}
	}
	if len(done.Widened) > 0 {
		r.note("widened by policy: " + listed(done.Widened))
	}
	return r.Recorder.Record(ctx, r.in.Task, "files.protected/"+r.row.Sandbox, "files.protected", seenByWorker, fact.FilesProtected{
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
	facts := fact.FilesRefused{Task: taskID, Sandbox: sandboxID, First: list[:min(len(list), maxFirst)]}
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

// stripped records what was left out of the patch.
func (r *run) stripped(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	r.note(fmt.Sprintf("left out of the patch, since it is protected (%s): %s", task.PolicyFiles, listed(names)))
	facts := fact.FilesStripped{Task: r.in.Task, Attempt: r.in.Attempt, Reason: task.PolicyFiles, More: max(0, len(names)-maxStripped)}
	for _, n := range names[:min(len(names), maxStripped)] {
		facts.Paths = append(facts.Paths, fmt.Sprintf("%+q", n))
	}
	return r.Recorder.Record(ctx, r.in.Task, fmt.Sprintf("files.stripped/%d", r.in.Attempt), "files.stripped", seenByControl, facts)
}

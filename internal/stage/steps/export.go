package steps

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/flagged"
	"github.com/cofferdam/cofferdam/internal/stage/steps/listing"
	"github.com/cofferdam/cofferdam/internal/stage/steps/script"
	"github.com/cofferdam/cofferdam/internal/stage/steps/tree"
	"github.com/cofferdam/cofferdam/internal/task"
)

// flagManifest marks a patch that touches what decides on dependencies.
const flagManifest = "manifest"

// export turns what the agent left in the workspace into a patch, by git in a
// throw-away sandbox without a network, so that no git of ours ever meets the
// agent's configuration, hooks, filters or attributes.
func (w *Work) export(ctx context.Context, r *run) error {
	base, ok := r.output("base")
	if !ok || r.task.Commit == "" {
		return task.Fail(task.InfraInternal, "the base of the task is missing", nil)
	}
	if err := r.create(ctx, stage.RoleExport); err != nil {
		return err
	}
	if err := r.putBlob(ctx, base.Digest, "base.bundle"); err != nil {
		return err
	}
	if err := r.putTree(ctx); err != nil {
		return err
	}
	res, err := r.only(ctx, command{
		id: "export", argv: []string{"sh", "-c", script.Export, "export", r.task.Commit, listWanted(r.task.Spec)}, env: gitEnv(),
		timeout: r.plan.CommandTime(task.Export),
	})
	r.row.ExitCode = nil
	if err != nil {
		return err
	}
	if err := r.judge(res, task.ExportFailed, "git add"); err != nil {
		return err
	}
	if err := r.keepFiles(ctx); err != nil {
		return err
	}
	strip, err := r.makePatch(ctx)
	if err != nil {
		return err
	}
	if err := r.keepPatch(ctx, len(strip) > 0); err != nil {
		return err
	}
	return r.keepBundle(ctx)
}

// makePatch makes the patch without what the agent may not have changed, however
// it came about, and returns the names of that.
func (r *run) makePatch(ctx context.Context) (strip []string, err error) {
	err = r.getFile(ctx, "/tmp/cofferdam-work/out/names", func(from io.Reader) (err error) {
		strip, err = listing.Protected(from, r.plan.Files)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(strip) > 0 {
		text := strings.Join(strip, "\x00") + "\x00"
		err = r.put(ctx, func(w *tar.Writer) error {
			if err := w.WriteHeader(&tar.Header{Name: "strip", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
				return err
			}
			_, err := io.WriteString(w, text)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if err := r.stripped(ctx, strip); err != nil {
		return nil, err
	}
	res, err := r.exec(ctx, command{
		id: "export-patch", argv: []string{"sh", "-c", script.Patch, "patch", r.task.Commit}, env: gitEnv(),
		timeout: r.plan.CommandTime(task.Export),
	}, 0, nil)
	r.row.ExitCode = nil
	if err != nil {
		return nil, err
	}
	return strip, r.judge(res, task.ExportFailed, "git diff")
}

// putTree copies the agent's workspace, less its .git, into the inbox.
func (r *run) putTree(ctx context.Context) error {
	agent := stage.SandboxID(r.in.Task, r.in.Attempt, stage.RoleAgent)
	if err := r.checkWorkspace(ctx, agent); err != nil {
		return err
	}
	from, err := r.Sandboxes.Get(ctx, agent, "/workspace", []string{".git"})
	if err != nil {
		return unreadable(err)
	}
	defer func() { _ = from.Close() }() // it was only read
	limit := r.plan.Limits.WithDefaults().Disk
	return r.put(ctx, func(w *tar.Writer) error { return tree.Copy(from, w, limit) })
}

// checkPatch makes sure that nothing protected is left in the patch.
func (r *run) checkPatch(ctx context.Context) error {
	return r.getFile(ctx, "/tmp/cofferdam-work/out/names", func(from io.Reader) error {
		left, err := listing.Protected(from, r.plan.Files)
		if err == nil && len(left) > 0 {
			err = task.Fail(task.ExportFailed, "protected paths can't be taken out of the patch: "+listed(left), nil)
		}
		return err
	})
}

func (r *run) keepPatch(ctx context.Context, stripped bool) error {
	var flags []string
	if stripped {
		flags = append(flags, flagStripped)
	}
	if err := r.checkPatch(ctx); err != nil {
		return err
	}
	err := r.getFile(ctx, "/tmp/cofferdam-work/out/names", func(from io.Reader) error {
		touched, err := listing.TouchesManifest(from)
		if touched {
			flags = append(flags, flagManifest)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.getFile(ctx, "/tmp/cofferdam-work/out/patch", func(from io.Reader) error {
		limit, _, _ := r.plan.Limits.OfOutputs()
		digest, size, err := r.Blobs.Put(ctx, r.clean("the patch", from), limit)
		if hasReason(err, task.LimitSize) {
			return task.Fail(task.LimitSize, fmt.Sprintf("the patch is larger than %d bytes; the policy's limits.patch says how large it may be", limit), err)
		}
		if err != nil {
			return err
		}
		return r.judgeBites(ctx, task.Output{Name: "patch", Kind: "patch", Digest: digest, Size: size, Flags: flags})
	})
}

// judgeBites records the patch with what may bite in it. What the policy refuses
// ends the task, and the patch stays as evidence.
func (r *run) judgeBites(ctx context.Context, o task.Output) error {
	if o.Size == 0 {
		o.Flags = append(o.Flags, "empty")
	}
	f, err := flagged.Patch(ctx, r.Blobs, r.Judge, r.plan.Flags, &o)
	if err != nil {
		return err
	}
	f.Task, f.Attempt = r.in.Task, r.in.Attempt
	if err := r.Recorder.Record(ctx, r.in.Task, fmt.Sprintf("patch.flagged/%d/%s", r.in.Attempt, o.Digest), "patch.flagged", seenByControl, f); err != nil {
		return err
	}
	if err := r.addOutput(ctx, o); err != nil {
		return err
	}
	return flagged.Refusal(o, r.plan.Flags)
}

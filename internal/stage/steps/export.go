package steps

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// flagManifest marks a patch that touches what decides on dependencies.
const flagManifest = "manifest"

// exportScript adds the files in tree/ to an index of $1, and lists them first
// where $2 is not empty. The files are the agent's; the repository, its
// configuration and its hooks are not. A submodule came without its repository
// and would be taken for plain files: it stays as the base has it.
const exportScript = `set -eu
work=/tmp/cofferdam-work
mv /tmp/cofferdam-in "$work"
mkdir -p "$work/tree" "$work/out"
if [ -n "$2" ]; then find "$work/tree" -mindepth 1 \( -type f -printf 'f %s %P\0' -o -type l -printf 'l 0 %P\0' \) > "$work/out/list"; fi
git clone --quiet --no-checkout --branch cofferdam-base "$work/base.bundle" "$work/repo"
export GIT_DIR="$work/repo/.git" GIT_WORK_TREE="$work/tree"
cd "$work/tree"
git read-tree "$1"
git ls-files --stage -z | sed -z -n 's/^160000 [^\t]*\t//p' | xargs -0 -r sh -c 'for p do if [ -d "$p" ] && [ ! -L "$p" ]; then rm -rf -- "$p"; mkdir -- "$p"; fi; done' clear
git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.attributesFile=/dev/null -c core.excludesFile=/dev/null add --all -- .
git diff --cached --name-only --no-renames --no-ext-diff -z "$1" > "$work/out/names"
`

// patchScript makes the patch after what may not be in it was put back as it was:
// the names in strip.
const patchScript = `set -eu
work=/tmp/cofferdam-work
export GIT_DIR="$work/repo/.git" GIT_WORK_TREE="$work/tree"
cd "$work/tree"
if [ -f /tmp/cofferdam-in/strip ]; then
  mv /tmp/cofferdam-in/strip "$work/strip"
  git --literal-pathspecs reset --quiet "$1" --pathspec-from-file="$work/strip" --pathspec-file-nul
fi
git diff --cached --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color \
  --src-prefix=a/ --dst-prefix=b/ "$1" > "$work/out/patch"
git diff --cached --name-only --no-renames --no-ext-diff -z "$1" > "$work/out/names"
`

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
		id: "export", argv: []string{"sh", "-c", exportScript, "export", r.task.Commit, listWanted(r.task.Spec)}, env: gitEnv(),
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
		strip, err = protectedNames(from, r.plan.Files)
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
		id: "export-patch", argv: []string{"sh", "-c", patchScript, "patch", r.task.Commit}, env: gitEnv(),
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
	return r.put(ctx, func(w *tar.Writer) error { return copyTree(from, w, limit) })
}

// checkPatch makes sure that nothing protected is left in the patch.
func (r *run) checkPatch(ctx context.Context) error {
	return r.getFile(ctx, "/tmp/cofferdam-work/out/names", func(from io.Reader) error {
		left, err := protectedNames(from, r.plan.Files)
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
		touched, err := touchesManifest(from)
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
		_, err := r.keep(ctx, "patch", "patch", from, limit, flags...)
		if hasReason(err, task.LimitSize) {
			return task.Fail(task.LimitSize, fmt.Sprintf("the patch is larger than %d bytes; the policy's limits.patch says how large it may be", limit), err)
		}
		return err
	})
}

// touchesManifest reads NUL-ended names and says whether one of them decides
// on dependencies.
func touchesManifest(names io.Reader) (bool, error) {
	touched := false
	r := bufio.NewReader(names)
	for {
		name, err := r.ReadString(0)
		touched = touched || isManifest(strings.TrimSuffix(name, "\x00"))
		if errors.Is(err, io.EOF) {
			return touched, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// isManifest says whether the file names dependencies or pins them.
func isManifest(name string) bool {
	base := path.Base(name)
	switch base {
	case "go.mod", "go.sum", "go.work", "go.work.sum",
		"package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "pnpm-workspace.yaml", "yarn.lock", "bun.lock", "bun.lockb",
		"pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "Pipfile.lock", "poetry.lock", "uv.lock",
		"Cargo.toml", "Cargo.lock", "pom.xml",
		"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.lockfile", "libs.versions.toml",
		"Gemfile", "Gemfile.lock", "composer.json", "composer.lock", "mix.exs", "mix.lock":
		return true
	}
	return strings.HasPrefix(base, "requirements") && strings.HasSuffix(base, ".txt")
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cofferdam/cofferdam/api"
)

// scpLike is git's other way of writing an ssh URL.
var scpLike = regexp.MustCompile(`^[^/]+@[^/]+:`)

// remoteRepo says whether --repo names a repository elsewhere, which the
// sandbox clones through the gateway.
func remoteRepo(repo string) (bool, error) {
	if !strings.Contains(repo, "://") {
		if scpLike.MatchString(repo) {
			return false, usage("--repo %s: only https:// URLs can be cloned inside; give the repository's https URL, or the path of a clone", repo)
		}
		return false, nil
	}
	u, err := url.Parse(repo)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return false, usage("--repo %s: only https:// URLs can be cloned inside; or give the path of a clone", repo)
	case u.User != nil:
		return false, usage("--repo: the URL holds a user or a password, which would go into the record; leave it out")
	}
	return true, nil
}

// repository is a repository of the caller.
type repository struct {
	git string
	dir string   // where git works
	top string   // for people
	off []string // configuration that turns the repository's own off
}

// openRepository finds the repository at path.
func openRepository(ctx context.Context, path string) (*repository, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, repositoryProblem("--repo %s: %v", path, errors.Unwrap(err))
	}
	if !info.IsDir() {
		return nil, repositoryProblem("--repo %s: is not a folder", path)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, repositoryProblem("--repo %s: git is needed to read a repository, and it is not installed", path)
	}
	r := &repository{git: git, dir: path, off: []string{
		"core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.allow=never", "core.pager=cat",
		"core.askPass=/bin/false", "gc.auto=0", "maintenance.auto=false",
	}}
	top, err := r.run(ctx, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return nil, repositoryProblem("--repo %s: not a git repository, or not one that git lets you read: %v", path, err)
	}
	r.top = strings.TrimSuffix(top, "/.git")
	r.disarm(ctx)
	shallow, err := r.run(ctx, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return nil, repositoryProblem("--repo %s: %v", path, err)
	}
	if shallow == "true" {
		return nil, repositoryProblem("--repo %s: is a shallow clone, whose history can't be sent; run `git fetch --unshallow` in it first", path)
	}
	return r, nil
}

func repositoryProblem(format string, args ...any) error {
	return problem("input.repository", format, args...)
}

// disarm turns off the filters that the repository configures: git runs them
// whenever it has to compare a file's content. Reading the configuration runs
// nothing.
func (r *repository) disarm(ctx context.Context) {
	keys, err := r.run(ctx, "config", "--null", "--name-only", "--get-regexp", `^filter\.`)
	if err != nil {
		return // git ends with 1 when there is none
	}
	for key := range strings.SplitSeq(keys, "\x00") {
		switch {
		case strings.HasSuffix(key, ".required"):
			r.off = append(r.off, key+"=false")
		case key != "":
			r.off = append(r.off, key+"=")
		}
	}
}

// command is git such that the repository's own configuration starts no
// program: no hook, no watcher, no filter, no transport.
func (r *repository) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.git, args...)
	cmd.Dir = r.dir
	for _, v := range os.Environ() {
		// What a calling git or shell set up for another repository is not for this one.
		if !strings.HasPrefix(v, "GIT_CONFIG_") && !strings.HasPrefix(v, "GIT_DIR=") && !strings.HasPrefix(v, "GIT_WORK_TREE=") && !strings.HasPrefix(v, "GIT_INDEX_FILE=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// By environment, since a key given by -c may not hold an equals sign.
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "LC_ALL=C",
		fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(r.off)))
	for i, setting := range r.off {
		at := strings.LastIndexByte(setting, '=')
		cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, setting[:at]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, setting[at+1:]))
	}
	return cmd
}

func (r *repository) run(ctx context.Context, args ...string) (string, error) {
	cmd := r.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if text := strings.TrimSpace(errs.String()); text != "" {
			return "", errors.New(text)
		}
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimRight(out.String(), "\n"), nil
}

// source is what a task works on.
type source struct {
	ref  string   // as the server can find it in the bundle; empty: HEAD
	tips []string // what goes into the bundle
}

// resolve finds what a ref names. Branches and tags keep their names; anything
// else goes by its commit, which must be in the history that is sent.
func (r *repository) resolve(ctx context.Context, ref string) (source, error) {
	s := source{tips: []string{"--branches", "--tags"}}
	if _, err := r.run(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err == nil {
		s.tips = append([]string{"HEAD"}, s.tips...)
	} else if ref == "" || ref == "HEAD" {
		return s, repositoryProblem("--repo %s: has no commit that could be worked on; commit first, or name a branch with --ref", r.top)
	}
	if ref == "" || ref == "HEAD" {
		return s, nil
	}
	if strings.HasPrefix(ref, "-") {
		return s, usage("--ref %s: not the name of a branch, a tag or a commit", ref)
	}
	commit, err := r.run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	if err != nil {
		return s, repositoryProblem("--ref %s: the repository %s has no such branch, tag or commit", ref, r.top)
	}
	for _, kind := range []string{"refs/heads/", "refs/tags/"} {
		if _, err := r.run(ctx, "show-ref", "--verify", "--quiet", kind+ref); err == nil {
			s.ref = ref
			return s, nil
		}
	}
	s.ref = commit
	missing, err := r.run(ctx, append([]string{"rev-list", "--max-count=1", commit, "--not"}, s.tips...)...)
	if err != nil {
		return s, repositoryProblem("--ref %s: %v", ref, err)
	}
	if missing != "" {
		return s, repositoryProblem("--ref %s: no branch or tag of %s holds this commit, and only those are sent; make a branch of it first (git branch NAME %s)", ref, r.top, ref)
	}
	return s, nil
}

// dirty says about how many files differ from what is committed: mostly by
// their times and sizes.
func (r *repository) dirty(ctx context.Context) int {
	bare, err := r.run(ctx, "rev-parse", "--is-bare-repository")
	if err != nil || bare == "true" {
		return 0
	}
	files := map[string]bool{}
	for _, args := range [][]string{
		{"diff-index", "--cached", "--name-only", "--ignore-submodules=all", "-z", "HEAD", "--"},
		{"diff-files", "--name-only", "--ignore-submodules=all", "-z"},
		{"ls-files", "--others", "--exclude-standard", "--directory", "-z"},
	} {
		out, err := r.run(ctx, args...)
		if err != nil {
			continue
		}
		for name := range strings.SplitSeq(out, "\x00") {
			if name != "" {
				files[name] = true
			}
		}
	}
	return len(files)
}

// bundle writes the repository's history into a file that has no name any
// more. steady asks for the same bytes from the same history.
func (r *repository) bundle(ctx context.Context, s source, steady bool) (*os.File, int64, error) {
	f, err := os.CreateTemp("", "cofferdam-bundle-")
	if err != nil {
		return nil, 0, fmt.Errorf("bundle: %w", err)
	}
	_ = os.Remove(f.Name())
	if steady {
		r.off = append(r.off, "pack.threads=1")
	}
	cmd := r.command(ctx, append([]string{"bundle", "create", "--quiet", "-"}, s.tips...)...)
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = f, &errs
	if err := cmd.Run(); err != nil {
		f.Close()
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		return nil, 0, repositoryProblem("--repo %s: can't be bundled: %s (%v)", r.top, strings.TrimSpace(errs.String()), err)
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("bundle: %w", err)
	}
	return f, info.Size(), nil
}

// absolute makes a path of the caller independent of the working folder.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// sendRepository uploads the caller's repository and returns how a task names it.
func (j *runJob) sendRepository(ctx context.Context) (api.Repo, error) {
	o := j.o
	remote, err := remoteRepo(o.repo)
	if err != nil {
		return api.Repo{}, err
	}
	if remote {
		return api.Repo{URL: o.repo, Name: o.repo, Ref: o.ref}, nil
	}
	r, err := openRepository(ctx, o.repo)
	if err != nil {
		return api.Repo{}, err
	}
	s, err := r.resolve(ctx, o.ref)
	if err != nil {
		return api.Repo{}, err
	}
	if n := r.dirty(ctx); n > 0 {
		j.progress.note(fmt.Sprintf("%d files are changed or untracked and are not sent; what is committed is", n))
	}
	f, n, err := r.bundle(ctx, s, o.key != "")
	if err != nil {
		return api.Repo{}, err
	}
	defer f.Close()
	blob, err := j.c.UploadBundle(ctx, f, n)
	if err != nil {
		return api.Repo{}, err
	}
	return api.Repo{Bundle: blob.Digest, Name: r.top, Ref: s.ref}, nil
}

// Package gitrepo reads a git repository of the caller and packs what is
// committed, without running anything that the repository configures.
//
// Words. A source is what a task works on: the tips that go into the bundle,
// and the ref as it can be found in there.
//
// Not promised: protection from the caller's own, global git configuration.
package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/host"
)

// scpLike is git's other way of writing an ssh URL.
var scpLike = regexp.MustCompile(`^[^/]+@[^/]+:`)

// Remote says whether --repo names a repository elsewhere, which the
// sandbox clones through the gateway.
func Remote(repo string) (bool, error) {
	if !strings.Contains(repo, "://") {
		if scpLike.MatchString(repo) {
			return false, host.Invalid("--repo %s: only https:// URLs can be cloned inside; give the repository's https URL, or the path of a clone", repo)
		}
		return false, nil
	}
	u, err := url.Parse(repo)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "":
		return false, host.Invalid("--repo %s: only https:// URLs can be cloned inside; or give the path of a clone", repo)
	case u.User != nil:
		return false, host.Invalid("--repo: the URL holds a user or a password, which would go into the record; leave it out")
	}
	return true, nil
}

// Repository is a repository of the caller.
type Repository struct {
	git string
	dir string   // where git works
	Top string   // for people
	off []string // configuration that turns the repository's own off
}

// Open finds the repository at path.
func Open(ctx context.Context, path string) (*Repository, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, refused("--repo %s: %v", path, errors.Unwrap(err))
	}
	if !info.IsDir() {
		return nil, refused("--repo %s: is not a folder", path)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, refused("--repo %s: git is needed to read a repository, and it is not installed", path)
	}
	r := &Repository{git: git, dir: path, off: []string{
		"core.hooksPath=/dev/null", "core.fsmonitor=false", "protocol.allow=never", "core.pager=cat",
		"core.askPass=/bin/false", "gc.auto=0", "maintenance.auto=false",
	}}
	top, err := r.run(ctx, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return nil, refused("--repo %s: not a git repository, or not one that git lets you read: %v", path, err)
	}
	r.Top = strings.TrimSuffix(top, "/.git")
	r.disarm(ctx)
	shallow, err := r.run(ctx, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return nil, refused("--repo %s: %v", path, err)
	}
	if shallow == "true" {
		return nil, refused("--repo %s: is a shallow clone, whose history can't be sent; run `git fetch --unshallow` in it first", path)
	}
	return r, nil
}

func refused(format string, args ...any) error {
	return &api.Problem{Code: "input.repository", Detail: fmt.Sprintf(format, args...)}
}

// disarm turns off the filters that the repository configures: git runs them
// whenever it has to compare a file's content. Reading the configuration runs
// nothing.
func (r *Repository) disarm(ctx context.Context) {
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
func (r *Repository) command(ctx context.Context, args ...string) *exec.Cmd {
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

func (r *Repository) run(ctx context.Context, args ...string) (string, error) {
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

// Source is what a task works on.
type Source struct {
	Ref  string   // as the server can find it in the bundle; empty: HEAD
	tips []string // what goes into the bundle
}

// Resolve finds what a ref names. Branches and tags keep their names; anything
// else goes by its commit, which must be in the history that is sent.
func (r *Repository) Resolve(ctx context.Context, ref string) (Source, error) {
	s := Source{tips: []string{"--branches", "--tags"}}
	if _, err := r.run(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err == nil {
		s.tips = append([]string{"HEAD"}, s.tips...)
	} else if ref == "" || ref == "HEAD" {
		return s, refused("--repo %s: has no commit that could be worked on; commit first, or name a branch with --ref", r.Top)
	}
	if ref == "" || ref == "HEAD" {
		return s, nil
	}
	if strings.HasPrefix(ref, "-") {
		return s, host.Invalid("--ref %s: not the name of a branch, a tag or a commit", ref)
	}
	commit, err := r.run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}")
	if err != nil {
		return s, refused("--ref %s: the repository %s has no such branch, tag or commit", ref, r.Top)
	}
	for _, kind := range []string{"refs/heads/", "refs/tags/"} {
		if _, err := r.run(ctx, "show-ref", "--verify", "--quiet", kind+ref); err == nil {
			s.Ref = ref
			return s, nil
		}
	}
	s.Ref = commit
	missing, err := r.run(ctx, append([]string{"rev-list", "--max-count=1", commit, "--not"}, s.tips...)...)
	if err != nil {
		return s, refused("--ref %s: %v", ref, err)
	}
	if missing != "" {
		return s, refused("--ref %s: no branch or tag of %s holds this commit, and only those are sent; make a branch of it first (git branch NAME %s)", ref, r.Top, ref)
	}
	return s, nil
}

// Dirty says about how many files differ from what is committed: mostly by
// their times and sizes.
func (r *Repository) Dirty(ctx context.Context) int {
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

// Bundle writes the repository's history into a file that has no name any
// more. steady asks for the same bytes from the same history.
func (r *Repository) Bundle(ctx context.Context, s Source, steady bool) (*os.File, int64, error) {
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
		if _, err := r.run(ctx, "config", "--get-regexp", `^remote\..*\.promisor$`); err == nil {
			return nil, 0, refused("--repo %s: is a partial clone that lacks some of its history, and nothing is fetched here; run `git fetch --refetch --no-filter` in it first", r.Top)
		}
		return nil, 0, refused("--repo %s: can't be bundled: %s (%v)", r.Top, strings.TrimSpace(errs.String()), err)
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

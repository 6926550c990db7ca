package gitrepo

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shell runs git for a test, apart from every configuration.
func shell(t *testing.T, dir, script string) {
	t.Helper()
	c := exec.Command("sh", "-euc", script)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@t.invalid",
		"GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@t.invalid", "LC_ALL=C")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Each shape of repository is either sent such that a clone of it has the file,
// or refused with what to do.
func TestShapes(t *testing.T) {
	origin := `git init -q -b main origin; cd origin; git config uploadpack.allowFilter true; git config uploadpack.allowAnySHA1InWant true
mkdir a b; echo one > a/f; echo x > b/g; git add .; git commit -qm one; echo two > a/f; git commit -qam two; cd ..; `
	for name, c := range map[string]struct{ script, refused string }{
		"worktree":  {origin + "git -C origin worktree add -q ../repo -b side", ""},
		"bare":      {origin + "git clone -q --bare origin repo", ""},
		"sparse":    {origin + "git clone -q origin repo; git -C repo sparse-checkout set b", ""},
		"sha256":    {"git init -q -b main --object-format=sha256 repo; cd repo; mkdir a; echo two > a/f; git add .; git commit -qm one", ""},
		"detached":  {origin + "git clone -q origin repo; git -C repo checkout -q --detach", ""},
		"shallow":   {origin + `git clone -q --depth 1 "file://$PWD/origin" repo`, "git fetch --unshallow"},
		"partial":   {origin + `git clone -q --filter=blob:none --no-checkout "file://$PWD/origin" repo`, "partial clone"},
		"refetched": {origin + `git clone -q --filter=blob:none --no-checkout "file://$PWD/origin" repo; git -C repo fetch -q --refetch --no-filter`, ""},
		"empty":     {"git init -q -b main repo", "commit first"},
		"none":      {"mkdir repo", "not a git repository"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("GIT_CEILING_DIRECTORIES", dir)
			shell(t, dir, c.script)
			err := send(t, filepath.Join(dir, "repo"), filepath.Join(dir, "bundle"))
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("%v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			shell(t, dir, `git clone -q bundle got && grep two got/a/f`)
		})
	}
}

func send(t *testing.T, repo, to string) error {
	t.Helper()
	r, err := Open(t.Context(), repo)
	if err != nil {
		return err
	}
	s, err := r.Resolve(t.Context(), "")
	if err != nil {
		return err
	}
	f, _, err := r.Bundle(t.Context(), s, true)
	if err != nil {
		return err
	}
	defer f.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, f); err != nil {
		return err
	}
	return out.Close()
}

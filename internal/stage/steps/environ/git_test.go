package environ

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func bound(kind string, hosts []string, ports ...uint16) task.Lent {
	return task.Lent{Lease: task.Lease{
		Kind: kind, Hosts: hosts, Ports: ports, Placeholder: "placeholder" + strings.Join(hosts, ""), Settings: map[string]string{"user": "robot"},
	}}
}

// run runs git itself with the environment, in a folder of its own.
func runGit(t *testing.T, env []string, input string, args ...string) (string, error) {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir = t.TempDir()
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir, "GIT_CONFIG_NOSYSTEM=1"}, env...)
	if err := os.WriteFile(filepath.Join(c.Dir, ".gitconfig"), []byte("[credential]\n\thelper = store\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	if kept, rerr := os.ReadFile(filepath.Join(c.Dir, ".git-credentials")); rerr == nil {
		t.Errorf("git kept %q", kept)
	}
	return string(out), err
}

func TestAddressesAreRewritten(t *testing.T) {
	env := Of([]task.Lent{bound(task.KindGit, []string{"git.test"}, 443, 8443), bound(task.KindGit, []string{"other.test", "*.wild.test"}, 443), bound(task.KindHeader, []string{"api.test"}, 443)}, nil)
	for from, to := range map[string]string{
		"git@git.test:a/b.git":             "https://git.test/a/b.git",
		"git@git.test:/a/b.git":            "https://git.test/a/b.git",
		"ssh://git@git.test/a/b.git":       "https://git.test/a/b.git",
		"ssh://git@git.test:22/a/b":        "https://git.test/a/b",
		"ssh://git.test/a/b":               "https://git.test/a/b",
		"git://git.test/a/b":               "https://git.test/a/b",
		"https://git.test/a/b":             "https://git.test/a/b",
		"git@other.test:a/b":               "https://other.test/a/b",
		"git@third.test:a/b":               "git@third.test:a/b",
		"git@api.test:a/b":                 "git@api.test:a/b",
		"git@x.wild.test:a/b":              "git@x.wild.test:a/b",
		"ssh://mallory@git.test/a/b":       "ssh://mallory@git.test/a/b",
		"https://git.test.evil.test/a/b":   "https://git.test.evil.test/a/b",
		"ssh://git@git.test.evil.test/a/b": "ssh://git@git.test.evil.test/a/b",
	} {
		got, err := runGit(t, env, "", "ls-remote", "--get-url", from)
		if err != nil || strings.TrimSpace(got) != to {
			t.Errorf("%s is rewritten to %q, %v", from, got, err)
		}
	}
}

func TestPlaceholderIsGivenToItsServer(t *testing.T) {
	env := Of([]task.Lent{bound(task.KindGit, []string{"git.test"}, 443, 8443), bound(task.KindGit, []string{"two.test"}, 443), bound(task.KindGit, []string{"two.test"}, 443)}, nil)
	for host, want := range map[string]string{"git.test": "placeholdergit.test", "git.test:8443": "placeholdergit.test", "other.test": "", "two.test": ""} {
		got, err := runGit(t, env, "protocol=https\nhost="+host+"\n\n", "credential", "fill")
		if (err == nil) != (want != "") || want != "" && !strings.Contains(got, "username=robot\npassword="+want+"\n") {
			t.Errorf("%s: %q, %v", host, got, err)
		}
	}
	// What served is not kept.
	if out, err := runGit(t, env, "protocol=https\nhost=git.test\nusername=robot\npassword=placeholdergit.test\n\n", "credential", "approve"); err != nil {
		t.Errorf("%s, %v", out, err)
	}
}

func TestEnvIsForGitAlone(t *testing.T) {
	for name, lent := range map[string][]task.Lent{
		"nothing":    nil,
		"a header":   {bound(task.KindHeader, []string{"git.test"}, 443)},
		"a pattern":  {bound(task.KindGit, []string{"**.git.test"}, 443)},
		"no binding": {bound(task.KindGit, nil, 443)},
	} {
		if env := Of(lent, nil); env != nil {
			t.Errorf("%s: %q", name, env)
		}
	}
	odd := bound(task.KindGit, []string{"git.test"}, 443)
	odd.Settings = map[string]string{"user": "a'; touch /tmp/x; '"}
	if env := Of([]task.Lent{odd}, nil); slices.ContainsFunc(env, func(e string) bool { return strings.Contains(e, "touch") || strings.Contains(e, "credential.") }) {
		t.Errorf("a user that is none: %q", env)
	}
	if env := Of([]task.Lent{bound(task.KindGit, []string{"2001:db8::1"}, 443)}, nil); !slices.Contains(env, "GIT_CONFIG_KEY_0=url.https://[2001:db8::1]/.insteadOf") {
		t.Errorf("%q", env)
	}
}

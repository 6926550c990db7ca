//go:build root

package gvisor

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// aRepository makes one with a submodule and a linked work tree, as checkout and
// setup might leave it.
const aRepository = `set -e
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
cd /tmp && git init -q -b main lib && cd lib && echo lib > lib.txt && git add . && git commit -qm lib
cd /workspace && git init -q -b main . && git config user.name a && git config user.email a@x
mkdir -p .vscode docs/draft && echo '{}' > .vscode/tasks.json && echo x > file && echo d > docs/d && echo e > docs/draft/e
echo secret > key.pem && mkdir keys && echo secret > keys/k
git -c protocol.file.allow=always submodule --quiet add /tmp/lib sub
git add . && git commit -qm base
git -C sub config --unset core.worktree # As the agent stage does: git writes it again otherwise, at each update.
git worktree add -q /tmp/tree -b side
`

// protectedBox makes a sandbox with a repository and protects it.
func protectedBox(t *testing.T, d *Driver, before string, rules task.FileRules) (string, task.FileProtection) {
	t.Helper()
	info := sandboxtest.Create(t, d, sandbox.Spec{})
	if got := sandboxtest.Shell(t, d, info.ID, aRepository+before); got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	done, err := d.Protect(t.Context(), info.ID, rules)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID, done
}

// inside are the contents and shapes of what is protected, as text.
const inside = `cd /workspace; for p in .git/config .git/modules/sub/config .vscode/tasks.json .gitmodules .git/hooks .claude .mcp.json .git/info/attributes .gitattributes .envrc; do
  echo "$p $(stat -c '%i %a %U %F' $p)"; if [ -d $p ]; then ls -A $p; else cat $p; fi; done; stat -c '%i %F' .git .git/info`

// libc is a script that makes calls of its own, without what umount(8) looks up.
func libc(script string) string {
	return "python3 -c 'import ctypes; l = ctypes.CDLL(None); " + script + "'"
}

// attacks are ways to change what is protected. None may.
var attacks = map[string]string{
	"append":                "echo x >> .git/config",
	"truncate":              "true > .git/config",
	"truncate(2)":           "truncate -s 0 .git/config",
	"python truncate":       "python3 -c 'import os; os.truncate(\".git/config\", 0)'",
	"O_TRUNC read only":     "python3 -c 'import os; os.open(\".git/config\", os.O_RDONLY|os.O_TRUNC)'",
	"rename over":           "echo x > c; mv -f c .git/config",
	"rename within":         "echo x > .git/c; mv -f .git/c .git/config",
	"exchange":              "echo x > .git/c; python3 -c 'import ctypes; l=ctypes.CDLL(None,use_errno=True); r=l.syscall(316,-100,b\".git/c\",-100,b\".git/config\",2); assert r==0'",
	"move away":             "mv .git/config .git/config.old",
	"remove":                "rm -f .git/config",
	"move the folder":       "mv .git .git2 && git init -q .",
	"move info":             "mv .git/info .git/info2 && mkdir .git/info",
	"move modules":          "mv .git/modules/sub .git/modules/sub2",
	"remove the folder":     "rm -rf .git",
	"link over":             "ln -sf /tmp/c .git/config",
	"link as hooks":         "rm -rf .git/hooks; ln -s /tmp/hooks .git/hooks",
	"new hook":              "echo x > .git/hooks/pre-commit",
	"chmod":                 "chmod 777 .git/config",
	"chmod hooks":           "chmod 777 .git/hooks",
	"chown":                 "chown agent:agent .git/config",
	"touch":                 "touch -d 2001-01-01 .git/config",
	"xattr":                 "python3 -c 'import os; os.setxattr(\".git/config\", \"user.a\", b\"1\")'",
	"git config":            "git config core.pager x",
	"git config in a file":  "git config -f .git/config core.pager x",
	"git config sub":        "git -C sub config core.fsmonitor x",
	"git config worktree":   "git config extensions.worktreeConfig true && git config --worktree core.pager x",
	"config.worktree":       "echo x > .git/config.worktree",
	"worktree's own":        "echo x > .git/worktrees/tree/config.worktree",
	"git remote":            "git remote add origin /tmp/lib",
	"git init template":     "mkdir -p /tmp/tpl/hooks; echo x > /tmp/tpl/hooks/post-commit; git init -q --template=/tmp/tpl .; test -e .git/hooks/post-commit",
	"submodule hook":        "echo x > .git/modules/sub/hooks/post-checkout",
	"submodule attributes":  "echo x > .git/modules/sub/info/attributes",
	"attributes":            "echo '* filter=x' > .git/info/attributes",
	"gitattributes":         "echo '* filter=x' > .gitattributes",
	"gitmodules":            "git config -f .gitmodules submodule.sub.update '!id'",
	"agent settings":        "mkdir -p .claude && echo '{}' > .claude/settings.json",
	"mcp":                   "echo '{}' > .mcp.json",
	"placeholder":           "rmdir .claude && mkdir .claude",
	"placeholder moved":     "mv .claude .claude2 && mkdir .claude",
	"placeholder file":      "rm .envrc && echo x > .envrc",
	"editor tasks":          "echo x > .vscode/tasks.json",
	"editor settings":       "echo x > .vscode/settings.json",
	"hard link out":         "ln .git/config out && echo x >> out",
	"hard link over":        "echo x > c; ln -f c .git/config",
	"through a link":        "ln -s .git g; echo x >> g/config",
	"through proc root":     "echo x >> /proc/self/root/workspace/.git/config",
	"through proc cwd":      "cd .git && echo x >> /proc/self/cwd/config",
	"through proc 1":        "echo x >> /proc/1/root/workspace/.git/config",
	"reopen a descriptor":   "exec 3< .git/config; echo x >> /proc/self/fd/3",
	"mmap shared":           "python3 -c 'import mmap,os; f=os.open(\".git/config\",os.O_RDWR); m=mmap.mmap(f,0); m[0:1]=b\"x\"'",
	"fallocate":             "fallocate -o 0 -l 4096 .git/config",
	"copy_file_range":       "python3 -c 'import os; a=os.open(\"file\",os.O_RDONLY); b=os.open(\".git/config\",os.O_WRONLY); os.copy_file_range(a,b,1)'",
	"dd":                    "dd if=/dev/zero of=.git/config bs=1 count=1 conv=notrunc",
	"O_TMPFILE and link":    "python3 -c 'import os; f=os.open(\".git/hooks\",os.O_TMPFILE|os.O_RDWR,0o755)'",
	"umount":                "umount .git/config || umount -l .git/config",
	"remount":               "mount -o remount,bind,rw .git/config",
	"bind over":             "mount --bind /tmp .git/hooks",
	"umount2":               libc(`assert l.umount2(b"/workspace/.git/config", 2) == 0`),
	"remount2":              libc(`assert l.mount(None, b"/workspace/.git/config", None, 0x1020, None) == 0`),
	"userns umount2":        "unshare -Urm " + libc(`assert l.umount2(b"/workspace/.git/config", 2) == 0 or l.umount2(b"/workspace/.git", 2) == 0`),
	"userns remount2":       "unshare -Urm " + libc(`assert l.mount(None, b"/workspace/.git/config", None, 0x1020, None) == 0`),
	"userns move2":          "unshare -Urm " + libc(`assert l.mount(b"/workspace/.git/config", b"/tmp/c", None, 0x2000, None) == 0`),
	"userns hidden2":        "unshare -Urm " + libc(`assert l.umount2(b"/workspace/key.pem", 2) == 0`),
	"userns bind2":          "unshare -Urm " + libc(`assert l.mount(b"/workspace/.git", b"/tmp", None, 0x1000, None) == 0`),
	"userns umount":         "unshare -Urm umount -l .git/config && echo x >> .git/config",
	"userns remount":        "unshare -Urm sh -c 'mount -o remount,bind,rw /workspace/.git/config && echo x >> .git/config'",
	"userns bind parent":    "unshare -Urm sh -c 'mkdir -p /tmp/m && mount --bind /workspace /tmp/m && echo x >> /tmp/m/.git/config'",
	"userns rbind parent":   "unshare -Urm sh -c 'mkdir -p /tmp/m && mount --rbind /workspace /tmp/m && umount -l /tmp/m/.git/config; umount -l /tmp/m/.git; echo x >> /tmp/m/.git/config'",
	"userns bind the root":  "unshare -Urm sh -c 'mkdir -p /tmp/m && mount --bind / /tmp/m && echo x >> /tmp/m/workspace/.git/config'",
	"userns overlay":        "unshare -Urm sh -c 'mkdir -p /tmp/m /tmp/l /tmp/w && mount -t overlay o -o lowerdir=/tmp/l,upperdir=/workspace/.git,workdir=/tmp/w /tmp/m && echo x >> /tmp/m/config'",
	"userns overlay parent": "unshare -Urm sh -c 'mkdir -p /tmp/m /tmp/l && mount -t overlay o -o lowerdir=/tmp/l,upperdir=/workspace,workdir=/tmp /tmp/m && echo x >> /tmp/m/.git/config'",
	"userns overlay lower":  "unshare -Urm sh -c 'mkdir -p /tmp/m /tmp/u /tmp/w && mount -t overlay o -o lowerdir=/workspace,upperdir=/tmp/u,workdir=/tmp/w /tmp/m && echo x >> /tmp/m/.git/config'; false",
	"userns chroot":         "unshare -Ur chroot /proc/self/root sh -c 'echo x >> /workspace/.git/config'",
	"userns pivot_root":     "unshare -Urm sh -c 'mount -t tmpfs t /tmp && mkdir /tmp/old && pivot_root /tmp /tmp/old && echo x >> /old/workspace/.git/config'",
	"open_tree":             "unshare -Urm python3 -c 'import ctypes,os; l=ctypes.CDLL(None,use_errno=True); f=l.syscall(428,-100,b\"/workspace\",1); assert f>=0; os.chdir(f\"/proc/self/fd/{f}\"); open(\".git/config\",\"a\").write(\"x\")'",
	"mount_setattr":         "unshare -Urm python3 -c 'import ctypes,struct; l=ctypes.CDLL(None,use_errno=True); a=struct.pack(\"QQQQ\",0,1,0,0); assert l.syscall(442,-100,b\"/workspace/.git/config\",0,a,32)==0; open(\"/workspace/.git/config\",\"a\").write(\"x\")'",
	"gitfile":               "rm -rf .git; echo 'gitdir: /tmp/lib/.git' > .git",
	"read-only folder":      "echo x > docs/new",
	"read-only file in it":  "echo x >> docs/d",
	"read-only folder away": "mv docs docs2",
	"hidden file":           "cat key.pem",
	"hidden folder":         "ls keys || cat keys/k",
	"hidden through proc":   "cat /proc/self/root/workspace/key.pem",
	"hidden away":           "mv key.pem k2 || mv keys k3",
	"hidden replaced":       "rm -f key.pem && echo x > key.pem",
	"hidden chmod":          "chmod 777 key.pem keys",
	"hidden userns":         "unshare -Ur cat key.pem",
	"hidden userns umount":  "unshare -Urm sh -c 'umount -l key.pem; cat key.pem | grep secret'",
	"git new hooks path":    "git config --local core.hooksPath /tmp/hooks",
}

// TestAttacksOnProtectedFiles tries each way as the workload, and looks with the
// sandbox's root whether anything changed.
func TestAttacksOnProtectedFiles(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	rules := task.FileRules{ReadOnly: []string{"docs"}, Writable: []string{"docs/draft"}, Hidden: []string{"key.pem", "keys"}}
	id, done := protectedBox(t, d, "", rules)
	if len(done.Submodules) == 0 || len(done.Placeholders) == 0 {
		t.Fatalf("protection %+v", done)
	}
	want := sandboxtest.Root(t, d, id, inside)
	if !strings.Contains(want.Stdout, "repositoryformatversion") {
		t.Fatalf("before: %+v", want)
	}
	names := slices.Collect(maps.Keys(attacks))
	slices.SortFunc(names, func(a, b string) int { // What leaves git unusable comes last.
		return cmp.Or(strings.Count(attacks[a], "rm -rf .git")-strings.Count(attacks[b], "rm -rf .git"), strings.Compare(a, b))
	})
	for _, name := range names {
		attack := attacks[name]
		got := sandboxtest.Shell(t, d, id, "cd /workspace\n"+attack)
		if got.ExitCode == 0 {
			t.Errorf("%s succeeds: %q %q", name, got.Stdout, got.Stderr)
		}
		t.Logf("%s: %d %q", name, got.ExitCode, got.Stderr)
		if now := sandboxtest.Root(t, d, id, inside); now.Stdout != want.Stdout {
			t.Fatalf("%s changed what is protected:\n%s\nwas\n%s\n%s", name, now.Stdout, want.Stdout, got.Stderr)
		}
	}
	t.Logf("%d attacks", len(attacks))
}

// TestRootInsideHasNoMounts looks at what the platform's own commands may do:
// they are root, and still not able to take a protection away.
func TestRootInsideHasNoMounts(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	id, _ := protectedBox(t, d, "", task.FileRules{})
	for _, attack := range []string{
		"echo x >> /workspace/.git/config", "umount -l /workspace/.git/config", "mount -o remount,bind,rw /workspace/.git/config",
		"mv /workspace/.git /workspace/g", "mount --bind /tmp /workspace/.git/hooks", "echo x > /workspace/.claude/settings.json",
	} {
		if got := sandboxtest.Root(t, d, id, attack); got.ExitCode == 0 {
			t.Errorf("%s succeeds for root", attack)
		}
	}
	got := sandboxtest.Root(t, d, id, "grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status")
	for line := range strings.Lines(got.Stdout) {
		fields := strings.Fields(line)
		if len(fields) != 2 || len(fields[1]) != 16 || strings.Contains("2367abef", fields[1][10:11]) {
			t.Errorf("root's capabilities include SYS_ADMIN: %s", line)
		}
	}
}

// TestGitWorksUnderProtection does with git what an agent does.
func TestGitWorksUnderProtection(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	id, _ := protectedBox(t, d, "", task.FileRules{})
	for _, step := range []struct{ what, script string }{
		{"status is clean", `test -z "$(git status --porcelain)" || { git status; exit 1; }`},
		{"ordinary files", "echo y >> file && mkdir -p a/b && echo n > a/b/c"},
		{"add and commit", "git add -A && git commit -qm one && test -z \"$(git status --porcelain)\" && git show --stat --format= HEAD | grep -q a/b/c"},
		{"placeholders are not in it", "! git ls-tree -r --name-only HEAD | grep -E '^[.](claude|mcp|envrc|gitattributes)'"},
		{"stash", "echo z >> file && git stash -q && git stash pop -q && git checkout -q file"},
		{"stash with untracked files", "echo z > new && git stash -qu && test ! -e new && git stash pop -q && test -e new && rm new"},
		{"branch", "git checkout -q -b topic && echo t > t && git add t && git commit -qm t && git checkout -q main && git merge -q topic && git branch -d topic"},
		{"rebase", "git checkout -q -b r HEAD~1 && echo r > r && git add r && git commit -qm r && git rebase -q main && git checkout -q main"},
		{"reset", "echo q >> file && git reset -q --hard && test -z \"$(git status --porcelain)\""},
		{"clean", "echo q > junk && git clean -qfd && test ! -e junk"},
		{"amend", "echo q > q && git add q && git commit -qm q && git commit -q --amend -m q2"},
		{"rename a branch, which git can't note in its configuration and says so", "git branch old; ! git branch -m old new && git rev-parse -q --verify refs/heads/new"},
		{"tag", "git tag v1 && git tag -a -m v2 v2"},
		{"gc", "git gc -q && git fsck --no-progress"},
		{"new work tree", "git worktree add -q /tmp/w2 -b w2 && cd /tmp/w2 && echo w > w && git add w && git commit -qm w && cd /workspace && git worktree remove /tmp/w2"},
		{"old work tree", "cd /tmp/tree && echo w > w && git add w && git commit -qm w && test -z \"$(git status --porcelain)\""},
		{"commit in a submodule", "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x; cd sub && git checkout -q -b x && echo s > s && git add s && git commit -qm s && cd .. && git add sub && git commit -qm sub"},
		{"submodule update", "git submodule update && git submodule status"},
		{"local clone", "git clone -q /workspace /tmp/clone && cd /tmp/clone && git log --oneline | head -1"},
		{"format-patch and am", "git format-patch -q -1 -o /tmp/p && git reset -q --hard HEAD~1 && git am -q /tmp/p/*.patch"},
		{"bisect, blame, log", "git log -p -2 > /dev/null && git blame file > /dev/null && git bisect start && git bisect reset"},
	} {
		got := sandboxtest.Shell(t, d, id, "set -e; cd /workspace\n"+step.script)
		if got.ExitCode != 0 {
			t.Errorf("%s: %+v", step.what, got)
		}
	}
}

// TestShapedWorkspaces protects what setup's hostile code left.
func TestShapedWorkspaces(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	t.Run("refused", func(t *testing.T) {
		for name, script := range map[string]string{
			"link for the repository":  "cd /workspace; mv .git /tmp/g; ln -s /tmp/g .git",
			"gitfile":                  "cd /workspace; mv .git /tmp/g; echo gitdir: /tmp/g > .git",
			"fifo for the repository":  "cd /workspace; mv .git /tmp/g; mkfifo .git",
			"link for info":            "cd /workspace; rm -rf .git/info; ln -s /etc .git/info",
			"fifo for the config":      "cd /workspace; rm .git/config; mkfifo .git/config",
			"socket for settings":      "cd /workspace; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\".envrc\")'",
			"folder for the exclusion": "cd /workspace; rm -f .git/info/exclude; mkdir .git/info/exclude",
		} {
			info := sandboxtest.Create(t, d, sandbox.Spec{})
			if got := sandboxtest.Shell(t, d, info.ID, aRepository+script); got.ExitCode != 0 {
				t.Fatalf("%s: %+v", name, got)
			}
			for range 2 { // The second time it is told what became of the first.
				_, err := d.Protect(t.Context(), info.ID, task.FileRules{})
				sandboxtest.WantReason(t, "protect", err, task.PolicyFiles)
			}
			if err := d.Destroy(context.Background(), info.ID); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("made good", func(t *testing.T) {
		before := `cd /workspace
ln .git/config alias; ln .vscode/tasks.json .vscode-alias
rm -rf .git/hooks; ln -s /etc .git/hooks
ln -s ../.. .claude; ln -s /etc/passwd .mcp.json
rm .git/info/exclude; mkfifo .git/info/exclude
exec 9>> .git/config
(setsid sh -c 'while :; do echo x >&9; sleep 0.05; done' > /dev/null 2>&1 &)
(setsid python3 -c 'import os,mmap,time
f=os.open(".git/config",os.O_RDWR); m=mmap.mmap(f,0)
while True: m[0:1]=b"#"; time.sleep(0.05)' > /dev/null 2>&1 &)
until grep -q x .git/config && grep -q '^#' .git/config; do :; done
`
		id, done := protectedBox(t, d, before, task.FileRules{})
		for _, p := range []string{".git/hooks", ".claude", ".mcp.json"} {
			if !slices.Contains(done.Replaced, p) {
				t.Errorf("%s was a link and is not told of: %+v", p, done)
			}
		}
		first := sandboxtest.Root(t, d, id, "sha256sum /workspace/.git/config /workspace/.vscode/tasks.json; ls -di /etc; ls -d /proc/[0-9]* | wc -l")
		if !strings.HasSuffix(first.Stdout, "\n4\n") { // The guest, the shell, ls and wc.
			t.Errorf("somebody lives on: %s", first.Stdout)
		}
		got := sandboxtest.Shell(t, d, id, `cd /workspace; echo evil >> alias; echo evil >> .vscode-alias
test "$(stat -c %h .git/config)" = 1 && test -d .git/hooks && test ! -L .git/hooks && test -d .claude && test ! -L .claude && test -f .git/info/exclude && grep -q claude .git/info/exclude`)
		if got.ExitCode != 0 {
			t.Errorf("%+v", got)
		}
		if now := sandboxtest.Root(t, d, id, "sha256sum /workspace/.git/config /workspace/.vscode/tasks.json; ls -di /etc; ls -d /proc/[0-9]* | wc -l"); now.Stdout != first.Stdout {
			t.Errorf("it still changes:\n%s%s", first.Stdout, now.Stdout)
		}
		if got := sandboxtest.Shell(t, d, id, "touch /etc/x"); got.ExitCode == 0 {
			t.Error("/etc can be written")
		}
	})
}

// TestProtectOnce repeats it as after a worker's death: nothing is ended.
func TestProtectOnce(t *testing.T) {
	dir := testDir(t)
	d := open(t, testConfig(t, dir))
	rules := task.FileRules{Writable: []string{".vscode"}}
	// Destroyed by the last driver, and not by the one that made it.
	info := mustCreate(t, d)
	if got := sandboxtest.Shell(t, d, info.ID, aRepository); got.ExitCode != 0 {
		t.Fatalf("prepare: %+v", got)
	}
	id := info.ID
	first, err := d.Protect(t.Context(), id, rules)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(first.Widened, ".vscode") {
		t.Errorf("widened %q", first.Widened)
	}
	if _, err := d.Start(t.Context(), id, sandbox.Command{ID: "stays", Argv: []string{"sleep", "1000"}}); err != nil {
		t.Fatal(err)
	}
	if got := sandboxtest.Shell(t, d, id, "echo x >> /workspace/.git/config"); got.ExitCode == 0 {
		t.Error("it can be written")
	}
	check := func(d *Driver) {
		t.Helper()
		again, err := d.Protect(t.Context(), id, rules)
		if err != nil || !slices.Equal(again.Placeholders, first.Placeholders) {
			t.Errorf("again: %+v, %v", again, err)
		}
		_, err = d.Protect(t.Context(), id, task.FileRules{})
		sandboxtest.WantReason(t, "protect", err, task.InputInvalid)
		list, err := d.Denials(t.Context(), id, 0)
		if err != nil || len(list) == 0 {
			t.Errorf("denials %+v, %v", list, err)
		}
		if got := sandboxtest.Shell(t, d, id, "grep -l sleep /proc/[0-9]*/comm"); got.ExitCode != 0 {
			t.Errorf("the command was ended: %+v", got)
		}
	}
	check(d)
	// The record was lost after the guest had done it: the watch is made anew.
	b, err := d.find(id)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.record.Files = nil
	b.mu.Unlock()
	check(d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, testConfig(t, dir))
	check(next)
	if err := next.Destroy(context.Background(), id); err != nil {
		t.Error(err)
	}
}

// TestDenialsAreTold looks at what is written outside.
func TestDenialsAreTold(t *testing.T) {
	dir := testDir(t)
	d := open(t, testConfig(t, dir))
	id, _ := protectedBox(t, d, "", task.FileRules{Hidden: []string{"key.pem"}})
	got := sandboxtest.Shell(t, d, id, `cd /workspace
echo x >> .git/config; mv .git g2; rm -f .git/config; mkdir .claude/x; ln -s .git l; echo x >> l/config; cat key.pem
chmod 777 .git/hooks; ln file .git/hooks/f; mkdir -p d && cd d && echo x > ../.mcp.json; cd ..
printf 'x' > ".claude/$(printf 'a\033[2J\n\377')"; git config a.b c
for i in $(seq 100); do echo > .envrc; done
python3 -c 'import os,ctypes
ctypes.CDLL(None).umount2(b"/workspace/.git/config",2)
f=os.open(".git",os.O_RDONLY)
try: os.mkdir("hooks/fromfd", dir_fd=f)
except OSError: pass'
cat /etc/shadow; echo ok > fine; chmod 600 fine; echo > /usr/x`)
	list, err := d.Denials(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	has := func(operation, path, errno string) {
		t.Helper()
		if !slices.ContainsFunc(list, func(f task.FileDenial) bool {
			return f.Operation == operation && f.Path == path && f.Error == errno && f.Program != "" && f.PID > 0 && f.Sandbox == id
		}) {
			text, _ := json.MarshalIndent(list, "", " ")
			t.Errorf("no %s of %s with %s in %s\n%s", operation, path, errno, text, got.Stderr)
		}
	}
	has("open", "/workspace/.git/config", "EROFS")
	has("rename", "/workspace/.git", "EBUSY")
	has("unlink", "/workspace/.git/config", "EBUSY")
	has("mkdir", "/workspace/.claude/x", "EROFS")
	has("open", "/workspace/l/config", "EROFS")
	has("open", "/workspace/key.pem", "EACCES")
	has("chmod", "/workspace/.git/hooks", "EROFS")
	has("open", "/workspace/.mcp.json", "EROFS")
	has("open", `/workspace/.claude/a\x1b[2J\n\xff`, "EROFS")
	has("rename", "/workspace/.git/config", "EBUSY")
	has("umount", "/workspace/.git/config", "EPERM")
	has("mkdir", "/workspace/.git/hooks/fromfd", "EROFS")
	var sum int64
	for i, f := range list {
		if f.Seq != int64(i)+1 || strings.Contains(f.Path, "shadow") || strings.Contains(f.Path, "fine") || strings.Contains(f.Path, "/usr") {
			t.Errorf("%+v", f)
		}
		if f.Path == "/workspace/.envrc" {
			sum += max(f.Count, 1)
		}
	}
	if sum < 64 || sum > 100 {
		t.Errorf("100 refusals alike count %d", sum)
	}
	if info, err := os.Stat(filepath.Join(d.folder(id), "denials")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	later, err := d.Denials(t.Context(), id, int64(len(list))-1)
	if err != nil || len(later) != 1 {
		t.Errorf("after the last but one: %+v, %v", later, err)
	}
}

// TestDenialsAreBounded floods the account.
func TestDenialsAreBounded(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	id, _ := protectedBox(t, d, "", task.FileRules{})
	sandboxtest.Shell(t, d, id, `cd /workspace; python3 -c 'import os
for i in range(6000):
    try: os.mkdir(".claude/" + str(i) + "x"*200)
    except OSError: pass'`)
	info, err := os.Stat(filepath.Join(d.folder(id), "denials"))
	if err != nil || info.Size() > 1<<20 {
		t.Fatalf("%v, %v", info, err)
	}
	list, err := d.Denials(t.Context(), id, 0)
	var told, more int64
	for _, f := range list {
		if f.Operation == "more" {
			more += f.Count
		} else {
			told++
		}
	}
	if err != nil || told < 1000 || more < 1000 {
		t.Errorf("%d told, %d more, %v", told, more, err)
	}
}

// TestPlaceholdersAreNotCopied looks at what leaves by files.
func TestPlaceholdersAreNotCopied(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	id, done := protectedBox(t, d, "", task.FileRules{})
	if !slices.Contains(done.Placeholders, ".mcp.json") || slices.Contains(done.Placeholders, ".vscode") {
		t.Fatalf("%+v", done)
	}
	for _, path := range []string{"/workspace", "/workspace/.git", "/workspace/.", "/proc/self/root/workspace"} {
		names := namesOf(t, d, id, path)
		for _, p := range done.Placeholders {
			for _, name := range names {
				if strings.HasSuffix("/workspace/"+strings.TrimSuffix(name, "/"), "/"+p) && !strings.Contains(name, "sub/") {
					t.Errorf("%s: %s is a placeholder", path, name)
				}
			}
		}
		if len(names) < 5 {
			t.Errorf("%s: %q", path, names)
		}
	}
}

func namesOf(t *testing.T, d *Driver, id, path string) []string {
	t.Helper()
	from, err := d.Get(t.Context(), id, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	var names []string
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

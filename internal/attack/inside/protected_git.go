package inside

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/attack"
)

func rights(files []string) []way {
	var all []way
	for _, f := range files {
		all = append(all,
			way{"opening the rights of " + f, func() error { return os.Chmod(f, 0o777) }},
			way{"owning " + f, func() error { return os.Chown(f, os.Getuid(), os.Getgid()) }},
			way{"dating " + f, func() error { return os.Chtimes(f, time.Unix(1, 0), time.Unix(1, 0)) }})
	}
	return all
}

func folders() []way {
	var all []way
	for _, d := range []string{".git", ".git/info", ".git/modules", ".git/modules/sub", ".git/hooks", ".vscode"} {
		p := filepath.Join(work, d)
		all = append(all, way{"moving " + d, func() error { return os.Rename(p, p+"2") }})
	}
	for _, d := range []string{".git/hooks", ".vscode"} {
		p := filepath.Join(work, d)
		all = append(all, way{"removing " + d, func() error { return unix.Rmdir(p) }})
	}
	return append(all, swapping("exchanging .git for an own folder", func(mine string) error {
		if err := os.Mkdir(mine+".d", 0o755); err != nil {
			return err
		}
		defer os.Remove(mine + ".d")
		return unix.Renameat2(unix.AT_FDCWD, mine+".d", unix.AT_FDCWD, work+"/.git", unix.RENAME_EXCHANGE)
	}))
}

func commands() []way {
	return []way{
		shell("git config", "git config core.pager x"), shell("git config of a file", "git config -f .git/config core.fsmonitor ./x"), shell("git config for hooks", "git config --local core.hooksPath /tmp/hooks"),
		shell("git config of the work tree", "git config extensions.worktreeConfig true && git config --worktree core.pager x"), shell("git remote", "git remote add origin /tmp/lib"),
		shell("git config of the submodule", "git -C sub config core.fsmonitor x"), shell("git submodule", "git config -f .gitmodules submodule.sub.update '!id'"),
	}
}

func hooking() []way {
	return append(writing(".git/hooks/pre-commit", ".git/hooks/post-checkout"),
		shell("a template's hooks", "mkdir -p /tmp/tpl/hooks && echo x > /tmp/tpl/hooks/post-commit && git init -q --template=/tmp/tpl . && test -e .git/hooks/post-commit"),
		swapping("a link in the hooks' place", func(mine string) error {
			if err := os.Symlink("/tmp", mine+".l"); err != nil {
				return err
			}
			defer os.Remove(mine + ".l")
			return unix.Renameat2(unix.AT_FDCWD, mine+".l", unix.AT_FDCWD, hooks, unix.RENAME_EXCHANGE)
		}),
		way{"a link among the hooks", func() error { return os.Symlink("/tmp/x", hooks+"/pre-push") }},
		way{"a folder among the hooks", func() error { return os.Mkdir(hooks+"/x", 0o755) }})
}

func trees() []way {
	return []way{
		{"the work tree's settings", func() error { return put(work+"/.git/worktrees/tree/config.worktree", os.O_CREATE|os.O_WRONLY) }},
		{"the repository's settings for work trees", func() error { return put(work+"/.git/config.worktree", os.O_CREATE|os.O_WRONLY) }},
		shell("git config from the work tree", "git -C /tmp/tree config core.pager x"), shell("git config --worktree from it", "git -C /tmp/tree config --worktree core.pager x"),
		{"moving the work tree's folder over another", func() error { return os.Rename(work+"/.git/worktrees", work+"/.git/w2") }},
	}
}

func submodules() []way {
	return append(writing(".git/modules/sub/config", ".git/modules/sub/hooks/post-checkout", ".git/modules/sub/info/attributes", ".gitmodules"),
		shell("git config within it", "git -C sub config core.sshCommand x"),
		way{"moving it away", func() error { return os.Rename(work+"/.git/modules/sub", work+"/.git/modules/sub2") }})
}

func settings() []way {
	return append(writing(".claude/settings.json", ".mcp.json", ".vscode/settings.json", ".vscode/tasks.json", ".envrc"),
		way{"a folder among an agent's settings", func() error { return os.Mkdir(work+"/.claude/hooks", 0o755) }})
}

func standIns() []way {
	return []way{
		{"removing what stands for a folder", func() error { return unix.Rmdir(work + "/.claude") }}, {"moving it", func() error { return os.Rename(work+"/.claude", work+"/.claude2") }},
		{"removing what stands for a file", func() error { return os.Remove(work + "/.envrc") }}, {"moving it", func() error { return os.Rename(work+"/.mcp.json", work+"/mcp2") }},
		swapping("another file in its place", func(mine string) error { return os.Rename(mine, work+"/.envrc") }),
	}
}

func mounting() []way {
	mount := func(source, target, kind string, flags uintptr, data string) func() error {
		return func() error { return unix.Mount(source, target, kind, flags, data) }
	}
	return []way{
		{"unmounting it", func() error { return unix.Unmount(config, 0) }}, {"unmounting it lazily", func() error { return unix.Unmount(config, unix.MNT_DETACH) }},
		{"unmounting the hooks", func() error { return unix.Unmount(hooks, unix.MNT_DETACH) }}, {"unmounting .git", func() error { return unix.Unmount(work+"/.git", unix.MNT_DETACH) }},
		{"mounting it again", mount("", config, "", unix.MS_REMOUNT|unix.MS_BIND, "")}, {"mounting over it", mount("/tmp", hooks, "", unix.MS_BIND, "")},
		{"mounting memory over it", mount("t", work+"/.git", "tmpfs", 0, "")}, {"moving the mount", mount(hooks, "/tmp", "", unix.MS_MOVE, "")},
	}
}

// namespaces does the same as root of a user namespace.
func namespaces() []way {
	within := func(script string) way {
		return shell(script, "unshare -Urm sh -c 'mkdir -p /tmp/m; "+script+"'")
	}
	return []way{
		within("umount -l .git/config && echo x >> .git/config"), within("mount -o remount,bind,rw /workspace/.git/config && echo x >> .git/config"),
		within("mount --bind /workspace /tmp/m && echo x >> /tmp/m/.git/config"), within("mount --rbind /workspace /tmp/m && umount -l /tmp/m/.git/config && echo x >> /tmp/m/.git/config"),
		within("mount --bind / /tmp/m && echo x >> /tmp/m/workspace/.git/config"),
		within("mkdir -p /tmp/u /tmp/w && mount -t overlay o -o lowerdir=/tmp/u,upperdir=/workspace/.git,workdir=/tmp/w /tmp/m && echo x >> /tmp/m/config"),
	}
}

// hidden tries to read what setup wrote into a file that is hidden from the agent.
func hidden() verdict {
	const file, secret = work + "/hidden.pem", "hidden from agents"
	if _, err := os.Lstat(file); err != nil {
		return untried("%v", err)
	}
	moved := file + ".moved"
	read := func(name string) verdict {
		text, err := os.ReadFile(name)
		if strings.Contains(string(text), secret) {
			return fell("%s was read", name)
		}
		return held("%s: %d bytes, %v", name, len(text), err)
	}
	ways := []func() error{
		func() error { return nil }, func() error { return os.Chmod(file, 0o777) }, func() error { return os.Link(file, moved) }, func() error { return os.Symlink(file, moved) },
		func() error { return unix.Unmount(file, unix.MNT_DETACH) }, func() error { return os.Rename(file, moved) },
	}
	for _, w := range ways {
		err := w()
		for _, name := range []string{file, moved, "/proc/self/root" + file, "/proc/1/root" + file} {
			if v := read(name); v.outcome == attack.Fell {
				return v
			}
		}
		if err == nil {
			_ = os.Remove(moved)
		}
	}
	// Programs that the sandbox may have no others of.
	for _, script := range []string{"unshare -Ur cat hidden.pem", "unshare -Urm sh -c 'umount -l hidden.pem; cat hidden.pem'", "git hash-object -w hidden.pem && git cat-file -p $(git hash-object hidden.pem)", "tar cf - hidden.pem", "cat *.pem"} {
		out, _ := exec.Command("sh", "-c", "cd "+work+" && "+script).CombinedOutput()
		if strings.Contains(string(out), secret) {
			return fell("%s read it", script)
		}
	}
	return held("%d ways to read it gave nothing of it", len(ways)*4+5)
}

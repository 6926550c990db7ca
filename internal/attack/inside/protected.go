package inside

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The files that nobody protected may change; what is absent has something in
// its place that must stay. See cli/attack/apart for the repository that they
// are in.
const (
	work   = "/workspace"
	config = work + "/.git/config"
	hooks  = work + "/.git/hooks"
)

// watched are the paths of the workspace that must not change.
func watched() []string {
	return []string{
		".git", ".git/config", ".git/hooks", ".git/info", ".git/info/attributes", ".git/modules", ".git/modules/sub/config", ".git/modules/sub/hooks", ".git/worktrees", ".git/config.worktree",
		".gitattributes", ".gitmodules", ".claude", ".mcp.json", ".vscode", ".vscode/tasks.json", ".envrc",
	}
}

// state is what is seen of them, as text.
func state() string {
	var b strings.Builder
	for _, name := range watched() {
		p := filepath.Join(work, name)
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			fmt.Fprintf(&b, "%s %v\n", name, err)
			continue
		}
		fmt.Fprintf(&b, "%s %d %o %d:%d ", name, st.Ino, st.Mode, st.Uid, st.Gid)
		// In .git and .git/info much may change; what must not is watched by itself.
		if all, err := os.ReadDir(p); err == nil && name != ".git" && name != ".git/info" {
			for _, e := range all {
				b.WriteString(e.Name() + " ")
			}
		} else if text, err := os.ReadFile(p); err == nil {
			fmt.Fprintf(&b, "%d %x %d", len(text), sha256.Sum256(text), st.Mtim.Sec)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// way is one way to change what is protected, which must fail.
type way struct {
	name string
	do   func() error
}

// unchanged tries ways, and looks whether anything changed.
func unchanged(ways ...way) verdict {
	before := state()
	if !strings.Contains(before, ".git/config ") || strings.Contains(before, ".git/config no such") {
		return untried("there is no repository in %s: %.200s", work, before)
	}
	var first error
	for _, w := range ways {
		err := w.do()
		if now := state(); now != before {
			return fell("%s changed what is protected: %s", w.name, difference(before, now))
		}
		if err == nil {
			return fell("%s was not refused", w.name)
		}
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, exec.ErrNotFound) {
			return untried("%s: %v", w.name, err)
		}
		if first == nil {
			first = fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return held("%d ways of %d were refused, and nothing changed; the first: %v", len(ways), len(ways), first)
}

func difference(before, now string) string {
	was := strings.Split(before, "\n")
	for i, line := range strings.Split(now, "\n") {
		if i >= len(was) || was[i] != line {
			return line
		}
	}
	return "lines are gone"
}

// put writes a file with a flag and closes it.
func put(name string, flag int) error {
	f, err := os.OpenFile(name, flag, 0o755)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close())
}

func writing(names ...string) []way {
	var all []way
	for _, n := range names {
		all = append(all, way{"writing to " + n, func() error { return put(filepath.Join(work, n), os.O_CREATE|os.O_WRONLY|os.O_APPEND) }})
	}
	return all
}

// own is a file of this process's own.
func own() (string, error) {
	f, err := os.CreateTemp(work, "own")
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// swapping has an own file take part in a call, and removes it.
func swapping(name string, call func(mine string) error) way {
	return way{name, func() error {
		mine, err := own()
		if err != nil {
			return fmt.Errorf("%w, since the workspace can't be written to: %w", unix.ENOSYS, err)
		}
		defer os.RemoveAll(mine)
		return call(mine)
	}}
}

// shell runs a script in the workspace; it must fail.
func shell(name, script string) way {
	return way{name, func() error {
		cmd := exec.Command("sh", "-c", "cd "+work+" && "+script)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %.120s", err, out)
		}
		return nil
	}}
}

func protections() map[string]func(*try) verdict {
	files := []string{config, filepath.Join(work, ".gitmodules"), filepath.Join(work, ".git/modules/sub/config"), filepath.Join(work, ".vscode/tasks.json")}
	over := func(name string, call func(mine, file string) error) []way {
		var all []way
		for _, f := range files {
			all = append(all, swapping(name+" "+f, func(mine string) error { return call(mine, f) }))
		}
		return all
	}
	return map[string]func(*try) verdict{
		"protect.write": func(*try) verdict {
			return unchanged(writing(".git/config", ".gitmodules", ".git/modules/sub/config", ".vscode/tasks.json", ".mcp.json", ".envrc", ".gitattributes", ".git/info/attributes", ".git/config.worktree")...)
		},
		"protect.truncate": func(*try) verdict {
			var all []way
			for _, f := range files {
				all = append(all, way{"truncating " + f, func() error { return os.Truncate(f, 0) }}, way{"opening it cut off", func() error { return put(f, os.O_WRONLY|os.O_TRUNC) }},
					way{"opening it cut off to be read", func() error {
						fd, err := unix.Open(f, unix.O_RDONLY|unix.O_TRUNC, 0)
						if err == nil {
							unix.Close(fd)
						}
						return err
					}})
			}
			return unchanged(all...)
		},
		"protect.rename-over": func(*try) verdict { return unchanged(over("renaming over", os.Rename)...) },
		"protect.exchange": func(*try) verdict {
			return unchanged(over("exchanging", func(mine, file string) error {
				return unix.Renameat2(unix.AT_FDCWD, mine, unix.AT_FDCWD, file, unix.RENAME_EXCHANGE)
			})...)
		},
		"protect.move-away": func(*try) verdict {
			var all []way
			for _, f := range files {
				all = append(all, way{"moving " + f, func() error { return os.Rename(f, f+".old") }}, way{"removing it", func() error { return os.Remove(f) }})
			}
			return unchanged(all...)
		},
		"protect.hard-link": func(*try) verdict {
			all := over("a link of another file over", func(mine, file string) error {
				if err := os.Link(mine, mine+".link"); err != nil {
					return fmt.Errorf("%w: %w", unix.ENOSYS, err)
				}
				defer os.Remove(mine + ".link")
				return os.Rename(mine+".link", file)
			})
			for _, f := range files {
				all = append(all, swapping("writing through a link to "+f, func(mine string) error {
					if err := os.Link(f, mine+".link"); err != nil {
						return err
					}
					defer os.Remove(mine + ".link")
					return put(mine+".link", os.O_WRONLY|os.O_APPEND)
				}))
			}
			return unchanged(all...)
		},
		"protect.link-over": func(*try) verdict {
			return unchanged(over("linking in its place", func(mine, file string) error {
				if err := errors.Join(os.Remove(mine), os.Symlink("/tmp/elsewhere", mine)); err != nil {
					return err
				}
				return os.Rename(mine, file)
			})...)
		},
		"protect.link-swapped": func(*try) verdict { return unchanged(swapped()) },
		"protect.through-proc": func(*try) verdict {
			return unchanged(append(writing("../proc/self/root"+config, "../proc/1/root"+config, "../proc/self/cwd/.."+config),
				way{"opening a descriptor again", func() error {
					f, err := os.Open(config)
					if err != nil {
						return err
					}
					defer f.Close()
					return put(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY)
				}},
				way{"a file without a name among the hooks", func() error {
					fd, err := unix.Open(hooks, unix.O_TMPFILE|unix.O_RDWR, 0o755)
					if err == nil {
						unix.Close(fd)
					}
					return err
				}})...)
		},
		"protect.map":         func(*try) verdict { return unchanged(mapping(config)...) },
		"protect.rights":      func(*try) verdict { return unchanged(rights(append(files, hooks))...) },
		"protect.git-folder":  func(*try) verdict { return unchanged(folders()...) },
		"protect.git-command": func(*try) verdict { return unchanged(commands()...) },
		"protect.hooks":       func(*try) verdict { return unchanged(hooking()...) },
		"protect.attributes": func(*try) verdict {
			return unchanged(writing(".git/info/attributes", ".gitattributes", ".git/modules/sub/info/attributes")...)
		},
		"protect.worktree":       func(*try) verdict { return unchanged(trees()...) },
		"protect.submodule":      func(*try) verdict { return unchanged(submodules()...) },
		"protect.agent-settings": func(*try) verdict { return unchanged(settings()...) },
		"protect.stand-in":       func(*try) verdict { return unchanged(standIns()...) },
		"protect.mount-over":     func(*try) verdict { return unchanged(mounting()...) },
		"protect.hidden":         func(*try) verdict { return hidden() },
		"protect.namespace": func(*try) verdict {
			if _, err := exec.LookPath("unshare"); err != nil {
				return untried("%v", err)
			}
			return unchanged(namespaces()...)
		},
	}
}

// swapped writes through a link that is swapped a thousand times between a file
// of its own and what is protected.
func swapped() way {
	return swapping("writing through a link that is swapped", func(mine string) error {
		link, next := mine+".swap", mine+".next"
		defer os.Remove(link)
		defer os.Remove(next)
		stop := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_ = os.Remove(next)
				_ = os.Symlink([]string{mine, config}[i%2], next)
				_ = os.Rename(next, link)
			}
		}()
		wrote, refused := 0, error(nil)
		for range 1000 {
			if err := put(link, os.O_WRONLY|os.O_APPEND); err != nil {
				refused = err
			} else {
				wrote++
			}
		}
		close(stop)
		<-ended
		if refused == nil {
			return syscall.ENOSYS // the link never led there while it was looked at
		}
		return fmt.Errorf("%d writes went to its own file, the others: %w", wrote, refused)
	})
}

func mapping(file string) []way {
	open := func(flag int, f func(fd int) error) func() error {
		return func() error {
			fd, err := unix.Open(file, flag, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return f(fd)
		}
	}
	shared := func(fd int) error {
		b, err := unix.Mmap(fd, 0, 16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err == nil {
			b[0] = 'x'
			err = unix.Munmap(b)
		}
		return err
	}
	return []way{
		{"mapping it to be written", open(unix.O_RDWR, shared)}, {"mapping what is open to be read", open(unix.O_RDONLY, shared)},
		{"allocating in it", open(unix.O_WRONLY, func(fd int) error { return unix.Fallocate(fd, 0, 0, 4096) })},
		{"allocating in what is open to be read", open(unix.O_RDONLY, func(fd int) error { return unix.Fallocate(fd, 0, 0, 4096) })},
		{"cutting what is open to be read", open(unix.O_RDONLY, func(fd int) error { return unix.Ftruncate(fd, 0) })},
		{"an extended attribute", func() error { return unix.Setxattr(file, "user.a", []byte("1"), 0) }},
	}
}

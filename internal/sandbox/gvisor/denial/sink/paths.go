package sink

import (
	"path"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/denial"
)

// paths are those whose refusals are told.
type paths struct {
	protected []string
	pinned    map[string]bool
}

func newPaths(protected, pinned []string) paths {
	p := paths{protected: protected, pinned: map[string]bool{}}
	for _, name := range pinned {
		p.pinned[name] = true
	}
	return p
}

func (p paths) told(name string) bool {
	if p.pinned[name] {
		return true
	}
	for _, top := range p.protected {
		if beneath(name, top) {
			return true
		}
	}
	return false
}

// match returns the path that a system call's arguments name, as it was given
// and made absolute, and whether it is one to tell of: itself, or where it leads.
func (p paths) match(t *kernel.Task, args [6]uint64, arg denial.PathArg) (string, bool) {
	text := ""
	if arg.Text >= 0 {
		var err error
		if text, err = t.CopyInString(hostarch.Addr(args[arg.Text]), unix.PathMax); err != nil {
			return "", false
		}
	}
	root := t.FSContext().RootDirectory()
	defer root.DecRef(t)
	start, ok := startOf(t, args, arg)
	if !ok {
		return "", false
	}
	defer start.DecRef(t)
	given := path.Clean(text)
	if !path.IsAbs(text) {
		base, err := t.Kernel().VFS().PathnameWithDeleted(t, root, start)
		if err != nil {
			return "", false
		}
		given = path.Join(base, text)
	}
	if p.told(given) {
		return given, true
	}
	// With its folder resolved, and then all of it.
	folder, name := path.Split(text)
	if at, ok := resolve(t, root, start, folder); ok && name != "" && p.told(path.Join(at, name)) {
		return given, true
	}
	at, ok := resolve(t, root, start, text)
	return given, ok && p.told(at)
}

// startOf returns where a relative path starts, with a reference.
func startOf(t *kernel.Task, args [6]uint64, arg denial.PathArg) (vfs.VirtualDentry, bool) {
	if arg.Folder < 0 || int32(args[arg.Folder]) == unix.AT_FDCWD {
		return t.FSContext().WorkingDirectory(), true
	}
	file := t.GetFile(int32(args[arg.Folder]))
	if file == nil {
		if arg.Text < 0 {
			return vfs.VirtualDentry{}, false
		}
		return t.FSContext().WorkingDirectory(), true // The path may be absolute all the same.
	}
	defer file.DecRef(t)
	start := file.VirtualDentry()
	start.IncRef()
	return start, true
}

// resolve follows a path and returns its name without links.
func resolve(t *kernel.Task, root, start vfs.VirtualDentry, text string) (string, bool) {
	if text == "" {
		text = "."
	}
	parsed := fspath.Parse(text)
	if parsed.Absolute {
		start = root
	}
	at, err := t.Kernel().VFS().GetDentryAt(t, t.Credentials(), &vfs.PathOperation{
		Root: root, Start: start, Path: parsed, FollowFinalSymlink: true,
	}, &vfs.GetDentryOptions{})
	if err != nil {
		return "", false
	}
	defer at.DecRef(t)
	name, err := t.Kernel().VFS().PathnameWithDeleted(t, root, at)
	return name, err == nil
}

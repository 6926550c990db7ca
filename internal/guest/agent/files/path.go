package files

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// Place is where operations may work.
type Place struct {
	Roots []string // absolute and clean; none lies in another
	Owner uint32   // the workload's user, with whose rights the caller runs
	Root  bool     // the platform's own user, who may do anything: files with two names are refused
}

// parse cuts a path into its root and the names beneath it.
func (p Place) parse(name []byte) (root string, names []string, err error) {
	refuse := func(format string, args ...any) (string, []string, error) {
		return "", nil, guest.Errorf(guest.ReasonInvalid, "path %s "+format, append([]any{show(name)}, args...)...)
	}
	switch {
	case len(name) > guest.MaxPath:
		return "", nil, guest.Errorf(guest.ReasonInvalid, "path: it has %d bytes; the most is %d", len(name), guest.MaxPath)
	case len(name) == 0 || name[0] != '/':
		return refuse("is not absolute")
	case bytes.IndexByte(name, 0) >= 0:
		return refuse("has a zero byte")
	}
	for _, r := range p.Roots {
		rest, ok := strings.CutPrefix(string(name), r)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		if rest == "" {
			return r, nil, nil
		}
		names = strings.Split(rest[1:], "/")
		for _, n := range names {
			switch {
			case n == "", n == ".", n == "..":
				return refuse("is not clean: it may have no empty name, . or .. in it")
			case len(n) > guest.MaxName:
				return refuse("has a name of %d bytes; the most is %d", len(n), guest.MaxName)
			}
		}
		if len(names) > guest.MaxFileDepth {
			return refuse("is more than %d folders deep", guest.MaxFileDepth)
		}
		return r, names, nil
	}
	return refuse("lies beneath none of %s", strings.Join(p.Roots, ", "))
}

// show quotes a name for people.
func show(name []byte) string {
	const most = 300
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// spot is a name in a folder that is open: what an operation works on.
type spot struct {
	dir  int
	name string // "." for the folder itself, which is then a root or where links ended
	path string // as asked, for people
	walk *walk
}

// itself says that the spot is no name in a folder: it is a root, or where links
// ended in the middle.
func (s spot) itself() bool { return s.name == "." }

// base is a path's last name.
func base(name []byte) []byte { return bytes.Clone(name[bytes.LastIndexByte(name, '/')+1:]) }

func (s spot) close() { s.walk.close() }

// fail gives an error of a system call its thing.
func (s spot) fail(err error) error { return fmt.Errorf("%s: %w", s.path, err) }

func (s spot) refuse(reason, format string, args ...any) error {
	return guest.Errorf(reason, "%s %s", s.path, fmt.Sprintf(format, args...))
}

// walk is the folders that are open from the root down to where it came.
type walk struct {
	root   string
	stack  []int
	follow bool
	make   bool // folders on the way that are absent
	links  int
	path   string
}

// how a path is walked.
type how struct {
	follow bool // links on the way
	last   bool // and the last name's, when it is one
	make   bool // folders on the way
}

const pathOnly = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// to walks to a path's last name, which need not be there.
func (p Place) to(name []byte, h how) (spot, error) {
	root, names, err := p.parse(name)
	if err != nil {
		return spot{}, err
	}
	w := &walk{root: root, follow: h.follow, make: h.make, path: show(name)}
	if err := w.begin(); err != nil {
		return spot{}, err
	}
	last, err := w.along(names, h.follow && h.last)
	if err != nil {
		w.close()
		return spot{}, err
	}
	return spot{dir: w.top(), name: last, path: w.path, walk: w}, nil
}

// begin opens the root, from the top and following nothing.
func (w *walk) begin() error {
	fd, err := unix.Open("/", pathOnly|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("/: %w", err)
	}
	for name := range strings.SplitSeq(strings.Trim(w.root, "/"), "/") {
		next, err := unix.Openat(fd, name, pathOnly|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("the root %s: %w", w.root, err)
		}
		fd = next
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(fd, &stat); err != nil || stat.Type == unix.PROC_SUPER_MAGIC || stat.Type == unix.SYSFS_MAGIC {
		unix.Close(fd)
		return guest.Errorf(guest.ReasonInvalid, "the root %s is no folder of files any more", w.root)
	}
	w.stack = append(w.stack, fd)
	return nil
}

func (w *walk) top() int { return w.stack[len(w.stack)-1] }

func (w *walk) close() {
	for _, fd := range w.stack {
		unix.Close(fd)
	}
	w.stack = nil
}

func (w *walk) refuse(format string, args ...any) error {
	return guest.Errorf(guest.ReasonInvalid, "%s: %s", w.path, fmt.Sprintf(format, args...))
}

// along walks names and returns the last, in the folder on top; lastToo follows
// it when it is a link.
func (w *walk) along(names []string, lastToo bool) (string, error) {
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		switch name {
		case "", ".":
			continue
		case "..": // Only a link's text has it; the folder above is the one we came from.
			if len(w.stack) == 1 {
				return "", w.refuse("a link on it leads out of %s", w.root)
			}
			unix.Close(w.top())
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		if len(names) == 0 && !lastToo {
			return name, nil
		}
		target, stay, err := w.step(name, len(names) == 0)
		if err != nil {
			return "", err
		}
		if stay {
			return name, nil
		}
		if target != "" {
			if names, err = w.through(target, names); err != nil {
				return "", err
			}
		}
	}
	return ".", nil
}

// step enters a folder, or gives a link's text. stay says that the name is the
// last and no link.
func (w *walk) step(name string, last bool) (target string, stay bool, err error) {
	fd, err := unix.Openat(w.top(), name, pathOnly, 0)
	if errors.Is(err, unix.ENOENT) && last {
		return "", true, nil
	}
	if errors.Is(err, unix.ENOENT) && w.make {
		if err = unix.Mkdirat(w.top(), name, 0o755); err == nil || errors.Is(err, unix.EEXIST) {
			fd, err = unix.Openat(w.top(), name, pathOnly, 0)
		}
	}
	if err != nil {
		return "", false, fmt.Errorf("%s: %q: %w", w.path, name, err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		unix.Close(fd)
		return "", false, fmt.Errorf("%s: %q: %w", w.path, name, err)
	}
	kind := stat.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR && !last {
		if len(w.stack) > guest.MaxFileDepth {
			unix.Close(fd)
			return "", false, w.refuse("it leads more than %d folders deep", guest.MaxFileDepth)
		}
		w.stack = append(w.stack, fd)
		return "", false, nil
	}
	unix.Close(fd)
	switch {
	case kind == unix.S_IFLNK && !w.follow:
		return "", false, w.refuse("%q is a link; ask for links to be followed, or name what it points at", name)
	case kind == unix.S_IFLNK:
		target, err := readlink(w.top(), name)
		if err != nil {
			return "", false, fmt.Errorf("%s: %q: %w", w.path, name, err)
		}
		return target, false, nil
	case last:
		return "", true, nil
	}
	return "", false, w.refuse("%q is no folder", name)
}

// through goes on where a link points, which must lie beneath the same root.
func (w *walk) through(target string, names []string) ([]string, error) {
	if w.links++; w.links > guest.MaxFileLinks {
		return nil, w.refuse("more than %d links lie on it", guest.MaxFileLinks)
	}
	if rest, absolute := strings.CutPrefix(target, "/"); absolute {
		beneath, ok := strings.CutPrefix("/"+rest, w.root)
		if !ok || beneath != "" && beneath[0] != '/' {
			return nil, w.refuse("a link on it leads out of %s", w.root)
		}
		for _, fd := range w.stack[1:] {
			unix.Close(fd)
		}
		w.stack, target = w.stack[:1], beneath
	}
	next := strings.Split(target, "/")
	if len(next)+len(names) > 2*guest.MaxPath {
		return nil, w.refuse("the links on it lead too far")
	}
	return append(next, names...), nil
}

// readlink gives a link's text, which is never empty.
func readlink(dir int, name string) (string, error) {
	buf := make([]byte, guest.MaxPath+1)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	if n == 0 || n > guest.MaxPath {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

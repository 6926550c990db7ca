package protect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// Place says where to protect.
type Place struct {
	Workspace string // absolute; its own folder is the workload's
	Private   string // an absolute folder that only root can enter
	Owner     int    // the workload's user and group, who owns what is made
}

// work is one protection under way.
type work struct {
	place Place
	done  guest.Protected
	cover struct{ folder, file string } // what hides
	seen  int                           // entries walked
}

// Apply protects. No process but the caller may run, and it may be done once:
// after an error the workspace is in a state between.
func Apply(place Place, p guest.Protection) (guest.Protected, error) {
	w := &work{place: place}
	root, err := unix.Open(place.Workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return w.done, fmt.Errorf("the workspace: %w", err)
	}
	defer unix.Close(root)
	tree, err := grow(p.Paths)
	if err != nil {
		return w.done, err
	}
	if err := w.submodules(root, tree, p); err != nil {
		return w.done, shaped(err)
	}
	tree.narrow()
	if err := w.covers(); err != nil {
		return w.done, err
	}
	if err := w.prepare(root, tree); err != nil {
		return w.done, shaped(err)
	}
	if err := w.exclude(root); err != nil {
		return w.done, shaped(fmt.Errorf(".git/info/exclude: %w", err))
	}
	if err := w.mount(root, tree); err != nil {
		return w.done, guest.Errorf(guest.ReasonInternal, "%v", err)
	}
	return w.done, nil
}

// shaped says that the workspace can't be protected as it was left, unless the
// disk is full.
func shaped(err error) error {
	var refused *guest.Error
	if errors.As(err, &refused) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	return guest.Errorf(guest.ReasonInvalid, "the workspace can't be protected as it was left: %v", err)
}

// covers makes what hidden paths are covered with.
func (w *work) covers() error {
	if err := os.MkdirAll(w.place.Private, 0o700); err != nil {
		return err
	}
	w.cover.folder, w.cover.file = filepath.Join(w.place.Private, "covered-folder"), filepath.Join(w.place.Private, "covered-file")
	if err := os.Mkdir(w.cover.folder, 0); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	file, err := os.OpenFile(w.cover.file, os.O_RDONLY|os.O_CREATE, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

// mount takes the rights away, what lies deepest first: a mount made from
// something that is still writable is writable, whatever becomes of the other.
func (w *work) mount(dir int, n *node) error {
	for _, c := range n.sorted() {
		if c.skip {
			continue
		}
		if err := w.mountOne(dir, c); err != nil {
			return fmt.Errorf("protect %q: %w", c.path, err)
		}
	}
	return nil
}

func (w *work) mountOne(dir int, c *node) error {
	fd, err := look(dir, c.name)
	if err != nil {
		return err
	}
	defer func() { unix.Close(fd) }()
	if c.rule != nil && c.rule.Access == guest.Hidden {
		return w.hide(dir, c, fd)
	}
	if c.rule == nil && c.narrowed {
		return w.mount(fd, c) // It can't be moved, being in something read-only.
	}
	if err := unix.Mount(handle(fd), handle(fd), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	unix.Close(fd)
	if fd, err = look(dir, c.name); err != nil { // Now it is the mount.
		fd = -1
		return err
	}
	if err := w.mount(fd, c); err != nil {
		return err
	}
	if c.rule == nil {
		w.done.Pinned = append(w.done.Pinned, c.path)
		return nil
	}
	if c.rule.Access == guest.ReadOnly {
		return lock(fd)
	}
	return nil
}

func (w *work) hide(dir int, c *node, fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	cover := w.cover.file
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		cover = w.cover.folder
	}
	if err := unix.Mount(cover, handle(fd), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	covered, err := look(dir, c.name)
	if err != nil {
		return err
	}
	defer unix.Close(covered)
	return lock(covered)
}

// lock makes the mount that fd stands in read-only.
func lock(fd int) error {
	if err := unix.Mount("", handle(fd), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("make the mount read-only: %w", err)
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(fd, &stat); err != nil {
		return err
	}
	if stat.Flags&unix.ST_RDONLY == 0 {
		return errors.New("the mount did not become read-only")
	}
	return nil
}

// look opens a name in a folder without following it and without reading it.
func look(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %q: %w", name, err)
	}
	return fd, nil
}

// handle is a path that leads to what fd stands for and nowhere else.
func handle(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

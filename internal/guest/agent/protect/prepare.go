package protect

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
	nofollow "github.com/cofferdam/cofferdam/internal/guest/agent/folder"
)

// maxEntries bounds how much of the workspace is looked at.
const maxEntries = 2_000_000

// prepare gives every path of the tree something that can be mounted onto
// itself: what is absent is made, what has a second name is copied.
func (w *work) prepare(dir int, n *node) error {
	for _, c := range n.sorted() {
		if err := w.prepareOne(dir, c); err != nil {
			return fmt.Errorf("%q: %w", c.path, err)
		}
	}
	return nil
}

func (w *work) prepareOne(dir int, c *node) error {
	leaf := len(c.children) == 0
	if leaf && c.rule != nil && c.rule.Access == guest.Writable && !c.narrowed {
		c.skip = true // A mount would only be in the way: git replaces its config by renaming.
		return nil
	}
	var stat unix.Stat_t
	err := unix.Fstatat(dir, c.name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK && leaf {
		if err = unix.Unlinkat(dir, c.name, 0); err != nil {
			return err
		}
		w.done.Replaced = append(w.done.Replaced, c.path)
		err = unix.ENOENT
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		if err := w.stand(dir, c, leaf); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if err := w.alone(dir, c, leaf, &stat); err != nil {
			return err
		}
	}
	if leaf {
		return nil
	}
	fd, err := folder(dir, c.name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return w.prepare(fd, c)
}

// stand makes what stands for an absent path.
func (w *work) stand(dir int, c *node, leaf bool) error {
	if leaf && c.rule != nil && c.rule.Access != guest.Writable {
		w.done.Placeholders = append(w.done.Placeholders, c.path)
	}
	if !leaf || c.rule == nil || !c.rule.File {
		if err := unix.Mkdirat(dir, c.name, 0o755); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
		return unix.Fchownat(dir, c.name, w.place.Owner, w.place.Owner, unix.AT_SYMLINK_NOFOLLOW)
	}
	fd, err := unix.Openat(dir, c.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	file := os.NewFile(uintptr(fd), c.name)
	_, err = file.WriteString(c.rule.Text)
	return errors.Join(err, file.Chown(w.place.Owner, w.place.Owner), file.Close())
}

// alone sees to it that what is there can be protected and has no second name
// outside.
func (w *work) alone(dir int, c *node, leaf bool, stat *unix.Stat_t) error {
	kind := stat.Mode & unix.S_IFMT
	switch {
	case kind == unix.S_IFDIR:
		if c.rule == nil || c.rule.Access != guest.ReadOnly {
			return nil
		}
		fd, err := folder(dir, c.name)
		if err != nil {
			return err
		}
		return w.copyLinked(fd, c, 0)
	case !leaf:
		return guest.Errorf(guest.ReasonInvalid, "%q is no folder, and something in it is to be protected; it was replaced before the agent started", c.path)
	case kind == unix.S_IFREG:
		if stat.Nlink > 1 && c.rule.Access != guest.Writable {
			return copyApart(dir, c.name, stat)
		}
		return nil
	}
	return guest.Errorf(guest.ReasonInvalid, "%q is neither file nor folder and can't be protected; it was replaced before the agent started", c.path)
}

// copyLinked walks a folder and copies each file in it that has another name.
// What has a rule of its own is left to that. It closes fd.
func (w *work) copyLinked(fd int, n *node, depth int) error {
	list := os.NewFile(uintptr(fd), "folder")
	defer list.Close()
	if depth > maxDepth {
		return guest.Errorf(guest.ReasonInvalid, "it is more than %d folders deep", maxDepth)
	}
	for {
		names, err := list.Readdirnames(512)
		for _, name := range names {
			if w.seen++; w.seen > maxEntries {
				return guest.Errorf(guest.ReasonInvalid, "more than %d files would be read-only", maxEntries)
			}
			var child *node
			if n != nil {
				child = n.children[name]
			}
			if child != nil && child.rule != nil {
				continue
			}
			if err := w.copyLinkedOne(fd, name, child, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *work) copyLinkedOne(dir int, name string, child *node, depth int) error {
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		fd, err := folder(dir, name)
		if err != nil {
			return err
		}
		return w.copyLinked(fd, child, depth+1)
	case unix.S_IFREG:
		if stat.Nlink > 1 {
			return copyApart(dir, name, &stat)
		}
	}
	return nil
}

// half is the name of a copy under way.
const half = ".cofferdam-copy"

// copyApart puts a copy of a file in its place, with the same owner, mode and
// time.
func copyApart(dir int, name string, stat *unix.Stat_t) (err error) {
	if err := unix.Unlinkat(dir, half, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	from, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(from), name)
	defer in.Close()
	to, err := unix.Openat(dir, half, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(to), half)
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chown(int(stat.Uid), int(stat.Gid)), unix.Fchmod(to, stat.Mode&0o7777))
	if err == nil {
		err = unix.UtimesNanoAt(dir, half, []unix.Timespec{stat.Atim, stat.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(fmt.Errorf("copy a file that has a second name: %w", err), unix.Unlinkat(dir, half, 0))
	}
	return unix.Renameat(dir, half, dir, name)
}

// folder opens a folder to read it, without following a link.
func folder(dir int, name string) (int, error) {
	fd, err := nofollow.Open(dir, name)
	if err != nil {
		return -1, fmt.Errorf("open %q: %w", name, err)
	}
	return fd, nil
}

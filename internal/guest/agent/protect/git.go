package protect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

const (
	modules   = ".git/modules"
	worktrees = ".git/worktrees"
	perTree   = "config.worktree"
)

// submodules adds rules for the repositories of submodules and the
// configurations of linked work trees.
func (w *work) submodules(root int, tree *node, p guest.Protection) error {
	rules := []guest.PathRule{}
	for _, base := range []string{modules, worktrees} {
		if len(p.InGit) == 0 || decided(tree, base) {
			continue
		}
		fd, err := descend(root, base)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue // Absent, or what prepare refuses.
		}
		if err != nil {
			return err
		}
		if base == worktrees {
			err = w.workTrees(fd, p.InGit, &rules)
		} else {
			err = w.repositories(fd, base, p.InGit, &rules, 0)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", base, err)
		}
	}
	for i := range rules {
		if err := tree.add(&rules[i]); err != nil {
			return err
		}
		w.done.Also = append(w.done.Also, rules[i].Path)
	}
	return nil
}

// decided says whether a rule already speaks for a folder or in it.
func decided(tree *node, p string) bool {
	for at := p; at != "."; at = path.Dir(at) {
		if n := tree.find(at); n != nil && (n.rule != nil || at == p) {
			return true
		}
	}
	return false
}

func descend(root int, p string) (int, error) {
	fd, err := unix.Dup(root)
	if err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(p, "/") {
		next, err := folder(fd, name)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

// repositories finds repositories' folders, as deep as submodules may have their
// names and submodules of their own. It closes fd.
func (w *work) repositories(fd int, at string, names []string, rules *[]guest.PathRule, depth int) error {
	list := os.NewFile(uintptr(fd), at)
	defer list.Close()
	if depth > maxDepth {
		return guest.Errorf(guest.ReasonInvalid, "it is more than %d folders deep", maxDepth)
	}
	if present(fd, "HEAD", unix.S_IFREG) && present(fd, "objects", unix.S_IFDIR) {
		for _, name := range names {
			if err := also(path.Join(at, name), rules); err != nil {
				return err
			}
		}
		if !present(fd, "modules", unix.S_IFDIR) {
			return nil
		}
		inner, err := folder(fd, "modules")
		if err != nil {
			return err
		}
		return w.repositories(inner, path.Join(at, "modules"), names, rules, depth+1)
	}
	for {
		entries, err := list.Readdirnames(512)
		for _, name := range entries {
			if w.seen++; w.seen > maxEntries {
				return guest.Errorf(guest.ReasonInvalid, "it has more than %d entries", maxEntries)
			}
			if !present(fd, name, unix.S_IFDIR) {
				continue
			}
			inner, err := folder(fd, name)
			if err != nil {
				return err
			}
			if err := w.repositories(inner, path.Join(at, name), names, rules, depth+1); err != nil {
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

// workTrees protects the configurations of the linked work trees. It closes fd.
func (w *work) workTrees(fd int, names []string, rules *[]guest.PathRule) error {
	list := os.NewFile(uintptr(fd), worktrees)
	defer list.Close()
	protect := false
	for _, name := range names {
		protect = protect || name == perTree
	}
	entries, err := list.Readdirnames(-1)
	if err != nil || !protect {
		return err
	}
	for _, name := range entries {
		if !present(fd, name, unix.S_IFDIR) {
			continue
		}
		if err := also(path.Join(worktrees, name, perTree), rules); err != nil {
			return err
		}
	}
	return nil
}

func also(p string, rules *[]guest.PathRule) error {
	if len(*rules) >= maxPaths {
		return guest.Errorf(guest.ReasonInvalid, "more than %d paths would be protected", maxPaths)
	}
	*rules = append(*rules, guest.PathRule{Path: p, Access: guest.ReadOnly, File: path.Base(p) != "hooks"})
	return nil
}

func present(dir int, name string, kind uint32) bool {
	var stat unix.Stat_t
	err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && stat.Mode&unix.S_IFMT == kind
}

// excludeMark begins what exclude adds.
const excludeMark = "# What stands for absent paths that may not be made:\n"

// maxExclude bounds how much of the list that is there is kept.
const maxExclude = 1 << 20

// exclude tells git not to see the placeholders, by its list of what is ignored
// in this clone alone. The workload may change the list; that harms nobody but
// itself.
func (w *work) exclude(root int) error {
	var lines bytes.Buffer
	for _, p := range w.done.Placeholders {
		if strings.HasPrefix(p, ".git/") || p == ".git" {
			continue
		}
		p = strings.ReplaceAll(p, `\`, `\\`)
		if strings.HasSuffix(p, " ") {
			p = p[:len(p)-1] + `\ `
		}
		lines.WriteString("/" + p + "\n")
	}
	info, err := descend(root, ".git/info")
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil // No repository, no list.
	}
	if err != nil {
		return err
	}
	defer unix.Close(info)
	if lines.Len() == 0 {
		return nil
	}
	old, err := readExclude(info)
	if err != nil {
		return err
	}
	text := append(append(old, excludeMark...), lines.Bytes()...)
	if err := unix.Unlinkat(info, half, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	fd, err := unix.Openat(info, half, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), half)
	_, err = file.Write(text)
	if err := errors.Join(err, file.Chown(w.place.Owner, w.place.Owner), file.Close()); err != nil {
		return err
	}
	return unix.Renameat(info, half, info, "exclude")
}

// readExclude reads the list that is there. What is no plain file of a likely
// size is not kept.
func readExclude(info int) ([]byte, error) {
	if !present(info, "exclude", unix.S_IFREG) {
		err := unix.Unlinkat(info, "exclude", 0)
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
		return nil, err
	}
	fd, err := unix.Openat(info, "exclude", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "exclude")
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxExclude))
	if err != nil {
		return nil, err
	}
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	return text, nil
}

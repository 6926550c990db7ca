// Package folder reads and writes the file of a login in the folder of the tool
// that it belongs to, and takes the tool's locks there.
//
// The folder belongs to a person, and the control plane may run as root: nothing
// is followed out of the folder, the folder itself is no link, the file is its
// owner's and nobody else may read it. What is made there belongs to the same
// owner as the file, so that the tool can go on with it. A file is replaced as a
// whole or not at all.
//
// Not promised: that a tool which does not take its own locks sees what is
// written between its reading and its writing.
package folder

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cofferdam/cofferdam/internal/credential/login/tokens"
)

// Folder is a tool's folder, open.
type Folder struct {
	root, above *os.Root
	name        string // in the folder above
	uid, gid    int    // of its owner
}

// Open opens a folder. The path is absolute and without links. Errors name
// neither the path nor what is in it.
func Open(path string) (*Folder, error) {
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, reason(err)
	}
	if at != path {
		return nil, errors.New("is reached by a link; name the folder itself")
	}
	f := &Folder{name: filepath.Base(path)}
	if f.above, err = os.OpenRoot(filepath.Dir(path)); err != nil {
		return nil, reason(err)
	}
	if err := f.enter(path); err != nil {
		return nil, errors.Join(err, f.above.Close())
	}
	return f, nil
}

func (f *Folder) enter(path string) error {
	is, err := os.Lstat(path)
	if err != nil {
		return reason(err)
	}
	if f.root, err = f.above.OpenRoot(f.name); err != nil {
		return reason(err)
	}
	at, err := f.root.Stat(".")
	switch {
	case err != nil:
		err = reason(err)
	case !is.IsDir() || !os.SameFile(is, at):
		err = errors.New("is no folder, or another one than a moment ago")
	case at.Mode().Perm()&0o022 != 0:
		err = errors.New("may be written by others than its owner (chmod go-w)")
	default:
		f.uid, f.gid, err = owner(at)
	}
	if err != nil {
		return errors.Join(err, f.root.Close())
	}
	return nil
}

// Close closes the folder.
func (f *Folder) Close() error { return errors.Join(f.root.Close(), f.above.Close()) }

func owner(info fs.FileInfo) (uid, gid int, err error) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, errors.New("has no owner that can be told")
	}
	return int(s.Uid), int(s.Gid), nil
}

// reason is an error without a path.
func reason(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("is not there")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("may not be opened by the control plane's user")
	case errors.Is(err, syscall.ELOOP):
		return errors.New("is a link")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errors.New("can't be written: the disk is full")
	case errors.Is(err, syscall.EROFS):
		return errors.New("can't be written: the file system is read-only for the control plane")
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Read reads a file of the folder.
func (f *Folder) Read(name string) ([]byte, error) {
	if is, err := f.root.Lstat(name); err == nil && is.Mode()&fs.ModeSymlink != 0 {
		return nil, fmt.Errorf("%s is a link", name) // said better than by the opening, which refuses it
	}
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, reason(err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, reason(err))
	}
	uid, _, err := owner(info)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %w", name, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", name)
	case uid != f.uid:
		return nil, fmt.Errorf("%s belongs to another user than its folder", name)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s may be read by others than its owner (chmod 600)", name)
	}
	text, err := io.ReadAll(io.LimitReader(file, tokens.MaxText+1))
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, reason(err))
	}
	return text, nil
}

// Write replaces a file of the folder.
func (f *Folder) Write(name string, text []byte) error {
	var raw [6]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand since Go 1.24)
	temp := name + ".tmp." + hex.EncodeToString(raw[:])
	file, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("%s %w", name, reason(err))
	}
	_, err = file.Write(text)
	if err == nil {
		err = f.give(file)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.root.Rename(temp, name)
	}
	if err != nil {
		_ = f.root.Remove(temp) // the error is told
		return fmt.Errorf("%s %w", name, reason(err))
	}
	dir, err := f.root.Open(".")
	if err != nil {
		return fmt.Errorf("%s %w", name, reason(err))
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// give gives what was made to the folder's owner. Only root can, and only root
// needs to.
func (f *Folder) give(file *os.File) error {
	if os.Geteuid() == f.uid {
		return nil
	}
	return file.Chown(f.uid, f.gid)
}

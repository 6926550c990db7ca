package files

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent/folder"
)

// Do carries an operation out.
func (p Place) Do(op guest.FileOp) (guest.FileResult, error) {
	if op.Mode != nil {
		if err := p.mode(*op.Mode); err != nil {
			return guest.FileResult{}, err
		}
	}
	switch op.Kind {
	case guest.FileStat:
		return p.stat(op)
	case guest.FileList:
		return p.list(op)
	case guest.FileRename:
		return p.rename(op)
	case guest.FileRemove:
		return guest.FileResult{}, p.remove(op)
	case guest.FileMkdir:
		return p.mkdir(op)
	case guest.FileChmod:
		return p.chmod(op)
	}
	return guest.FileResult{}, guest.Errorf(guest.ReasonInvalid, "operation %q on files is unknown", op.Kind)
}

// mode refuses what the workload may not give a file.
func (p Place) mode(mode uint32) error {
	switch {
	case mode > 0o7777:
		return guest.Errorf(guest.ReasonInvalid, "mode %#o: it must be 0 to 07777", mode)
	case mode > 0o777 && !p.Root:
		return guest.Errorf(guest.ReasonInvalid, "mode %#o: set-id and sticky bits are not given; it must be 0 to 0777", mode)
	}
	return nil
}

// settled tells what stands at the spot now.
func settled(s spot, name []byte) (guest.FileResult, error) {
	info, _, err := describe(s.dir, s.name)
	if err != nil {
		return guest.FileResult{}, s.fail(err)
	}
	info.Name = name
	return guest.FileResult{Info: &info}, nil
}

// rename moves a name. What is a link is moved as one.
func (p Place) rename(op guest.FileOp) (guest.FileResult, error) {
	from, err := p.to(op.Path, how{follow: op.Follow})
	if err != nil {
		return guest.FileResult{}, err
	}
	defer from.close()
	to, err := p.to(op.To, how{follow: op.Follow})
	if err != nil {
		return guest.FileResult{}, err
	}
	defer to.close()
	if from.itself() || to.itself() {
		return guest.FileResult{}, from.refuse(guest.ReasonInvalid, "can't be renamed to %s: neither may be a root", to.path)
	}
	flags := uint(0)
	if op.NoReplace {
		flags = unix.RENAME_NOREPLACE
	}
	err = unix.Renameat2(from.dir, from.name, to.dir, to.name, flags)
	switch {
	case err == nil:
		return settled(to, base(op.To))
	case errors.Is(err, unix.EEXIST) && op.NoReplace:
		return guest.FileResult{}, p.conflict(to, "is there already")
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return guest.FileResult{}, to.refuse(guest.ReasonConflict, "is a folder that is not empty")
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
		return guest.FileResult{}, to.refuse(guest.ReasonConflict, "is there already and is of another kind")
	case errors.Is(err, unix.EINVAL):
		return guest.FileResult{}, from.refuse(guest.ReasonInvalid, "can't be renamed to %s: a folder can't go into itself", to.path)
	case errors.Is(err, unix.EXDEV):
		return guest.FileResult{}, from.refuse(guest.ReasonInvalid, "can't be renamed to %s: they lie on different file systems, or one is mounted; copy it", to.path)
	case errors.Is(err, unix.EBUSY):
		return guest.FileResult{}, from.refuse(guest.ReasonProtected, "can't be renamed: something in it is protected")
	}
	return guest.FileResult{}, from.fail(err)
}

// conflict says that something else is there, with its hash when it is a file.
func (p Place) conflict(s spot, text string) error {
	f, err := p.openRegular(s)
	if err != nil {
		return s.refuse(guest.ReasonConflict, "%s", text)
	}
	defer f.close()
	digest, err := f.digest()
	if err != nil {
		return s.refuse(guest.ReasonConflict, "%s", text)
	}
	return s.refuse(guest.ReasonConflict, "%s; its sha256 is %s", text, digest)
}

// mkdir makes a folder of exactly that mode.
func (p Place) mkdir(op guest.FileOp) (guest.FileResult, error) {
	mode := uint32(0o755)
	if op.Mode != nil {
		mode = *op.Mode
	}
	s, err := p.to(op.Path, how{follow: op.Follow, make: op.Recursive})
	if err != nil {
		return guest.FileResult{}, err
	}
	defer s.close()
	// 0700 until the mode is set through what was opened.
	err = unix.Mkdirat(s.dir, s.name, 0o700)
	if errors.Is(err, unix.EEXIST) {
		info, _, lerr := describe(s.dir, s.name)
		if op.Recursive && lerr == nil && info.Kind == guest.KindFolder {
			info.Name = base(op.Path)
			return guest.FileResult{Info: &info}, nil
		}
		return guest.FileResult{}, s.refuse(guest.ReasonConflict, "is there already")
	}
	if err != nil {
		return guest.FileResult{}, s.fail(err)
	}
	fd, err := openFolder(s)
	if err != nil {
		return guest.FileResult{}, err
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, mode); err != nil {
		return guest.FileResult{}, s.fail(err)
	}
	return settled(s, base(op.Path))
}

// chmod changes the mode of a file or folder, through what was opened.
func (p Place) chmod(op guest.FileOp) (guest.FileResult, error) {
	if op.Mode == nil {
		return guest.FileResult{}, guest.Errorf(guest.ReasonInvalid, "mode: it is missing")
	}
	s, err := p.to(op.Path, how{follow: op.Follow, last: true})
	if err != nil {
		return guest.FileResult{}, err
	}
	defer s.close()
	info, stat, err := describe(s.dir, s.name)
	if err != nil {
		return guest.FileResult{}, s.fail(err)
	}
	if info.Kind != guest.KindFile && info.Kind != guest.KindFolder {
		return guest.FileResult{}, s.refuse(guest.ReasonInvalid, "is a %s; only files and folders are given a mode", info.Kind)
	}
	if err := p.alone(s, &stat); err != nil {
		return guest.FileResult{}, err
	}
	err = p.chmodOpened(s, &stat, *op.Mode)
	if errors.Is(err, unix.EACCES) && !p.Root && stat.Uid == p.Owner {
		// Its owner took the right to read it away, and there is no call that changes
		// a mode without opening or following. Another goroutine has the guest's own
		// rights, and does what an owner may.
		done := make(chan error, 1)
		go func() { done <- p.chmodOpened(s, &stat, *op.Mode) }()
		err = <-done
	}
	if err != nil {
		return guest.FileResult{}, err
	}
	return settled(s, base(op.Path))
}

// chmodOpened changes the mode of what was looked at, or of nothing.
func (p Place) chmodOpened(s spot, looked *unix.Stat_t, mode uint32) error {
	fd, err := unix.Openat(s.dir, s.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return s.fail(err)
	}
	defer unix.Close(fd)
	var opened unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil {
		return s.fail(err)
	}
	if opened.Dev != looked.Dev || opened.Ino != looked.Ino || opened.Uid != looked.Uid || opened.Mode&unix.S_IFMT != looked.Mode&unix.S_IFMT {
		return s.refuse(guest.ReasonConflict, "was replaced meanwhile")
	}
	if err := p.alone(s, &opened); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return s.fail(err)
	}
	return nil
}

// maxPasses bounds how often a folder is emptied that is filled meanwhile.
const maxPasses = 100

// remove removes a name, never what a link leads to.
func (p Place) remove(op guest.FileOp) error {
	s, err := p.to(op.Path, how{follow: op.Follow})
	if err != nil {
		return err
	}
	defer s.close()
	if s.itself() {
		return s.refuse(guest.ReasonInvalid, "is a root and stays")
	}
	info, _, err := describe(s.dir, s.name)
	if err != nil {
		return s.fail(err)
	}
	if info.Kind != guest.KindFolder {
		return busy(s, unix.Unlinkat(s.dir, s.name, 0))
	}
	if op.Recursive {
		return removeFolder(s, s.dir, s.name, 0)
	}
	err = unix.Unlinkat(s.dir, s.name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return s.refuse(guest.ReasonConflict, "is a folder that is not empty; remove it recursively")
	}
	return busy(s, err)
}

// busy tells what the kernel won't remove since it is mounted.
func busy(s spot, err error) error {
	if errors.Is(err, unix.EBUSY) {
		return s.refuse(guest.ReasonProtected, "can't be removed: it, or something in it, is protected")
	}
	if err != nil {
		return s.fail(err)
	}
	return nil
}

// removeFolder empties and removes a folder in dir.
func removeFolder(s spot, dir int, name string, depth int) error {
	if depth > guest.MaxFileDepth {
		return s.refuse(guest.ReasonInvalid, "has folders more than %d deep in it; remove some by themselves first", guest.MaxFileDepth)
	}
	fd, err := folder.Open(dir, name)
	if errors.Is(err, unix.ENOTDIR) { // Replaced a moment ago.
		return gone(busy(s, unix.Unlinkat(dir, name, 0)))
	}
	if err != nil {
		return gone(s.fail(fmt.Errorf("%q: %w", name, err)))
	}
	defer unix.Close(fd)
	for range maxPasses {
		if _, err := unix.Seek(fd, 0, 0); err != nil {
			return s.fail(err)
		}
		err := eachName(fd, func(inner string) error { return removeAny(s, fd, inner, depth+1) })
		if err != nil {
			return err
		}
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			return gone(busy(s, err))
		}
	}
	return s.refuse(guest.ReasonConflict, "is filled as fast as it is emptied")
}

// removeAny removes a name whatever stands there.
func removeAny(s spot, dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		return removeFolder(s, dir, name, depth)
	}
	return gone(busy(s, err))
}

// gone forgives that somebody else removed it first.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

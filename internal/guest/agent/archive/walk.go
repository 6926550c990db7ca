package archive

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

const (
	pathOnly = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	maxDepth = 512 // of folders; each on the way holds a descriptor, or two in a download
)

// walk is the way from the folder that was opened down to the one where it came
// last. Entries that lie together share it, so that each is reached by its last
// name alone. It goes through folders only: what it holds was never reached by a
// link, whatever is laid in its place afterwards.
type walk struct {
	top   int
	names []string
	fds   []int // of names
}

// to goes to the folder called dir, "." for the top. What is absent is made, if
// so asked; fresh says that the folder itself was. The descriptor is the walk's,
// until it goes elsewhere.
func (w *walk) to(dir string, absent bool) (fd int, fresh bool, err error) {
	var names []string
	if dir != "." {
		names = strings.Split(dir, "/")
	}
	if len(names) > maxDepth {
		return -1, false, guest.Errorf(guest.ReasonInvalid, "it lies more than %d folders deep", maxDepth)
	}
	same := 0
	for same < len(names) && same < len(w.names) && names[same] == w.names[same] {
		same++
	}
	w.back(same)
	for _, name := range names[same:] {
		if fd, fresh, err = enter(w.here(), name, absent); err != nil {
			return -1, false, err
		}
		w.names, w.fds = append(w.names, name), append(w.fds, fd)
	}
	return w.here(), fresh, nil
}

func (w *walk) here() int {
	if len(w.fds) == 0 {
		return w.top
	}
	return w.fds[len(w.fds)-1]
}

// back leaves all but the first n folders.
func (w *walk) back(n int) {
	for _, fd := range w.fds[n:] {
		unix.Close(fd)
	}
	w.names, w.fds = w.names[:n], w.fds[:n]
}

// enter opens the folder called name in dir, and makes it if it is absent and so
// asked.
func enter(dir int, name string, absent bool) (fd int, fresh bool, err error) {
	fd, err = openat(dir, name, pathOnly, 0)
	if absent && errors.Is(err, unix.ENOENT) {
		if err = unix.Mkdirat(dir, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, false, failed("mkdirat", name, err)
		}
		fresh = err == nil
		fd, err = openat(dir, name, pathOnly, 0)
	}
	if err != nil {
		return -1, false, failed("openat", name, err)
	}
	var stat unix.Stat_t
	if err = unix.Fstat(fd, &stat); err != nil {
		err = failed("fstat", name, err)
	} else if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = guest.Errorf(guest.ReasonInvalid, "%q on the way is a link or a file: nothing is written through it", name)
	}
	if err != nil {
		unix.Close(fd)
		return -1, false, err
	}
	return fd, fresh, nil
}

func openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	for {
		if fd, err = unix.Openat(dir, name, flags, mode); !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func failed(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

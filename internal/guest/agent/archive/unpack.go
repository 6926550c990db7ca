package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// ErrCut is what a source gives whose sender is gone: the stream is not at fault.
var ErrCut = errors.New("the worker is gone or gave up")

// Unpack writes the entries of a tar stream beneath dir. Nothing is written
// outside, whatever the stream or the links in dir say. What the stream is to
// blame for is a *guest.Error.
func Unpack(src io.Reader, dir string) error {
	if !filepath.IsAbs(dir) {
		return guest.Errorf(guest.ReasonInvalid, "folder %q is not absolute", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// The folder itself is where the workload finds it, links and all.
	top, err := openat(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed("open", dir, err)
	}
	defer unix.Close(top)
	u := &unpacker{walk: walk{top: top}, buf: make([]byte, 128<<10)}
	defer u.walk.back(0)
	reader := tar.NewReader(src)
	for {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return malformed(err)
		}
		if err := u.entry(header, reader); err != nil {
			return of(header.Name, err)
		}
	}
	// Trailing zeros: the sender has an answer only when all was taken.
	if _, err := io.CopyBuffer(io.Discard, src, u.buf); err != nil {
		return err
	}
	return u.seal()
}

// of names the entry that an error is about, in what the worker is told too.
func of(entry string, err error) error {
	if refused := (*guest.Error)(nil); errors.As(err, &refused) {
		return guest.Errorf(refused.Reason, "entry %q: %s", entry, refused.Text)
	}
	return fmt.Errorf("entry %q: %w", entry, err)
}

func malformed(err error) error {
	if errors.Is(err, ErrCut) {
		return err
	}
	return guest.Errorf(guest.ReasonInvalid, "not a tar stream: %v", err)
}

// unpacker writes entries.
type unpacker struct {
	walk   walk
	sealed []sealed // folders whose mode forbids writing into them, until the end
	buf    []byte
}

type sealed struct {
	name string
	mode fs.FileMode
}

// entry writes one entry.
func (u *unpacker) entry(h *tar.Header, body io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name := strings.TrimSuffix(h.Name, "/")
	if !inside(name) {
		return guest.Errorf(guest.ReasonInvalid, "it would leave the folder")
	}
	name = path.Clean(name)
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	if h.Typeflag == tar.TypeDir {
		return u.folder(name, mode)
	}
	if name == "." {
		return guest.Errorf(guest.ReasonInvalid, "it stands for the folder and is none")
	}
	dir, _, err := u.walk.to(path.Dir(name), true)
	if err != nil {
		return err
	}
	base := path.Base(name)
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(dir, base, h, mode, body)
	case tar.TypeSymlink:
		// A link is data wherever it points to, as in any repository with a virtual
		// environment in it; nothing is ever written through one.
		if h.Linkname == "" || strings.IndexByte(h.Linkname, 0) >= 0 {
			return guest.Errorf(guest.ReasonInvalid, "it is a link to nowhere: %q", h.Linkname)
		}
		return place("symlinkat", dir, base, func() error { return unix.Symlinkat(h.Linkname, dir, base) })
	case tar.TypeLink:
		if !inside(h.Linkname) {
			return guest.Errorf(guest.ReasonInvalid, "it is a hard link that leaves the folder: %q", h.Linkname)
		}
		if path.Clean(h.Linkname) == name {
			return guest.Errorf(guest.ReasonInvalid, "it is a hard link to itself")
		}
		return u.hardLink(path.Clean(h.Linkname), dir, base)
	}
	return guest.Errorf(guest.ReasonInvalid, "it is of a kind (%q) that is not taken: device, pipe or the like", h.Typeflag)
}

// inside says whether a name stays in the folder, by its text.
func inside(name string) bool {
	return name != "" && strings.IndexByte(name, 0) < 0 && filepath.IsLocal(name)
}

// hardLink gives the file called target a second name. Its own way there leads
// through no link either, and it makes no folder that the stream didn't name.
func (u *unpacker) hardLink(target string, dir int, base string) error {
	from := walk{top: u.walk.top}
	defer from.back(0)
	there, _, err := from.to(path.Dir(target), false)
	if err != nil {
		return err
	}
	return place("linkat", dir, base, func() error { return unix.Linkat(there, path.Base(target), dir, base, 0) })
}

// place makes something new, called name in dir, and makes way for it if there
// is anything. Folders are not replaced.
func place(op string, dir int, name string, create func() error) error {
	err := create()
	if errors.Is(err, unix.EEXIST) {
		if err := makeWay(dir, name); err != nil {
			return err
		}
		err = create()
	}
	if err != nil {
		return failed(op, name, err)
	}
	return nil
}

func makeWay(dir int, name string) error {
	var stat unix.Stat_t
	err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return failed("fstatat", name, err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return guest.Errorf(guest.ReasonInvalid, "it would replace a folder")
	}
	if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return failed("unlinkat", name, err)
	}
	return nil
}

func (u *unpacker) folder(name string, mode fs.FileMode) error {
	fd, fresh, err := u.walk.to(name, true)
	if err != nil || name == "." {
		return err // How the folder itself is, its owner decided.
	}
	if mode&0o700 != 0o700 {
		u.sealed = append(u.sealed, sealed{name, mode})
		mode |= 0o700
	}
	if fresh && mode == 0o755 {
		return nil
	}
	return chmod(fd, mode)
}

// chmod gives what was opened by its path a mode: by the name that the kernel has
// for the descriptor, since nothing else takes one.
func chmod(fd int, mode fs.FileMode) error {
	name := "/proc/self/fd/" + strconv.Itoa(fd)
	if err := unix.Fchmodat(unix.AT_FDCWD, name, uint32(mode), 0); err != nil {
		return failed("chmod", name, err)
	}
	return nil
}

// umask is what a new file's mode may lose.
const umask = 0o022

// file writes a file: few calls, since a tree has many. It has its mode from the
// start and is new, so that nothing is written that was there.
func (u *unpacker) file(dir int, name string, h *tar.Header, mode fs.FileMode, body io.Reader) error {
	var fd int
	err := place("openat", dir, name, func() (err error) {
		fd, err = openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode))
		return err
	})
	if err != nil {
		return err
	}
	err = u.fill(fd, h, body)
	if err == nil && mode&umask != 0 {
		err = unix.Fchmod(fd, uint32(mode))
	}
	if err == nil && guest.PlausibleTime(h.ModTime) {
		at := unix.NsecToTimespec(h.ModTime.UnixNano())
		err = unix.UtimesNanoAt(dir, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if closed := unix.Close(fd); err == nil && !errors.Is(closed, unix.EINTR) {
		err = closed
	}
	return err
}

// fill writes an entry's bytes, as many at once as there is room for.
func (u *unpacker) fill(fd int, h *tar.Header, body io.Reader) error {
	for left := h.Size; left > 0; {
		data := u.buf[:min(left, int64(len(u.buf)))]
		n, err := io.ReadFull(body, data)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return guest.Errorf(guest.ReasonInvalid, "the tar stream ends within it")
		case err != nil:
			return malformed(err)
		}
		left -= int64(n)
		for len(data) > 0 {
			n, err := unix.Write(fd, data)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return failed("write", h.Name, err)
			}
			data = data[max(n, 0):]
		}
	}
	return nil
}

// seal gives read-only folders their mode, the inner ones first.
func (u *unpacker) seal() error {
	for _, v := range slices.Backward(u.sealed) {
		fd, _, err := u.walk.to(v.name, false)
		if err == nil {
			err = chmod(fd, v.mode)
		}
		if err != nil {
			return of(v.name, err)
		}
	}
	return nil
}

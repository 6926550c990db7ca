package archive

import (
	"archive/tar"
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent/folder"
)

const (
	maxNotes  = 20
	listBytes = 32 << 10 // of a folder's list at a time
)

// packer writes a tar stream.
type packer struct {
	tar     *tar.Writer
	exclude map[string]bool
	notes   []string
	left    int // out, in all
	buf     []byte
}

// Pack writes name and all beneath it. Links are packed as links and not
// followed, name itself apart: it is followed as the workload would follow it. What exclude
// names, beneath name, is left out; notes tell what else was.
func Pack(dst io.Writer, name string, exclude []string) (notes []string, err error) {
	if !filepath.IsAbs(name) {
		return nil, guest.Errorf(guest.ReasonInvalid, "path %q is not absolute", name)
	}
	buffered := bufio.NewWriterSize(dst, guest.MaxData)
	p := &packer{tar: tar.NewWriter(buffered), exclude: map[string]bool{}, buf: make([]byte, 64<<10)}
	for _, e := range exclude {
		p.exclude[path.Clean(e)] = true
	}
	base := path.Base(path.Clean(name))
	if base == "/" {
		base = "."
	}
	if err := p.top(name, base); err != nil {
		return nil, err
	}
	if err := p.tar.Close(); err != nil {
		return nil, err
	}
	if p.left > len(p.notes) {
		p.notes = append(p.notes, fmt.Sprintf("%d entries were left out", p.left))
	}
	return p.notes, buffered.Flush()
}

// top packs what name leads to, as the workload would follow it.
func (p *packer) top(name, base string) error {
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		dir, err := openat(unix.AT_FDCWD, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return failed("open", name, err)
		}
		return p.folder(dir, base, "", 0)
	}
	// Through its folder, so that what was looked at is what is opened.
	parent, err := openat(unix.AT_FDCWD, filepath.Dir(name), pathOnly|unix.O_DIRECTORY, 0)
	if err != nil {
		return failed("open", filepath.Dir(name), err)
	}
	defer unix.Close(parent)
	return p.entry(parent, item{name: filepath.Base(name)}, base, base, 0)
}

func (p *packer) note(format string, args ...any) {
	if p.left++; len(p.notes) < maxNotes {
		p.notes = append(p.notes, fmt.Sprintf(format, args...))
	}
}

// folder packs an open folder and what lies in it, and closes it. name is how it
// is called in the stream, within how it is called for exclude.
func (p *packer) folder(dir int, name, within string, depth int) error {
	defer unix.Close(dir)
	if depth > maxDepth {
		return guest.Errorf(guest.ReasonInvalid, "%q lies more than %d folders deep", name, maxDepth)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(dir, &stat); err != nil {
		return failed("fstat", name, err)
	}
	if err := p.header(name, "", &stat); err != nil {
		return err
	}
	buf := make([]byte, listBytes)
	for {
		list, err := items(dir, buf)
		if err != nil {
			return failed("getdents", name, err)
		}
		if len(list) == 0 {
			return nil
		}
		for _, i := range list {
			inner := path.Join(within, i.name)
			if p.exclude[inner] {
				continue
			}
			if err := p.entry(dir, i, path.Join(name, i.name), inner, depth); err != nil {
				return err
			}
		}
	}
}

// entry packs one thing in dir and all beneath it. What the folder's list says of
// its kind saves a look; what is opened is looked at again.
func (p *packer) entry(dir int, i item, name, within string, depth int) error {
	var stat unix.Stat_t
	if i.kind == unix.DT_UNKNOWN || i.kind == unix.DT_LNK {
		err := unix.Fstatat(dir, i.name, &stat, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			return nil // Removed a moment ago.
		}
		if err != nil {
			return failed("fstatat", name, err)
		}
		i.kind = byte(stat.Mode & unix.S_IFMT >> 12) // as lists have it
	}
	switch i.kind {
	case unix.DT_REG:
		return p.file(dir, i.name, name)
	case unix.DT_LNK:
		n, err := unix.Readlinkat(dir, i.name, p.buf)
		if err != nil || n == 0 {
			return p.unreadable(name, cmp.Or(err, error(unix.EINVAL)))
		}
		return p.header(name, string(p.buf[:n]), &stat)
	case unix.DT_DIR:
		inner, err := folder.Open(dir, i.name)
		if err != nil {
			return p.unreadable(name, err)
		}
		return p.folder(inner, name, within, depth+1)
	}
	p.note("%q is neither file, folder nor link", name)
	return nil
}

// unreadable leaves out what the workload may not read either, or what was
// replaced meanwhile.
func (p *packer) unreadable(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		p.note("%q can't be read", name)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENXIO):
		p.note("%q was replaced meanwhile", name)
	default:
		return failed("open", name, err)
	}
	return nil
}

func (p *packer) file(dir int, entry, name string) error {
	// Without waiting: a pipe may stand where a file was.
	fd, err := openat(dir, entry, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return p.unreadable(name, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return failed("fstat", name, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		p.note("%q is no file any more", name)
		return nil
	}
	if err := p.header(name, "", &stat); err != nil {
		return err
	}
	left := stat.Size
	for left > 0 {
		n, err := unix.Read(fd, p.buf[:min(left, int64(len(p.buf)))])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return failed("read", name, err)
		}
		if n == 0 {
			break
		}
		if _, err := p.tar.Write(p.buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	if left == 0 {
		return nil
	}
	// The stream already says how long it is.
	p.note("%q became shorter while it was read; %d zero bytes stand for the rest", name, left)
	clear(p.buf)
	for left > 0 {
		n, err := p.tar.Write(p.buf[:min(left, int64(len(p.buf)))])
		if err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

// header writes an entry's header: the permission bits, and nothing of owners or
// set-id bits.
func (p *packer) header(name, link string, stat *unix.Stat_t) error {
	h := &tar.Header{Name: name, Linkname: link, Mode: int64(stat.Mode & 0o777), ModTime: time.Unix(stat.Mtim.Sec, 0)}
	switch {
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(name, "/")+"/"
	case link != "":
		h.Typeflag = tar.TypeSymlink
	default:
		h.Typeflag, h.Size = tar.TypeReg, stat.Size
	}
	if !guest.PlausibleTime(h.ModTime) {
		h.ModTime = time.Time{} // The workload may have set anything.
	}
	return p.tar.WriteHeader(h)
}

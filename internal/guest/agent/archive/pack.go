package archive

import (
	"archive/tar"
	"bufio"
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
)

const (
	maxDepth  = 512 // of folders in a download; each holds a descriptor
	maxNotes  = 20
	namesRead = 512 // of a folder at a time
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
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		err = p.top(name, base, info)
	} else {
		// Through its folder, so that what was looked at is what is opened.
		var parent *os.Root
		if name, err = filepath.EvalSymlinks(name); err == nil {
			parent, err = os.OpenRoot(filepath.Dir(name))
		}
		if err == nil {
			defer parent.Close()
			err = p.entry(parent, filepath.Base(name), base, base, 0)
		}
	}
	if err != nil {
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

func (p *packer) top(name, base string, info fs.FileInfo) error {
	root, err := os.OpenRoot(name)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := p.header(base, "", info); err != nil {
		return err
	}
	return p.folder(root, base, "", 0)
}

func (p *packer) note(format string, args ...any) {
	if p.left++; len(p.notes) < maxNotes {
		p.notes = append(p.notes, fmt.Sprintf(format, args...))
	}
}

// folder packs what lies in dir. name is how it is called in the stream, within
// how it is called for exclude.
func (p *packer) folder(dir *os.Root, name, within string, depth int) error {
	if depth > maxDepth {
		return guest.Errorf(guest.ReasonInvalid, "%q lies more than %d folders deep", name, maxDepth)
	}
	list, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(namesRead)
		for _, entry := range names {
			inner := path.Join(within, entry)
			if p.exclude[inner] {
				continue
			}
			if err := p.entry(dir, entry, path.Join(name, entry), inner, depth); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
}

// entry packs one thing in dir and all beneath it.
func (p *packer) entry(dir *os.Root, entry, name, within string, depth int) error {
	info, err := dir.Lstat(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Removed a moment ago.
	}
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	switch info.Mode().Type() {
	case 0:
		return p.file(dir, entry, name)
	case fs.ModeSymlink:
		target, err := dir.Readlink(entry)
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		return p.header(name, target, info)
	case fs.ModeDir:
		inner, err := dir.OpenRoot(entry)
		if err != nil {
			return p.unreadable(name, err)
		}
		defer inner.Close()
		// What was opened is what was looked at: gVisor follows a link here, see
		// package folder.
		if opened, err := inner.Stat("."); err != nil || !os.SameFile(info, opened) {
			p.note("%q was replaced meanwhile", name)
			return nil
		}
		if err := p.header(name, "", info); err != nil {
			return err
		}
		return p.folder(inner, name, within, depth+1)
	}
	p.note("%q is neither file, folder nor link", name)
	return nil
}

// unreadable leaves out what the workload may not read either, or what was
// replaced meanwhile.
func (p *packer) unreadable(name string, err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		p.note("%q can't be read", name)
		return nil
	}
	return fmt.Errorf("%q: %w", name, err)
}

func (p *packer) file(dir *os.Root, entry, name string) error {
	// Without waiting: a pipe may stand where a file was.
	file, err := dir.OpenFile(entry, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return p.unreadable(name, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		p.note("%q is no file any more", name)
		return nil
	}
	if err := p.header(name, "", info); err != nil {
		return err
	}
	left := info.Size()
	n, err := io.CopyBuffer(struct{ io.Writer }{p.tar}, io.LimitReader(struct{ io.Reader }{file}, left), p.buf)
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if left -= n; left == 0 {
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
func (p *packer) header(name, link string, info fs.FileInfo) error {
	h := &tar.Header{Name: name, Linkname: link, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(1e9)}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(name, "/")+"/"
	case link != "":
		h.Typeflag = tar.TypeSymlink
	default:
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	}
	if !guest.PlausibleTime(h.ModTime) {
		h.ModTime = time.Time{} // The workload may have set anything.
	}
	return p.tar.WriteHeader(h)
}

package files

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent/folder"
)

// maxScan bounds the names of a folder that is listed.
const maxScan = 4_000_000

// pageBytes bounds a page, so that it fits into one message however long its
// names are.
const pageBytes = 600 << 10

// describe tells what stands at a name, never what a link leads to.
func describe(dir int, name string) (guest.FileInfo, unix.Stat_t, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return guest.FileInfo{}, stat, err
	}
	info := infoOf(name, &stat)
	if info.Kind == guest.KindLink {
		target, err := readlink(dir, name)
		if err != nil {
			return guest.FileInfo{}, stat, err
		}
		info.Target = []byte(target)
	}
	return info, stat, nil
}

func infoOf(name string, stat *unix.Stat_t) guest.FileInfo {
	info := guest.FileInfo{
		Name: []byte(name), Size: stat.Size, Mode: stat.Mode & 0o7777, UID: stat.Uid, GID: stat.Gid, Links: uint64(stat.Nlink), //nolint:unconvert // of 32 bits on other architectures
		Modified: time.Unix(stat.Mtim.Unix()).UTC(),
	}
	if !guest.PlausibleTime(info.Modified) {
		info.Modified = time.Time{} // The workload may have set anything.
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		info.Kind = guest.KindFile
	case unix.S_IFDIR:
		info.Kind = guest.KindFolder
	case unix.S_IFLNK:
		info.Kind = guest.KindLink
	case unix.S_IFIFO:
		info.Kind = guest.KindPipe
	case unix.S_IFSOCK:
		info.Kind = guest.KindSocket
	default:
		info.Kind = guest.KindDevice
	}
	return info
}

// stat tells what stands at a path, with a file's hash where asked for.
func (p Place) stat(op guest.FileOp) (guest.FileResult, error) {
	s, err := p.to(op.Path, how{follow: op.Follow, last: true})
	if err != nil {
		return guest.FileResult{}, err
	}
	defer s.close()
	info, _, err := describe(s.dir, s.name)
	if err != nil {
		return guest.FileResult{}, s.fail(err)
	}
	if op.Digest && info.Kind == guest.KindFile {
		f, err := p.openRegular(s)
		if err != nil {
			return guest.FileResult{}, err
		}
		defer f.close()
		info = f.info()
		if info.SHA256, err = f.digest(); err != nil {
			return guest.FileResult{}, s.fail(err)
		}
	}
	info.Name = base(op.Path)
	return guest.FileResult{Info: &info}, nil
}

// file is an open regular file.
type file struct {
	fd   int
	name string
	stat unix.Stat_t
}

func (f *file) close() { unix.Close(f.fd) }

func (f *file) info() guest.FileInfo { return infoOf(f.name, &f.stat) }

// Read reads without ever waiting for more than a disk.
func (f *file) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(f.fd, p)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n == 0 && len(p) > 0 {
			return 0, io.EOF
		}
		return n, nil
	}
}

// Write writes all of p.
func (f *file) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Write(f.fd, p[done:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// digest hashes the whole file and leaves it at its start.
func (f *file) digest() (string, error) {
	if _, err := unix.Seek(f.fd, 0, io.SeekStart); err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.CopyBuffer(sum, struct{ io.Reader }{f}, make([]byte, 128<<10)); err != nil {
		return "", err
	}
	_, err := unix.Seek(f.fd, 0, io.SeekStart)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// openRegular opens a regular file to read. What else may stand there is not
// opened, which would have effects of its own; what is swapped in between can't
// block.
func (p Place) openRegular(s spot) (*file, error) {
	info, _, err := describe(s.dir, s.name)
	if err != nil {
		return nil, s.fail(err)
	}
	if info.Kind != guest.KindFile {
		return nil, s.refuse(guest.ReasonInvalid, "is a %s and no file", info.Kind)
	}
	fd, err := unix.Openat(s.dir, s.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return nil, s.refuse(guest.ReasonInvalid, "is no file any more")
	}
	if err != nil {
		return nil, s.fail(err)
	}
	f := &file{fd: fd, name: s.name}
	if err := unix.Fstat(fd, &f.stat); err != nil {
		f.close()
		return nil, s.fail(err)
	}
	if f.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		f.close()
		return nil, s.refuse(guest.ReasonInvalid, "is no file any more")
	}
	if err := p.alone(s, &f.stat); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// alone refuses, for root, a file that has a second name.
func (p Place) alone(s spot, stat *unix.Stat_t) error {
	if p.Root && stat.Mode&unix.S_IFMT != unix.S_IFDIR && stat.Nlink > 1 {
		return s.refuse(guest.ReasonInvalid, "has %d names; root works on files with one only", stat.Nlink)
	}
	return nil
}

// last is the largest of the names that were kept.
type last []string

func (l last) Len() int           { return len(l) }
func (l last) Less(i, j int) bool { return l[i] > l[j] }
func (l last) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *last) Push(v any)        { *l = append(*l, v.(string)) } //nolint:forcetypeassert // heap's own
func (l *last) Pop() any {
	v := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return v
}

// list gives the names after op.After, by name, up to a limit. The folder is read
// whole for each page and no more than a page of it is kept.
func (p Place) list(op guest.FileOp) (guest.FileResult, error) {
	limit := cmp.Or(op.Limit, guest.FilePage)
	if limit < 1 || limit > guest.MaxFilePage {
		return guest.FileResult{}, guest.Errorf(guest.ReasonInvalid, "limit %d: it must be 1 to %d", limit, guest.MaxFilePage)
	}
	s, err := p.to(op.Path, how{follow: op.Follow, last: true})
	if err != nil {
		return guest.FileResult{}, err
	}
	defer s.close()
	fd, err := openFolder(s)
	if err != nil {
		return guest.FileResult{}, err
	}
	defer unix.Close(fd)
	names, more, err := smallest(fd, string(op.After), limit)
	if err != nil {
		return guest.FileResult{}, err
	}
	r := guest.FileResult{Entries: make([]guest.FileInfo, 0, len(names))}
	if more {
		r.Next = []byte(names[len(names)-1])
	}
	bytes := 0
	for i, name := range names {
		info, _, err := describe(fd, name)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
			continue // Removed or replaced a moment ago.
		}
		if err != nil {
			return guest.FileResult{}, fmt.Errorf("%s/%q: %w", s.path, name, err)
		}
		r.Entries = append(r.Entries, info)
		if bytes += 4*(len(info.Name)+len(info.Target))/3 + 250; bytes > pageBytes && i < len(names)-1 {
			r.Next = []byte(name)
			break
		}
	}
	return r, nil
}

func openFolder(s spot) (int, error) {
	fd, err := folder.Open(s.dir, s.name)
	if errors.Is(err, unix.ENOTDIR) {
		return -1, s.refuse(guest.ReasonInvalid, "is no folder")
	}
	if err != nil {
		return -1, s.fail(err)
	}
	return fd, nil
}

// smallest gives the first names after after, by name.
func smallest(fd int, after string, limit int) (names []string, more bool, err error) {
	var kept last
	seen := 0
	err = eachName(fd, func(name string) error {
		if seen++; seen > maxScan {
			return guest.Errorf(guest.ReasonSize, "the folder has more than %d entries", maxScan)
		}
		switch {
		case name <= after:
		case len(kept) < limit:
			heap.Push(&kept, name)
		default:
			more = true
			if name < kept[0] {
				kept[0] = name
				heap.Fix(&kept, 0)
			}
		}
		return nil
	})
	slices.Sort(kept)
	return slices.Compact([]string(kept)), more, err
}

// eachName calls fn for the names in a folder.
func eachName(fd int, fn func(string) error) error {
	buf := make([]byte, 32<<10)
	var names []string
	for {
		n, err := unix.ReadDirent(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if err := fn(name); err != nil {
				return err
			}
		}
	}
}

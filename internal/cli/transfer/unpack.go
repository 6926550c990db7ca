package transfer

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
	"strings"
)

// maxEntries bounds how many things one copy may bring.
const maxEntries = 1 << 20

// Unpack takes a tar stream that a sandbox made and puts what it holds under
// dir/name. The stream is hostile: whatever it says, nothing is written, linked
// or changed but beneath dir/name, no link that was there or came along is
// followed, and no existing file is written into.
func Unpack(r io.Reader, dir, name string, limit int64) (Copied, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Copied{}, err
	}
	defer root.Close()
	u := &unpacker{root: root, name: name, left: limit, modes: map[string]fs.FileMode{}}
	err = u.all(tar.NewReader(r))
	u.finish()
	return u.done, err
}

type unpacker struct {
	root  *os.Root
	name  string // what the first entry is called here
	base  string // what the stream calls it
	left  int64
	modes map[string]fs.FileMode // of folders, set when all is in place
	order []string
	done  Copied
}

func (u *unpacker) all(in *tar.Reader) error {
	for n := 0; ; n++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return errors.New("the sandbox sent nothing")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("what the sandbox sent can't be read: %w", err)
		}
		if n >= maxEntries {
			return fmt.Errorf("more than %d files: %w", maxEntries, ErrTooMuch)
		}
		if err := u.entry(h, in); err != nil {
			return err
		}
	}
}

// entry puts one entry into its place, or leaves it out.
func (u *unpacker) entry(h *tar.Header, in io.Reader) error {
	clean := path.Clean(h.Name)
	if !filepath.IsLocal(clean) || clean == "." || strings.ContainsRune(clean, 0) {
		u.done.skip(h.Name, "its name leads out of what is copied")
		return nil
	}
	first, rest, _ := strings.Cut(clean, "/")
	if u.base == "" {
		u.base = first
	}
	if first != u.base {
		u.done.skip(h.Name, "is not part of what was asked for")
		return nil
	}
	at := path.Join(u.name, rest)
	if why := u.blocked(at); why != "" {
		u.done.skip(h.Name, "%s", why)
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(h, at)
	case tar.TypeReg:
		return u.file(h, at, in)
	case tar.TypeSymlink:
		return u.symlink(h, at)
	case tar.TypeLink:
		return u.hardLink(h, at)
	}
	u.done.skip(h.Name, "is neither a file, a folder nor a link")
	return nil
}

// blocked says why nothing can be put at a path: something on the way to it is
// not a folder. Missing folders on the way are made.
func (u *unpacker) blocked(at string) string {
	parent := path.Dir(at)
	if parent == "." {
		return ""
	}
	way := ""
	for part := range strings.SplitSeq(parent, "/") {
		way = path.Join(way, part)
		info, err := u.root.Lstat(way)
		if errors.Is(err, fs.ErrNotExist) {
			if err := u.root.Mkdir(way, 0o755); err != nil {
				return reason(err)
			}
			continue
		}
		if err != nil {
			return reason(err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return "its way leads through a link"
		}
		if !info.IsDir() {
			return "its way leads through a file"
		}
	}
	return ""
}

func reason(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		return inner.Error()
	}
	return err.Error()
}

func (u *unpacker) folder(h *tar.Header, at string) error {
	if info, err := u.root.Lstat(at); err == nil && !info.IsDir() {
		u.done.skip(h.Name, "something that is not a folder is in its place")
		return nil
	}
	if err := u.root.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("folder %s: %w", at, err)
	}
	if _, known := u.modes[at]; !known {
		u.order = append(u.order, at)
	}
	// Others' permission to write is not taken over, nor are set-id bits.
	u.modes[at] = fs.FileMode(h.Mode) & 0o755
	return nil
}

// clear makes room for a file or a link. A folder is not replaced.
func (u *unpacker) clear(h *tar.Header, at string) bool {
	info, err := u.root.Lstat(at)
	if err != nil {
		return true
	}
	if info.IsDir() {
		u.done.skip(h.Name, "a folder is in its place")
		return false
	}
	if err := u.root.Remove(at); err != nil {
		u.done.skip(h.Name, "%s", reason(err))
		return false
	}
	return true
}

func (u *unpacker) file(h *tar.Header, at string, in io.Reader) error {
	if h.Size > u.left {
		return fmt.Errorf("%s has %d bytes: %w", h.Name, h.Size, ErrTooMuch)
	}
	if !u.clear(h, at) {
		return nil
	}
	f, err := u.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(h.Mode)&0o755)
	if err != nil {
		u.done.skip(h.Name, "%s", reason(err))
		return nil
	}
	n, err := io.Copy(f, in)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	u.left -= n
	u.done.Bytes += n
	if err != nil {
		_ = u.root.Remove(at) // half a file is none
		return fmt.Errorf("%s: %w", at, err)
	}
	u.done.Files++
	_ = u.root.Chtimes(at, h.ModTime, h.ModTime)
	return nil
}

func (u *unpacker) symlink(h *tar.Header, at string) error {
	target := h.Linkname
	end := path.Join(path.Dir(at), target)
	if path.IsAbs(target) || (end != u.name && !strings.HasPrefix(end, u.name+"/")) || strings.ContainsRune(target, 0) {
		u.done.skip(h.Name, "a link to %s, out of what is copied", target)
		return nil
	}
	if !u.clear(h, at) {
		return nil
	}
	if err := u.root.Symlink(target, at); err != nil {
		u.done.skip(h.Name, "%s", reason(err))
		return nil
	}
	u.done.Files++
	return nil
}

// hardLink links to a file that came in this stream, and to nothing else.
func (u *unpacker) hardLink(h *tar.Header, at string) error {
	clean := path.Clean(h.Linkname)
	first, rest, _ := strings.Cut(clean, "/")
	from := path.Join(u.name, rest)
	if !filepath.IsLocal(clean) || first != u.base || from == at || u.blocked(from) != "" {
		u.done.skip(h.Name, "a link to %s, out of what is copied", h.Linkname)
		return nil
	}
	if info, err := u.root.Lstat(from); err != nil || !info.Mode().IsRegular() {
		u.done.skip(h.Name, "a link to %s, which is not a file", h.Linkname)
		return nil
	}
	if !u.clear(h, at) {
		return nil
	}
	if err := u.root.Link(from, at); err != nil {
		u.done.skip(h.Name, "%s", reason(err))
		return nil
	}
	u.done.Files++
	return nil
}

// finish gives the folders their modes, the inner ones first.
func (u *unpacker) finish() {
	for _, v := range slices.Backward(u.order) {
		// What the owner can't enter could not be removed any more either.
		_ = u.root.Chmod(v, u.modes[v]|0o700)
	}
}

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
	"strings"

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
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{root: root, made: map[string]bool{}, buf: make([]byte, 128<<10)}
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
			return fmt.Errorf("entry %q: %w", header.Name, err)
		}
	}
	// Trailing zeros: the sender has an answer only when all was taken.
	if _, err := io.CopyBuffer(io.Discard, src, u.buf); err != nil {
		return err
	}
	return u.seal()
}

func malformed(err error) error {
	if errors.Is(err, ErrCut) {
		return err
	}
	return guest.Errorf(guest.ReasonInvalid, "not a tar stream: %v", err)
}

// unpacker writes entries.
type unpacker struct {
	root   *os.Root
	sealed []sealed // folders whose mode forbids writing into them, until the end
	made   map[string]bool
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
		return guest.Errorf(guest.ReasonInvalid, "entry %q would leave the folder", h.Name)
	}
	name = path.Clean(name)
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	if h.Typeflag == tar.TypeDir {
		return u.folder(name, mode)
	}
	if name == "." {
		return guest.Errorf(guest.ReasonInvalid, "entry %q stands for the folder and is none", h.Name)
	}
	if err := u.parents(path.Dir(name)); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(name, h, mode, body)
	case tar.TypeSymlink:
		// A link is data wherever it points to, as in any repository with a virtual
		// environment in it; nothing is ever written through one.
		if h.Linkname == "" || strings.IndexByte(h.Linkname, 0) >= 0 {
			return guest.Errorf(guest.ReasonInvalid, "entry %q is a link to nowhere: %q", h.Name, h.Linkname)
		}
		if err := u.clear(name); err != nil {
			return err
		}
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		if !inside(h.Linkname) {
			return guest.Errorf(guest.ReasonInvalid, "entry %q is a hard link that leaves the folder: %q", h.Name, h.Linkname)
		}
		if path.Clean(h.Linkname) == name {
			return guest.Errorf(guest.ReasonInvalid, "entry %q is a hard link to itself", h.Name)
		}
		if err := u.clear(name); err != nil {
			return err
		}
		return u.root.Link(h.Linkname, name)
	}
	return guest.Errorf(guest.ReasonInvalid, "entry %q is of a kind (%q) that is not taken: device, pipe or the like", h.Name, h.Typeflag)
}

// inside says whether a name stays in the folder, by its text.
func inside(name string) bool {
	return name != "" && strings.IndexByte(name, 0) < 0 && filepath.IsLocal(name)
}

// clear makes way for an entry. Folders are not replaced.
func (u *unpacker) clear(name string) error {
	info, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return guest.Errorf(guest.ReasonInvalid, "entry %q would replace a folder", name)
	}
	return u.root.Remove(name)
}

// parents makes the folders above an entry that the stream didn't name.
func (u *unpacker) parents(dir string) error {
	if dir == "." || u.made[dir] {
		return nil
	}
	if err := u.root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	u.remember(dir)
	return nil
}

// remember saves a look at the folders that most entries share.
func (u *unpacker) remember(dir string) {
	if len(u.made) > 4096 {
		clear(u.made)
	}
	u.made[dir] = true
}

func (u *unpacker) folder(name string, mode fs.FileMode) error {
	if err := u.root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	if mode&0o700 != 0o700 {
		u.sealed = append(u.sealed, sealed{name, mode})
		mode |= 0o700
	}
	if name == "." {
		return nil // How the folder itself is, its owner decided.
	}
	return u.root.Chmod(name, mode)
}

func (u *unpacker) file(name string, h *tar.Header, mode fs.FileMode, body io.Reader) error {
	if err := u.clear(name); err != nil {
		return err
	}
	out, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, body, u.buf)
	if err == nil {
		err = out.Chmod(mode)
	} else if errors.Is(err, io.ErrUnexpectedEOF) {
		err = guest.Errorf(guest.ReasonInvalid, "the tar stream ends within entry %q", h.Name)
	}
	if failed := out.Close(); err == nil {
		err = failed
	}
	if err == nil && guest.PlausibleTime(h.ModTime) {
		err = u.root.Chtimes(name, h.ModTime, h.ModTime)
	}
	return err
}

// seal gives read-only folders their mode, the inner ones first.
func (u *unpacker) seal() error {
	for _, v := range slices.Backward(u.sealed) {
		if v.name == "." {
			continue
		}
		if err := u.root.Chmod(v.name, v.mode); err != nil {
			return fmt.Errorf("entry %q: %w", v.name, err)
		}
	}
	return nil
}

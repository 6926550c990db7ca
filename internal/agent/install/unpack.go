package install

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The bounds of what is unpacked.
const (
	maxUnpacked = 2 << 30
	maxEntries  = 50_000
	maxDepth    = 40
)

// unpack unpacks the tarball beneath dir/package and makes the link dir/bin/NAME
// to the program. It returns the bytes written.
func (s *Shelf) unpack(ctx context.Context, dir string, from io.Reader, source catalog.Source) (int64, error) {
	if err := os.Mkdir(filepath.Join(dir, "package"), 0o755); err != nil {
		return 0, storage("the package can't be unpacked", err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "package"))
	if err != nil {
		return 0, storage("the package can't be unpacked", err)
	}
	defer root.Close()
	plain, err := gzip.NewReader(from)
	if err != nil {
		return 0, refused("is no gzip file", err)
	}
	u := unpacking{root: root}
	archive := tar.NewReader(io.LimitReader(plain, maxUnpacked+maxEntries*1024))
	for {
		if err := ctx.Err(); err != nil {
			return 0, task.Fail(task.InfraInternal, "the worker is stopping, or it took too long", err)
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, refused("can't be read", err)
		}
		if err := u.entry(h, archive); err != nil {
			return 0, err
		}
	}
	info, err := root.Stat(source.Program)
	if err != nil || !info.Mode().IsRegular() {
		return 0, refused("holds no program at "+source.Program, err)
	}
	return u.written, s.link(dir, root, source)
}

// link makes the program executable and gives it its fixed name.
func (s *Shelf) link(dir string, root *os.Root, source catalog.Source) error {
	name := ""
	for _, h := range catalog.All() {
		for _, other := range h.Source {
			if other.Package == source.Package {
				name = h.Name
			}
		}
	}
	if name == "" {
		return refused("is of no agent that is known", nil)
	}
	if err := root.Chmod(source.Program, 0o755); err != nil {
		return storage("the program can't be made executable", err)
	}
	bin := filepath.Join(dir, "bin")
	if err := errors.Join(os.Mkdir(bin, 0o755), os.Symlink("../package/"+source.Program, filepath.Join(bin, name))); err != nil {
		return storage("the program's link can't be made", err)
	}
	return nil
}

func refused(text string, err error) error {
	if err != nil {
		text += ": " + err.Error()
	}
	return task.Fail(task.InputInvalid, "the package "+text+"; nothing of it was kept", err)
}

type unpacking struct {
	root    *os.Root
	written int64
	entries int
}

// entry writes one file or folder; links and everything else are refused, since
// packages of the registry have none.
func (u *unpacking) entry(h *tar.Header, from io.Reader) error {
	if u.entries++; u.entries > maxEntries {
		return task.Fail(task.LimitSize, fmt.Sprintf("the package has more than %d files", maxEntries), nil)
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := inner(h.Name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if name == "." {
			return nil
		}
		if err := u.root.MkdirAll(name, 0o755); err != nil {
			return refused("can't be unpacked", err)
		}
		return nil
	case tar.TypeReg:
	default:
		return refused(fmt.Sprintf("holds %q, which is neither a file nor a folder", h.Name), nil)
	}
	if name == "." {
		return refused("holds a file without a name", nil)
	}
	if u.written += h.Size; h.Size < 0 || u.written > maxUnpacked {
		return task.Fail(task.LimitSize, "the package is larger than 2 GiB when it is unpacked", nil)
	}
	return u.file(name, h.FileInfo().Mode(), from)
}

func (u *unpacking) file(name string, mode fs.FileMode, from io.Reader) error {
	if dir := path.Dir(name); dir != "." {
		if err := u.root.MkdirAll(dir, 0o755); err != nil {
			return refused("can't be unpacked", err)
		}
	}
	perm := fs.FileMode(0o644)
	if mode&0o111 != 0 {
		perm = 0o755
	}
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return refused("can't be unpacked", err)
	}
	_, err = io.Copy(file, from)
	if err := errors.Join(err, file.Chmod(perm), file.Close()); err != nil {
		return refused("can't be unpacked", err)
	}
	return nil
}

// inner takes the first folder off a name, as npm does.
func inner(name string) (string, error) {
	clean := path.Clean(name)
	_, rest, ok := strings.Cut(clean, "/")
	switch {
	case !fs.ValidPath(clean), strings.Count(clean, "/") > maxDepth, strings.ContainsAny(clean, "\x00\\"):
		return "", refused(fmt.Sprintf("holds a file of the name %q", name), nil)
	case !ok:
		return ".", nil
	}
	return rest, nil
}

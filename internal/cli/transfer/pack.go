package transfer

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// Pack writes src as a tar stream, under name. Links below src are sent as
// links, never followed; what is neither file, folder nor link is left out.
func Pack(src string, info fs.FileInfo, name string, w io.Writer, done *Copied) error {
	out := tar.NewWriter(w)
	var err error
	if info.IsDir() {
		err = packFolder(src, name, out, done)
	} else {
		err = packFile(src, name, out, done)
	}
	if err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	return nil
}

func packFile(src, name string, out *tar.Writer, done *Copied) error {
	f, err := os.Open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	return packOpen(f, name, out, done)
}

// packOpen writes an open file. One that shrinks meanwhile is an error, one
// that grows is cut where it ended.
func packOpen(f *os.File, name string, out *tar.Writer, done *Copied) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		done.skip(name, "neither a file, a folder nor a link")
		return nil
	}
	if err := out.WriteHeader(header(info, name, tar.TypeReg)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	n, err := io.Copy(out, io.LimitReader(f, info.Size()))
	if err == nil && n < info.Size() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	done.Files++
	done.Bytes += n
	return nil
}

// header leaves out who owns the file here: in there it belongs to the agent.
func header(info fs.FileInfo, name string, kind byte) *tar.Header {
	h := &tar.Header{Typeflag: kind, Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	if kind == tar.TypeReg {
		h.Size = info.Size()
	}
	return h
}

func packFolder(src, name string, out *tar.Writer, done *Copied) error {
	root, err := os.OpenRoot(src)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(rel string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(src, rel), err)
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(src, rel), err)
		}
		to := path.Join(name, rel)
		switch {
		case d.IsDir():
			if to == "." {
				return nil
			}
			return out.WriteHeader(header(info, to+"/", tar.TypeDir))
		case d.Type()&fs.ModeSymlink != 0:
			target, err := root.Readlink(rel)
			if err != nil {
				return fmt.Errorf("%s: %w", filepath.Join(src, rel), err)
			}
			h := header(info, to, tar.TypeSymlink)
			h.Linkname = target
			done.Files++
			return out.WriteHeader(h)
		case d.Type().IsRegular():
			// Not a link, and not a pipe that it was swapped for meanwhile.
			f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
			if err != nil {
				return fmt.Errorf("%s: %w", filepath.Join(src, rel), err)
			}
			defer f.Close()
			return packOpen(f, to, out, done)
		}
		done.skip(to, "neither a file, a folder nor a link")
		return nil
	})
}

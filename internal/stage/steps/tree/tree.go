// Package tree reads what is in a sandbox, as the tar stream that the sandbox gives: a
// file, the repository of a workspace, and all of a workspace, to where git makes the patch. The stream is a sandbox's word: names,
// links, modes and sizes are its own choice.
package tree

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// MaxEntries bounds how many files a workspace may have.
const MaxEntries = 5_000_000

// Copy copies a workspace's tar stream beneath tree/, hostile as it is:
// the first component is replaced, what is or lies beneath a .git is left out,
// only regular files, folders and links go through, and modes keep nothing but
// what git keeps.
func Copy(from io.Reader, to *tar.Writer, limit int64) error {
	archive := tar.NewReader(bufio.NewReaderSize(from, 64<<10))
	buf := make([]byte, 32<<10) // for all files: a tree has many
	var bytes int64
	for entries := 0; ; entries++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		bytes += header.Size
		if bytes > limit || entries > MaxEntries {
			return task.Fail(task.LimitSize, "the workspace is larger than may be exported", nil)
		}
		clean, ok := entry(header)
		if !ok {
			continue
		}
		if err := to.WriteHeader(clean); err != nil {
			return err
		}
		if _, err := io.CopyBuffer(to, archive, buf); err != nil {
			return err
		}
	}
}

// entry is the entry to write for header, or false to leave it out.
func entry(header *tar.Header) (*tar.Header, bool) {
	name, ok := place(header.Name)
	if !ok {
		return nil, false
	}
	clean := &tar.Header{Typeflag: header.Typeflag, Name: name, Mode: 0o644}
	switch header.Typeflag {
	case tar.TypeReg:
		clean.Size = header.Size
		if header.Mode&0o100 != 0 {
			clean.Mode = 0o755
		}
	case tar.TypeDir:
		clean.Mode, clean.Name = 0o755, name+"/"
	case tar.TypeSymlink:
		clean.Linkname = header.Linkname
	case tar.TypeLink:
		if clean.Linkname, ok = place(header.Linkname); !ok {
			return nil, false
		}
	default:
		return nil, false
	}
	return clean, true
}

// place moves a name of the workspace's tar beneath tree/.
func place(name string) (string, bool) {
	parts := strings.Split(strings.TrimSuffix(name, "/"), "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || strings.EqualFold(p, ".git") {
			return "", false
		}
	}
	parts[0] = "tree"
	return strings.Join(parts, "/"), true
}

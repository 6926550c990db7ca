package tree

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"path"

	"github.com/cofferdam/cofferdam/internal/task"
)

// sandboxes gives files of a sandbox as a tar stream. Implemented by the fleet.
type sandboxes interface {
	Get(ctx context.Context, id, path string, exclude []string) (io.ReadCloser, error)
}

// File gives the bytes of one regular file of a sandbox to take.
func File(ctx context.Context, fleet sandboxes, box, file string, take func(io.Reader) error) error {
	from, err := fleet.Get(ctx, box, file, nil)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	archive := tar.NewReader(from)
	header, err := archive.Next()
	if err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return task.Fail(task.ExportFailed, path.Base(file)+" is not a regular file", nil)
	}
	return take(archive)
}

// Repository looks at the agent's .git without its bulk and says what is wrong
// with it; empty: nothing.
func Repository(ctx context.Context, fleet sandboxes, agent string) (wrong string, err error) {
	from, err := fleet.Get(ctx, agent, "/workspace/.git", []string{
		"objects", "refs", "logs", "hooks", "lfs", "modules", "worktrees", "index", "packed-refs",
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }() // it was only read
	archive := tar.NewReader(from)
	for entries := range MaxEntries {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return "has no HEAD", nil
		case err != nil:
			return "", err
		case entries == 0 && header.Typeflag != tar.TypeDir:
			return "was replaced by something that is no folder", nil
		case entries > 0 && path.Clean(header.Name) == ".git/HEAD":
			if header.Typeflag != tar.TypeReg {
				return "has a HEAD that is no file", nil
			}
			return "", nil
		}
	}
	return "has more files than may be exported", nil
}

package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// block is the size of an image's blocks, in bytes.
const block = 4096

// scan is what a walk over a source found.
type scan struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"` // about what the image will take, in bytes
}

// walk reads the names and attributes of everything below a source. What
// vanishes meanwhile is as if it had not been there.
func walk(ctx context.Context, root string) (scan, error) {
	h := sha256.New()
	var size int64
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && path != root {
				return nil
			}
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) && path != root {
			return nil
		}
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(path, root)
		size += 128 + int64(len(entry.Name()))
		if !info.IsDir() {
			size += (info.Size() + block - 1) / block * block
		}
		return note(h, rel, info)
	})
	if err != nil {
		return scan{}, fmt.Errorf("scan %s: %w", root, err)
	}
	return scan{Digest: hex.EncodeToString(h.Sum(nil)[:16]), Size: size + size/50}, nil
}

// note adds a file's attributes to a hash. The time of change is part of it, since
// a modification time can be set; a folder's times say nothing that its entries
// don't.
func note(h hash.Hash, name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: its attributes can't be read", name)
	}
	size, modified, changed := info.Size(), info.ModTime().UnixNano(), stat.Ctim.Nano()
	if info.IsDir() {
		size, modified, changed = 0, 0, 0
	}
	_, err := fmt.Fprintf(h, "%q %v %d %d %d %d %d\n", name, info.Mode(), stat.Uid, stat.Gid, size, modified, changed)
	return err
}

// telling are places below a source whose time changes when software comes or
// goes; of those in files, each file counts.
var (
	telling = []string{
		"", "*", "local/*", "*/bin", "lib/node_modules", "local/lib/node_modules", "lib/python3/dist-packages",
		"local/lib/python3*/*-packages", "local/go/VERSION",
	}
	tellingFiles = []string{"local/bin/*", "local/sbin/*"}
)

// stamp is the source's stamp; records are the package managers' databases.
func stamp(root string, records []string) string {
	h := sha256.New()
	add := func(path string) {
		info, err := os.Lstat(path)
		if err != nil {
			fmt.Fprintln(h, path, "absent")
			return
		}
		stat, _ := info.Sys().(*syscall.Stat_t) // Always, on Linux.
		fmt.Fprintln(h, path, info.Mode(), info.Size(), stat.Ino, stat.Mtim, stat.Ctim)
	}
	for i, pattern := range append(append([]string{}, telling...), tellingFiles...) {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // The patterns are well formed.
		for _, path := range found {
			if i >= len(telling) || isDir(path) {
				add(path)
			}
		}
	}
	for _, record := range records {
		add(record)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

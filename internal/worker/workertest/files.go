package workertest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

var _ sandbox.Files = (*Local)(nil)

// beneath opens the sandbox's folder and gives a path's name in it.
func (l *Local) beneath(id string, path []byte) (*os.Root, string, error) {
	if _, err := l.read(id); err != nil {
		return nil, "", err
	}
	name := strings.TrimPrefix(string(path), "/")
	if filepath.Clean(name) != name || !filepath.IsLocal(name) || name == string(path) {
		return nil, "", task.Fail(task.InputInvalid, fmt.Sprintf("path %q is not absolute and clean", path), nil)
	}
	root, err := os.OpenRoot(filepath.Join(l.box(id), "files"))
	return root, name, err
}

func failure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return task.Fail(task.InputNotFound, err.Error(), nil)
	case errors.Is(err, fs.ErrExist):
		return task.Fail(task.InputConflict, err.Error(), nil)
	}
	return task.Fail(task.InputInvalid, err.Error(), nil)
}

func infoOf(root *os.Root, name string) (sandbox.FileInfo, error) {
	st, err := root.Lstat(name)
	if err != nil {
		return sandbox.FileInfo{}, failure(err)
	}
	info := sandbox.FileInfo{Name: []byte(filepath.Base(name)), Kind: "file", Size: st.Size(), Mode: uint32(st.Mode().Perm()), Links: 1, Modified: st.ModTime().UTC()}
	switch {
	case st.IsDir():
		info.Kind = "folder"
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return info, failure(err)
		}
		info.Kind, info.Target = "link", []byte(target)
	}
	return info, nil
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// once notes a key and says whether it is new: an effect is had once.
func (l *Local) once(id, key string) (bool, error) {
	if key == "" {
		return false, task.Fail(task.InputInvalid, "an effect without a key", nil)
	}
	file, err := os.OpenFile(filepath.Join(l.box(id), "key-"+key), os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, file.Close()
}

// DoFile implements sandbox.Files.
func (l *Local) DoFile(_ context.Context, id string, op sandbox.FileOp) (sandbox.FileResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	root, name, err := l.beneath(id, op.Path)
	if err != nil {
		return sandbox.FileResult{}, err
	}
	defer root.Close()
	if op.Kind == sandbox.FileList {
		return list(root, name, op)
	}
	if op.Kind != sandbox.FileStat {
		if err := l.change(root, id, name, op); err != nil || op.Kind == sandbox.FileRemove {
			return sandbox.FileResult{}, err
		}
	}
	if op.Kind == sandbox.FileRename {
		name = strings.TrimPrefix(string(op.To), "/")
	}
	info, err := infoOf(root, name)
	if err == nil && op.Digest {
		data, rerr := root.ReadFile(name)
		info.SHA256, err = sum(data), failure(rerr)
	}
	return sandbox.FileResult{Info: &info}, err
}

func (l *Local) change(root *os.Root, id, name string, op sandbox.FileOp) error {
	fresh, err := l.once(id, op.Key)
	if err != nil || !fresh {
		return err
	}
	mode := fs.FileMode(0o755)
	if op.Mode != nil {
		mode = fs.FileMode(*op.Mode)
	}
	switch op.Kind {
	case sandbox.FileRename:
		to := strings.TrimPrefix(string(op.To), "/")
		if _, err := root.Lstat(to); err == nil && op.NoReplace {
			return task.Fail(task.InputConflict, to+" is there already", nil)
		}
		return failure(root.Rename(name, to))
	case sandbox.FileRemove:
		if op.Recursive {
			return failure(root.RemoveAll(name))
		}
		return failure(root.Remove(name))
	case sandbox.FileMkdir:
		if op.Recursive {
			return failure(root.MkdirAll(name, mode))
		}
		return failure(root.Mkdir(name, mode))
	case sandbox.FileChmod:
		return failure(root.Chmod(name, mode))
	}
	return task.Fail(task.InputInvalid, fmt.Sprintf("operation %q", op.Kind), nil)
}

func list(root *os.Root, name string, op sandbox.FileOp) (sandbox.FileResult, error) {
	dir, err := root.Open(name)
	if err != nil {
		return sandbox.FileResult{}, failure(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return sandbox.FileResult{}, failure(err)
	}
	slices.Sort(names)
	var r sandbox.FileResult
	for _, n := range names {
		if n <= string(op.After) {
			continue
		}
		if len(r.Entries) == cmp.Or(op.Limit, 1000) {
			r.Next = r.Entries[len(r.Entries)-1].Name
			break
		}
		info, err := infoOf(root, filepath.Join(name, n))
		if err != nil {
			return r, err
		}
		r.Entries = append(r.Entries, info)
	}
	return r, nil
}

// ReadFile implements sandbox.Files.
func (l *Local) ReadFile(_ context.Context, id string, r sandbox.FileRead) (sandbox.FileHeader, io.ReadCloser, error) {
	root, name, err := l.beneath(id, r.Path)
	if err != nil {
		return sandbox.FileHeader{}, nil, err
	}
	defer root.Close()
	info, err := infoOf(root, name)
	if err == nil && info.Kind != "file" {
		err = task.Fail(task.InputInvalid, name+" is no file", nil)
	}
	if err != nil {
		return sandbox.FileHeader{}, nil, err
	}
	data, err := root.ReadFile(name)
	if err != nil {
		return sandbox.FileHeader{}, nil, failure(err)
	}
	if r.Digest {
		info.SHA256 = sum(data)
	}
	data = data[min(r.Offset, int64(len(data))):]
	if r.Length >= 0 {
		data = data[:min(r.Length, int64(len(data)))]
	}
	return sandbox.FileHeader{Info: info, Offset: r.Offset, Length: int64(len(data))}, io.NopCloser(bytes.NewReader(data)), nil
}

// WriteFile implements sandbox.Files.
func (l *Local) WriteFile(_ context.Context, id string, w sandbox.FileWrite, in io.Reader) (sandbox.FileInfo, error) {
	root, name, err := l.beneath(id, w.Path)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	defer root.Close()
	data, err := io.ReadAll(in)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if int64(len(data)) != w.Size || sum(data) != w.SHA256 {
		return sandbox.FileInfo{}, task.Fail(task.InputInvalid, "other bytes came than were announced", nil)
	}
	fresh, err := l.once(id, w.Key)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	if fresh {
		old, oerr := root.ReadFile(name)
		if oerr == nil && w.Create || w.IfSHA256 != "" && (oerr != nil || sum(old) != w.IfSHA256) {
			return sandbox.FileInfo{}, task.Fail(task.InputConflict, name+" has sha256 "+sum(old), nil)
		}
		mode := fs.FileMode(0o644)
		if w.Mode != nil {
			mode = fs.FileMode(*w.Mode)
		}
		if err := root.WriteFile(name, data, mode); err != nil {
			return sandbox.FileInfo{}, failure(err)
		}
	}
	info, err := infoOf(root, name)
	info.SHA256 = w.SHA256
	return info, err
}

package seal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cofferdam/cofferdam/internal/task"
)

// nextOf is the file of the key that waits to take the place of another.
func nextOf(path string) string { return path + ".new" }

// Next makes the key that will take the place of the one at path. One that waits
// already, of a rotation that came to nothing, is made anew.
func Next(path string) (*Key, error) {
	if err := os.Remove(nextOf(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return Make(nextOf(path))
}

// Take puts the next key in the place of the one at path.
func Take(path string) error {
	if err := os.Rename(nextOf(path), path); err != nil {
		return err
	}
	return syncFolder(path)
}

// Settle ends a rotation that was broken off: the next key takes its place when
// done says that what was sealed is sealed under it, and is removed when not.
// Call it before the key at path is read. Errors are *task.Failure.
func Settle(ctx context.Context, path string, done func(ctx context.Context, id string) (bool, error)) error {
	next, err := Read(nextOf(path))
	if errors.Is(err, ErrNoKey) {
		return nil
	}
	if err != nil {
		return task.Fail(task.InfraVault, fmt.Sprintf("%s is of a rotation of the vault's key that was broken off, and can't be read: %s; put it back from a backup, or remove it if vault.key opens every credential (cofferdam doctor)",
			filepath.Base(nextOf(path)), reasonFor(err)), err)
	}
	taken, err := done(ctx, next.ID())
	if err != nil {
		return err
	}
	if taken {
		err = Take(path)
	} else {
		err = errors.Join(os.Remove(nextOf(path)), syncFolder(path))
	}
	if err != nil {
		return task.Fail(task.InfraStorage, "the rotation of the vault's key that was broken off can't be ended: "+reasonFor(err), err)
	}
	return nil
}

// reasonFor is the error without the path, which is nobody's business outside.
func reasonFor(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// syncFolder makes what happened to names beside path outlast a power cut.
func syncFolder(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

package folder

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// The times of locks that are folders, which every holder keeps.
const (
	touched = 5 * time.Second  // how often who holds one touches it
	stale   = 60 * time.Second // one that was not touched for so long is left over
	retry   = 150 * time.Millisecond
)

// ErrBusy says that another program holds a lock.
var ErrBusy = errors.New("another program holds its lock, and has not let go in time")

// Lock is one that is held, until Free.
type Lock struct{ free []func() }

// Free lets go of it, and of all that was added to it.
func (l *Lock) Free() {
	for i := len(l.free) - 1; i >= 0; i-- {
		l.free[i]()
	}
	l.free = nil
}

// wait calls try until it says that it is done, or ctx has ended.
func wait(ctx context.Context, try func() (bool, error)) error {
	for {
		done, err := try()
		if done || err != nil {
			return err
		}
		timer := time.NewTimer(retry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ErrBusy
		}
	}
}

// Flock locks a file of the folder as flock(2) does. The file is made when it is
// not there.
func (f *Folder) Flock(ctx context.Context, l *Lock, name string) error {
	file, err := f.root.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return reason(err)
	}
	if err = f.give(file); err == nil {
		err = wait(ctx, func() (bool, error) {
			err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
			if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
				return false, nil
			}
			return err == nil, err
		})
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.free = append(l.free, func() { _ = file.Close() }) // which unlocks it
	return nil
}

// Hold takes a lock that is a folder in this one.
func (f *Folder) Hold(ctx context.Context, l *Lock, name string) error {
	return f.hold(ctx, l, f.root, name)
}

// HoldBeside takes the lock that is a folder beside this one, of its own name with
// an ending.
func (f *Folder) HoldBeside(ctx context.Context, l *Lock, ending string) error {
	return f.hold(ctx, l, f.above, f.name+ending)
}

func (f *Folder) hold(ctx context.Context, l *Lock, in *os.Root, name string) error {
	if err := wait(ctx, func() (bool, error) { return f.take(in, name) }); err != nil {
		return err
	}
	done, over := make(chan struct{}), sync.WaitGroup{}
	over.Go(func() { keep(in, name, done) })
	l.free = append(l.free, func() {
		close(done)
		over.Wait()
		_ = in.Remove(name) // one that was taken over is gone, or is another's and not ours to judge
	})
	return nil
}

// take makes the folder that is the lock, unless it is there. One that is left
// over is removed first.
func (f *Folder) take(in *os.Root, name string) (bool, error) {
	err := in.Mkdir(name, 0o755)
	if err == nil {
		if os.Geteuid() == f.uid {
			return true, nil
		}
		if err = in.Lchown(name, f.uid, f.gid); err != nil {
			_ = in.Remove(name) // the error is told
			return false, reason(err)
		}
		return true, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return false, reason(err)
	}
	is, err := in.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // let go just now
	case err != nil:
		return false, reason(err)
	case !is.IsDir():
		return false, errors.New("has something else where its lock is")
	case time.Since(is.ModTime()) < stale:
		return false, nil
	}
	if err := in.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, reason(err)
	}
	return false, nil
}

// keep touches a lock that is a folder until done.
func keep(in *os.Root, name string, done <-chan struct{}) {
	ticker := time.NewTicker(touched)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-ticker.C:
			_ = in.Chtimes(name, now, now) // what was taken over can't be kept
		}
	}
}

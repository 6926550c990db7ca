package rootfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reserve is the disk space that an image must leave free.
const reserve = 2 << 30

// errChanged says that a source changed while its image was made.
var errChanged = errors.New("it changed meanwhile")

// halfPrefix begins the names of images that are being made, and halfScan those
// of scans that are being written.
const (
	halfPrefix = ".new-"
	halfScan   = ".scan-"
)

// lockBuilding waits until no other process makes an image in the folder.
func (s *Store) lockBuilding(ctx context.Context) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(s.cfg.Dir, "building"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			file.Close()
			return nil, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		}
	}
}

// build makes the image of a source that has been scanned, or finds that another
// process made it, and takes it before anybody could think that it is not used.
func (s *Store) build(ctx context.Context, source Source, now string, found scan) error {
	s.say(source.Name, "waits for another image to be made", "", 0)
	lock, err := s.lockBuilding(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	path := s.path(source.Name, found.Digest)
	if checkImage(path) == nil {
		return s.take(source, now, found)
	}
	if err := s.room(found.Size); err != nil {
		return err
	}
	half, err := os.CreateTemp(s.cfg.Dir, halfPrefix+source.Name+"-")
	if err != nil {
		return err
	}
	half.Close()
	defer os.Remove(half.Name())
	s.say(source.Name, "is being made", half.Name(), found.Size)
	if err := s.mkfs(ctx, half.Name(), source.Path); err != nil {
		return err
	}
	if err := checkImage(half.Name()); err != nil {
		return err
	}
	s.say(source.Name, "is being checked", "", 0)
	again, err := walk(ctx, source.Path)
	if err != nil {
		return err
	}
	if again.Digest != found.Digest {
		return errChanged
	}
	if err := s.cfg.Probe(ctx, Image{Name: source.Name, Path: half.Name()}); err != nil {
		return fmt.Errorf("no program could be run from it: %w", err)
	}
	if err := publish(half.Name(), path); err != nil {
		return err
	}
	return s.take(source, now, found)
}

// room refuses an image that would fill the disk.
func (s *Store) room(need int64) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(s.cfg.Dir, &stat); err != nil {
		return &os.PathError{Op: "statfs", Path: s.cfg.Dir, Err: err}
	}
	if free := int64(stat.Bavail) * stat.Bsize; free < need+reserve {
		return fmt.Errorf("it needs %d MB and must leave %d MB, but only %d MB are free for %s; free some space",
			need>>20, int64(reserve)>>20, free>>20, s.cfg.Dir)
	}
	return nil
}

// mkfs runs the program that makes images, behind everything else that wants a
// processor. It ends when we do.
func (s *Store) mkfs(ctx context.Context, image, source string) error {
	program, err := exec.LookPath(s.cfg.Mkfs)
	if err != nil {
		return fmt.Errorf("%s is not installed (%w); install the package erofs-utils", s.cfg.Mkfs, err)
	}
	// Files have whole blocks of their own (noinline_data), since the sandbox's
	// kernel maps them. No extended attributes: they would only grow it.
	cmd := exec.CommandContext(ctx, program, "-d1", "-x-1", "-E", "noinline_data", image, source)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Env = []string{}
	// The signal is sent when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, 15); err != nil {
		s.cfg.Logger.Debug("root image: lower the priority", "error", err)
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		text := strings.TrimSpace(said.String())
		return fmt.Errorf("%s failed (%w): %s", s.cfg.Mkfs, err, text[max(0, len(text)-500):])
	}
	return nil
}

// magic is at byte 1024 of an EROFS image.
const magic = 0xE0F5E1E2

// checkImage looks whether the file is an EROFS image.
func checkImage(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var head [4]byte
	if _, err := file.ReadAt(head[:], 1024); err != nil {
		return fmt.Errorf("%s: it is no image: %w", path, err)
	}
	if got := binary.LittleEndian.Uint32(head[:]); got != magic {
		return fmt.Errorf("%s: it is no image: it begins with %#x", path, got)
	}
	return nil
}

// publish gives a whole image its name, so that a power cut leaves a whole one or
// none.
func publish(half, path string) error {
	file, err := os.OpenFile(half, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := errors.Join(file.Chmod(0o400), file.Sync()); err != nil {
		return err
	}
	if err := os.Rename(half, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// prune removes images that nobody has locked.
func (s *Store) prune() error {
	return s.whileIdle(func(path string) error {
		if strings.HasSuffix(path, ".erofs") {
			return removeUnused(path)
		}
		return nil
	})
}

// removeHalves removes what builders left that were killed.
func (s *Store) removeHalves() error {
	return s.whileIdle(func(path string) error {
		name := filepath.Base(path)
		if strings.HasPrefix(name, halfPrefix) {
			return os.Remove(path)
		}
		// Scans are written without the lock; one that is old is nobody's.
		info, err := os.Stat(path)
		if strings.HasPrefix(name, halfScan) && err == nil && time.Since(info.ModTime()) > RescanPace {
			return os.Remove(path)
		}
		return nil
	})
}

// whileIdle calls do for each file of the folder while nobody makes an image, and
// not at all when somebody does: whoever makes one looks afterwards.
func (s *Store) whileIdle(do func(path string) error) error {
	lock, err := os.OpenFile(filepath.Join(s.cfg.Dir, "building"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	var failed error
	for _, entry := range entries {
		if err := do(filepath.Join(s.cfg.Dir, entry.Name())); !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// removeUnused removes an image unless somebody has locked it.
func removeUnused(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	if sameFile(file, path) != nil {
		return nil // Another removed it, and made it anew perhaps.
	}
	return os.Remove(path)
}

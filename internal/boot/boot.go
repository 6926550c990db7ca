// Package boot is what every daemon does before and when it is ready: claim
// its folder of the installation, so that there is one of it, and tell who it
// is in boot.json.
//
// Words. A boot id is random and made once per start of a daemon; another id
// means another process, however the numbers of processes repeat.
package boot

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Record is boot.json.
type Record struct {
	Program   string    `json:"program"`
	PID       int       `json:"pid"`
	Boot      string    `json:"boot"`
	StartedAt time.Time `json:"startedAt"`
	Address   string    `json:"address"` // where it is reached: a URL or the path of a socket; empty: nowhere
}

// NewID returns a new boot id: 128 random bits in hex.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand since Go 1.24)
	return hex.EncodeToString(b[:])
}

// Claim makes the folder with mode 0700 when it is absent and holds its lock
// until the returned file is closed or the process ends. A folder that another
// process holds is an error that says so.
func Claim(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: another process of this installation holds it; stop it first (cofferdam down)", dir)
		}
		return nil, fmt.Errorf("%s: lock: %w", dir, err)
	}
	return lock, nil
}

// Announce writes boot.json into the daemon's folder, in place of an earlier
// one. Call it when the daemon answers, not before.
func Announce(dir, program, id, address string) error {
	text, err := json.MarshalIndent(Record{Program: program, PID: os.Getpid(), Boot: id, StartedAt: time.Now().UTC(), Address: address}, "", "  ")
	if err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(dir, "boot.json"), append(text, '\n')); err != nil {
		return fmt.Errorf("boot record: %w", err)
	}
	return nil
}

// WriteFile puts data in place of the file with mode 0600, whole or not at all,
// also over a power cut.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

package agent

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent/trust"
)

// configure sets the sandbox up; doing it again changes nothing.
func (a *Agent) configure(cfg guest.Config) *guest.Error {
	for _, folder := range []struct {
		path  string
		mode  fs.FileMode
		owner int
	}{
		{"/workspace", 0o755, agentUID}, {"/home/agent", 0o755, agentUID}, {"/tmp", 0o777 | fs.ModeSticky, 0},
	} {
		if err := a.folder(folder.path, folder.mode, folder.owner); err != nil {
			return guest.Errorf(guest.ReasonInternal, "set up %s: %v", folder.path, err)
		}
	}
	if err := a.identify(); err != nil {
		return guest.Errorf(guest.ReasonInternal, "give the sandbox an id of its own: %v", err)
	}
	if len(cfg.AuthorityPEM) > 0 {
		if err := trust.Install(a.opts.Root, cfg.AuthorityPEM); err != nil {
			return guest.Errorf(guest.ReasonInternal, "trust the sandbox's authority: %v", err)
		}
	}
	if cfg.Hostname != "" {
		if name, err := os.Hostname(); err != nil || name != cfg.Hostname {
			if err := unix.Sethostname([]byte(cfg.Hostname)); err != nil {
				return guest.Errorf(guest.ReasonInternal, "set the host name: %v", err)
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.env = baseEnv(cfg.BaseEnv, len(cfg.AuthorityPEM) > 0)
	return nil
}

// machineID is the id by which programs tell machines apart. It lies in the
// sandbox's own layer, so that no two sandboxes have the same and none the host's.
const machineID = "/etc/machine-id"

// idMark stands beside it once the sandbox has its own.
const idMark = "/etc/cofferdam/machine-id"

func (a *Agent) identify() error {
	path, mark := filepath.Join(a.opts.Root, machineID), filepath.Join(a.opts.Root, idMark)
	if _, err := os.Lstat(mark); err == nil {
		return nil
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(mark), 0o755); err != nil {
		return err
	}
	text := []byte(hex.EncodeToString(id[:]) + "\n")
	return errors.Join(replace(path, text), replace(mark, text))
}

// folder makes a folder where there is none, and leaves one that is as it is.
func (a *Agent) folder(path string, mode fs.FileMode, owner int) error {
	path = filepath.Join(a.opts.Root, path)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if !a.opts.SameUser {
		if err := os.Chown(path, owner, owner); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode) // Beyond the umask.
}

// replace writes a file in one step.
func replace(path string, text []byte) error {
	half := path + ".new"
	if err := os.WriteFile(half, text, 0o644); err != nil { // everybody inside reads it
		return err
	}
	if err := os.Rename(half, path); err != nil {
		return fmt.Errorf("replace: %w", errors.Join(err, os.Remove(half)))
	}
	return nil
}

package supervise

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// DefaultData is the data folder of an installation that names none.
const DefaultData = "/var/lib/cofferdam"

// Layout says where the parts of an installation are.
type Layout struct{ Data string }

// NewLayout returns the layout of a data folder; dir may be relative.
func NewLayout(dir string) (Layout, error) {
	if dir == "" {
		dir = DefaultData
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Layout{}, faultOf(CodeInvalid, err, "--data %s", dir)
	}
	if abs == "/" {
		return Layout{}, fault(CodeInvalid, "--data /: the root folder can't be a data folder; give one of its own, such as %s", DefaultData)
	}
	return Layout{Data: abs}, nil
}

func (l Layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.Data}, parts...)...)
}

// ClientFile is the command line's configuration beside the data.
func (l Layout) ClientFile() string { return l.path("client.json") }

// LogFile is where a program's output goes; name is such as "cofferdamd".
func (l Layout) LogFile(name string) string { return l.path("log", name+".log") }

func (l Layout) lockFile() string          { return l.path("up.lock") }
func (l Layout) record(name string) string { return l.path("run", name+".json") }
func (l Layout) stopMarker() string        { return l.path("worker", "stop") }
func (l Layout) operatorPolicy() string    { return l.path("operator.yaml") }
func (l Layout) prices() string            { return l.path("prices.txt") }
func (l Layout) roots() string             { return l.path("roots.pem") }
func (l Layout) workerToken() string       { return l.path("worker", "token") }
func (l Layout) gatewayToken() string      { return l.path("gateway", "control.token") }

// owner is who a file belongs to.
type owner struct{ uid, gid int }

// makeFolder makes a folder that belongs to who, or checks one that exists.
func makeFolder(path string, mode fs.FileMode, who owner) error {
	err := os.Mkdir(path, mode)
	if err == nil {
		if err := os.Chown(path, who.uid, who.gid); err != nil {
			return faultOf(CodeStorage, err, "folder %s: can't give it its owner", path)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return faultOf(CodeStorage, err, "folder %s: can't make it", path)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return faultOf(CodeStorage, err, "folder %s", path)
	}
	if !info.IsDir() {
		return fault(CodeMachine, "%s is in the way: it is not a folder; move it away", path)
	}
	if have := int(info.Sys().(*syscall.Stat_t).Uid); have != who.uid {
		return fault(CodeMachine, "folder %s belongs to uid %d, not to uid %d; start with the users of the first time, or give it over with chown -R %d:%d", path, have, who.uid, who.uid, who.gid)
	}
	if info.Mode().Perm() != mode {
		if err := os.Chmod(path, mode); err != nil {
			return faultOf(CodeStorage, err, "folder %s: can't set its mode", path)
		}
	}
	return nil
}

// makeFolders makes every folder of the installation.
func (l Layout) makeFolders(u users) error {
	if err := os.MkdirAll(filepath.Dir(l.Data), 0o755); err != nil {
		return faultOf(CodeStorage, err, "data folder %s: can't make the folders above it", l.Data)
	}
	root := owner{}
	for _, f := range []struct {
		path string
		mode fs.FileMode
		who  owner
	}{
		// Others may pass through to what is theirs, and see nothing.
		{l.Data, 0o711, root},
		{l.path("log"), 0o700, root},
		{l.path("run"), 0o755, root},
		{l.path("worker"), 0o700, root},
		{l.path("engine"), 0o700, u.service},
		{l.path("cofferdamd"), 0o700, u.service},
		{l.path("gateway"), 0o700, u.gateway},
	} {
		if err := makeFolder(f.path, f.mode, f.who); err != nil {
			return err
		}
	}
	return nil
}

// writeFile replaces a file at once: readers see the old bytes or the new ones.
func writeFile(path string, data []byte, mode fs.FileMode, who owner) error {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return faultOf(CodeStorage, err, "write %s", path)
	}
	defer dir.Close()
	if err := writeIn(dir, filepath.Base(path), data, mode, who); err != nil {
		return faultOf(CodeStorage, err, "write %s", path)
	}
	return nil
}

// writeIn is writeFile beneath an opened folder; name never leads out of it.
func writeIn(dir *os.Root, name string, data []byte, mode fs.FileMode, who owner) error {
	temp := name + ".new-" + randomHex(6)
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && os.Geteuid() == 0 {
		err = f.Chown(who.uid, who.gid)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = dir.Rename(temp, name)
	}
	if err != nil {
		_ = dir.Remove(temp)
	}
	return err
}

// readOwned reads a small file beneath a folder that another user owns: no
// link out of the folder is followed and nothing but a regular file is opened.
func (l Layout) readOwned(folder, name string) ([]byte, error) {
	dir, err := os.OpenRoot(l.path(folder))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > 64<<10 {
		return nil, fmt.Errorf("%s: not a small regular file", l.path(folder, name))
	}
	return io.ReadAll(io.LimitReader(f, 64<<10))
}

// Boot is what a program writes when it is ready.
type Boot struct {
	Program   string    `json:"program"`
	PID       int       `json:"pid"`
	Boot      string    `json:"boot"`
	StartedAt time.Time `json:"startedAt"`
	Address   string    `json:"address"`
	Inner     []string  `json:"inner"` // further addresses that it listens on for itself
}

func (l Layout) boot(folder string) (Boot, error) {
	var b Boot
	data, err := l.readOwned(folder, "boot.json")
	if err != nil {
		return b, err
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return b, fmt.Errorf("%s: %w", l.path(folder, "boot.json"), err)
	}
	return b, nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand since Go 1.24)
	return hex.EncodeToString(b)
}

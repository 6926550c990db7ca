package lower

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// agentUID is the sandbox's own user, agent.
const agentUID = 1000

// Guest is where the first process's program lies inside. Only the
// sandbox's root can read it.
const Guest = "/.cofferdam/guest"

// lowerVersion is part of the lower folder's name: raise it when this file makes
// something else of the same inputs.
const lowerVersion = "3"

// systemDirs may be links into /usr or folders of their own, as the host has it.
var systemDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// ownDirs are made in every lower folder.
var ownDirs = []struct {
	path  string
	mode  os.FileMode
	owner int
}{
	{"usr", 0o755, 0},
	{"opt", 0o755, 0},
	{"etc", 0o755, 0},
	{"proc", 0o555, 0},
	{"sys", 0o555, 0},
	{"dev", 0o755, 0},
	{"run", 0o755, 0},
	{"run/lock", 0o777 | os.ModeSticky, 0},
	{"root", 0o700, 0},
	{"var", 0o755, 0},
	{"var/tmp", 0o777 | os.ModeSticky, 0},
	{"var/lib", 0o755, 0},
	{"var/cache", 0o755, 0},
	{"var/log", 0o755, 0},
	{"mnt", 0o755, 0},
	{"srv", 0o755, 0},
	{"home", 0o755, 0},
	{"home/agent", 0o755, agentUID},
	{"workspace", 0o755, agentUID},
	{"tmp", 0o777 | os.ModeSticky, 0},
	// gVisor lays a memory file system of its own over an empty /tmp; one with a
	// folder in it stays part of the sized root layer.
	{"tmp/.X11-unix", 0o777 | os.ModeSticky, 0},
	{".cofferdam", 0o700, 0},
	{"etc/cofferdam", 0o755, 0},
}

// Folder is a finished lower folder.
type Folder struct {
	Path  string
	Views []specs.Mount // read-only views of the host, as bind mounts
}

// Prepare returns the lower folder for the host and the guest program as
// they are now, with gateway as the address of the name server, making it when it is not there. An existing one is never
// changed: living sandboxes may stand on it.
func Prepare(dir, hostRoot, guest, gateway string) (Folder, error) {
	name, err := lowerName(hostRoot, guest, gateway)
	if err != nil {
		return Folder{}, fmt.Errorf("lower folder: %w", err)
	}
	l := Folder{Path: filepath.Join(dir, name), Views: hostBinds(hostRoot)}
	if _, err := os.Stat(l.Path); err == nil {
		return l, nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return Folder{}, fmt.Errorf("lower folder: %w", err)
	}
	half, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return Folder{}, fmt.Errorf("lower folder: %w", err)
	}
	defer os.RemoveAll(half)
	if err := buildLower(half, hostRoot, guest, gateway); err != nil {
		return Folder{}, fmt.Errorf("lower folder: %w", err)
	}
	if err := os.Rename(half, l.Path); err != nil && !errors.Is(err, os.ErrExist) {
		return Folder{}, fmt.Errorf("lower folder: %w", err)
	}
	return l, nil
}

// hostBinds lists the read-only views: /usr, /opt, and the system folders that
// are no links on this host.
func hostBinds(hostRoot string) []specs.Mount {
	var binds []specs.Mount
	for _, name := range append([]string{"usr", "opt"}, systemDirs...) {
		source := filepath.Join(hostRoot, name)
		if info, err := os.Lstat(source); err != nil || !info.IsDir() {
			continue
		}
		binds = append(binds, specs.Mount{
			Destination: "/" + name, Type: "bind", Source: source,
			Options: []string{"rbind", "ro", "nosuid", "nodev"},
		})
	}
	return binds
}

// lowerName is a hash of what the lower folder is made from.
func lowerName(hostRoot, guest, gateway string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, lowerVersion, gateway)
	file, err := os.Open(guest)
	if err != nil {
		return "", fmt.Errorf("guest program: %w", err)
	}
	defer file.Close()
	if _, err := io.Copy(h, file); err != nil {
		return "", fmt.Errorf("guest program: %w", err)
	}
	for _, name := range systemDirs {
		target, _ := os.Readlink(filepath.Join(hostRoot, name)) // Not a link: "".
		fmt.Fprintln(h, name, target)
	}
	err = walkEtc(filepath.Join(hostRoot, "etc"), func(path, rel string, info os.FileInfo) error {
		target := ""
		if info.Mode()&os.ModeSymlink != 0 {
			target, _ = os.Readlink(path) // Gone meanwhile: the next start sees it.
		}
		size := info.Size()
		modified := info.ModTime().UnixNano()
		if info.IsDir() {
			size, modified = 0, 0
		}
		_, err := fmt.Fprintf(h, "%q %v %d %d %q\n", rel, info.Mode(), size, modified, target)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)[:12]), err
}

func buildLower(root, hostRoot, guest, gateway string) error {
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	for _, dir := range ownDirs {
		path := filepath.Join(root, dir.path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(path, dir.mode); err != nil {
			return err
		}
		if err := os.Lchown(path, dir.owner, dir.owner); err != nil {
			return err
		}
	}
	for _, name := range systemDirs {
		source := filepath.Join(hostRoot, name)
		info, err := os.Lstat(source)
		if err != nil {
			continue
		}
		if info.IsDir() {
			err = os.Mkdir(filepath.Join(root, name), 0o755)
		} else if target, lerr := os.Readlink(source); lerr == nil {
			err = os.Symlink(target, filepath.Join(root, name))
		}
		if err != nil {
			return err
		}
	}
	err := walkEtc(filepath.Join(hostRoot, "etc"), func(path, rel string, info os.FileInfo) error {
		return copyEntry(path, filepath.Join(root, "etc", rel), info)
	})
	if err != nil {
		return err
	}
	if err := writeEtc(filepath.Join(root, "etc"), gateway); err != nil {
		return err
	}
	return copyFile(guest, filepath.Join(root, Guest), 0o500)
}

// copyEntry copies a file, folder or link; anything else is left out.
func copyEntry(from, to string, info os.FileInfo) error {
	switch {
	case info.IsDir():
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		return nil
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.Symlink(target, to)
	case info.Mode().IsRegular():
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return copyFile(from, to, info.Mode().Perm()&0o755)
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	if err := out.Chmod(mode); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// Prune removes lower folders that are neither current nor used by a
// living sandbox, and half-made ones.
func Prune(dir, current string, used []string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var failed error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if path == current || slices.Contains(used, path) {
			continue
		}
		failed = errors.Join(failed, os.RemoveAll(path))
	}
	return failed
}

// BaseEnv is what the machine adds to the guest's own environment of commands.
// hostPath is a search path of the host, whose parts below /usr and /opt are the
// machine's toolchains.
func BaseEnv(hostPath, hostRoot string) []string {
	var parts []string
	for _, part := range append(filepath.SplitList(hostPath),
		"/usr/local/go/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin") {
		inside := strings.HasPrefix(part, "/usr/") || strings.HasPrefix(part, "/opt/") || part == "/sbin" || part == "/bin"
		if inside && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	// What the user installs is found, and shadows nothing of the machine's.
	parts = append(parts, "/home/agent/.local/bin", "/home/agent/go/bin", "/home/agent/.cargo/bin")
	env := []string{"PATH=" + strings.Join(parts, ":")}
	if _, err := os.Stat(filepath.Join(hostRoot, "usr/bin/bash")); err != nil {
		env = append(env, "SHELL=/bin/sh")
	}
	return env
}

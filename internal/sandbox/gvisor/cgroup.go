package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupPrefix begins the name of each cgroup of a sandbox: then come the
// installation's tag, a dash and the sandbox's id. The path is flat, so that no
// parent folder stays behind.
const cgroupPrefix = "cofferdam-"

// tagged is what follows the prefix in the cgroups of any installation.
var tagged = regexp.MustCompile(`^[0-9a-f]{8}-sb-`)

// cgroups is where the machine's cgroup hierarchies are mounted.
type cgroups struct {
	tag  string            // tells this installation's cgroups from another's on the machine
	v2   string            // the unified hierarchy, when it has controllers
	v1   map[string]string // controller → mount point
	dirs []string          // every mount point in which runsc makes a folder
}

// required are the controllers that the limits need.
var required = []string{"memory", "pids", "cpu"}

// findCgroups reads the mount table's text.
func findCgroups(mountinfo string) cgroups {
	found := cgroups{v1: map[string]string{}}
	unified := ""
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		point := fields[4]
		switch kind[0] {
		case "cgroup2":
			unified = point
		case "cgroup":
			for option := range strings.SplitSeq(kind[2], ",") {
				if option != "rw" && option != "ro" {
					found.v1[option] = point
				}
			}
			found.dirs = append(found.dirs, point)
		}
	}
	if len(found.v1) == 0 && unified != "" {
		found.v2 = unified
		found.dirs = []string{unified}
	}
	return found
}

// loadCgroups finds the machine's cgroups, for the installation in dir.
func loadCgroups(dir string) (cgroups, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return cgroups{}, err
	}
	found := findCgroups(string(text))
	sum := sha256.Sum256([]byte(dir))
	found.tag = hex.EncodeToString(sum[:4])
	return found, nil
}

// name is the name of a sandbox's cgroups.
func (c cgroups) name(id string) string { return cgroupPrefix + c.tag + "-" + id }

// missing names the required controllers that can't be used, with what to do.
func (c cgroups) missing() []string {
	var out []string
	if c.v2 != "" {
		text, err := os.ReadFile(filepath.Join(c.v2, "cgroup.controllers"))
		if err != nil {
			return []string{fmt.Sprintf("%s can't be read: %v", c.v2, err)}
		}
		for _, name := range required {
			if !slices.Contains(strings.Fields(string(text)), name) {
				out = append(out, name+" (not in "+c.v2+"/cgroup.controllers)")
			}
		}
		return append(out, unwritable(c.v2)...)
	}
	for _, name := range required {
		point, ok := c.v1[name]
		if !ok {
			out = append(out, name+" (mount it: mount -t cgroup -o "+name+" cgroup /sys/fs/cgroup/"+name+")")
			continue
		}
		out = append(out, unwritable(point)...)
	}
	return out
}

func unwritable(path string) []string {
	if err := unix.Access(path, unix.W_OK); err != nil {
		return []string{fmt.Sprintf("%s is not writable: %v", path, err)}
	}
	return nil
}

// folders returns the cgroup folders of a sandbox that exist.
func (c cgroups) folders(id string) []string {
	var out []string
	for _, dir := range c.dirs {
		path := filepath.Join(dir, c.name(id))
		if _, err := os.Lstat(path); err == nil {
			out = append(out, path)
		}
	}
	return out
}

// all returns the ids of every sandbox that has a cgroup, with one folder each.
// Those of another installation are its own business. A name without any tag is
// nobody's and is returned, unless something runs in it that is not ours.
func (c cgroups) all() map[string]string {
	out := map[string]string{}
	for _, dir := range c.dirs {
		paths, err := filepath.Glob(filepath.Join(dir, cgroupPrefix+"*"))
		if err != nil {
			continue // The pattern is ours and well formed.
		}
		for _, path := range paths {
			rest := strings.TrimPrefix(filepath.Base(path), cgroupPrefix)
			id, ours := strings.CutPrefix(rest, c.tag+"-")
			if ours || !tagged.MatchString(rest) && len(processesIn(path)) == 0 {
				out[id] = path
			}
		}
	}
	return out
}

// members returns the processes in the sandbox's cgroups.
func (c cgroups) members(id string) []int {
	var out []int
	for _, dir := range c.folders(id) {
		for _, pid := range processesIn(dir) {
			if !slices.Contains(out, pid) {
				out = append(out, pid)
			}
		}
	}
	return out
}

func processesIn(dir string) []int {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil // It is gone.
	}
	var out []int
	for word := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// killedForMemory says whether the kernel ended a process of the sandbox for
// memory.
func (c cgroups) killedForMemory(id string) bool {
	path := filepath.Join(c.v2, c.name(id), "memory.events")
	if c.v2 == "" {
		path = filepath.Join(c.v1["memory"], c.name(id), "memory.oom_control")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "oom_kill" && value != "0" {
			return true
		}
	}
	return false
}

// remove removes the sandbox's cgroups, children first. A cgroup is busy for a
// moment after its last process has ended.
func (c cgroups) remove(ctx context.Context, id string) error {
	for round := 0; ; round++ {
		var failed error
		for _, dir := range c.folders(id) {
			failed = errors.Join(failed, removeTree(dir))
		}
		if failed == nil {
			return nil
		}
		if err := pause(ctx, round); err != nil {
			return fmt.Errorf("cgroups of %s: %w", id, failed)
		}
	}
}

func removeTree(dir string) error {
	children, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, child := range children {
		if child.IsDir() {
			if err := removeTree(filepath.Join(dir, child.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

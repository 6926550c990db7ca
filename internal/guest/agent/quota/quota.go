// Package quota measures what a sandbox's workload uses of its memory and of its
// file system, from within: how much memory is left before the sandbox itself
// would be ended, and how many files exist.
//
// Words. Files made are counted by the file system, which numbers them in the
// order of their making; files that exist are counted by walking, which takes
// long, so that is done only when more were made than may exist.
//
// Not promised: that nothing passes a limit between two looks.
package quota

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Memory is what a sandbox has.
type Memory struct{ Total, Free uint64 }

// LookMemory asks the sandbox's kernel.
func LookMemory() (Memory, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Memory{}, fmt.Errorf("memory: %w", err)
	}
	unit := max(uint64(info.Unit), 1)
	return Memory{Total: info.Totalram * unit, Free: info.Freeram * unit}, nil
}

// The part of the memory that the workload is not to use: the sandbox's own kernel
// lies in it, and what may be used until the next look.
const (
	kernelReserve = 32 << 20
	reservePart   = 16
)

func (m Memory) reserve() uint64 { return min(kernelReserve+m.Total/reservePart, m.Total/2) }

// Short says whether somebody has to go.
func (m Memory) Short() bool { return m.Free < m.reserve() }

// The pace of looks at the memory: a program fills it with some gigabytes a second.
const (
	fastest  = 2 * time.Millisecond
	slowest  = 200 * time.Millisecond
	fillRate = 2 << 30 // bytes a second
)

// Next says how long the memory may be left alone.
func (m Memory) Next() time.Duration {
	if m.Short() {
		return fastest
	}
	left := m.Free - m.reserve()
	return min(max(time.Duration(float64(left)/fillRate*float64(time.Second)), fastest), slowest)
}

// Resident is the memory of a process in bytes, 0 for one that is gone.
func Resident(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, resident uint64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}

// Files tells when more files exist than may. The zero Files allows none.
type Files struct {
	Limit uint64
	floor uint64 // files made that need not exist any more
}

// Over is given how many files were made and counts those that exist only if it
// must. After it said yes, some more may be made before it says so again, so that
// a workload can remove what is too much.
func (f *Files) Over(made uint64, count func(most uint64) uint64) bool {
	if made < f.floor || made-f.floor <= f.Limit {
		return false
	}
	if existing := count(f.Limit); existing <= f.Limit {
		f.floor = made - min(existing, made)
		return false
	}
	f.floor = made - min(made, f.Limit-f.Limit/16)
	return true
}

// Made tells how many files were made in folder's file system: it makes one, looks
// at its number and removes it.
func Made(folder string) (uint64, error) {
	path := filepath.Join(folder, ".cofferdam-count")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, errors.Join(&os.PathError{Op: "open", Path: path, Err: err}, ignoreAbsent(os.Remove(path)))
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	err = unix.Fstat(fd, &info)
	return info.Ino, errors.Join(err, os.Remove(path))
}

func ignoreAbsent(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Count counts the files beneath the folders, up to one more than most. What is
// moved or removed meanwhile is counted or not; links are not followed.
func Count(folders []string, most uint64) uint64 {
	todo := append([]string(nil), folders...)
	var n uint64
	for len(todo) > 0 && n <= most {
		path := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // It is gone, or no folder any more.
		}
		dir := os.NewFile(uintptr(fd), path)
		for n <= most {
			entries, err := dir.ReadDir(1000)
			n += uint64(len(entries))
			for _, e := range entries {
				if e.IsDir() {
					todo = append(todo, filepath.Join(path, e.Name()))
				}
			}
			if errors.Is(err, io.EOF) || err != nil {
				break
			}
		}
		dir.Close()
	}
	return n
}

// OpenFiles says whether the process has at least n files open.
func OpenFiles(pid int, n int64) bool {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(int(n))
	return err == nil && int64(len(names)) >= n
}

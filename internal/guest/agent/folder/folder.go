// Package folder opens folders that hostile code may have shaped, without ever
// following a link.
//
// It takes two steps since gVisor follows a link that is opened to be read with
// O_DIRECTORY, whatever O_NOFOLLOW says; with O_PATH it doesn't. Neither this nor
// [os.Root], which opens folders in one step, may be used on trust inside: links
// have to be told apart by O_PATH first.
package folder

import "golang.org/x/sys/unix"

// Open opens the folder called name in dir to read what it holds. What is anything
// else, a link above all, is unix.ENOTDIR.
func Open(dir int, name string) (int, error) {
	at, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	var stat unix.Stat_t
	if err := unix.Fstat(at, &stat); err != nil {
		return -1, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, unix.ENOTDIR
	}
	return unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

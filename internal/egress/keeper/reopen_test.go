package keeper_test

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// reopenBy stands for opening a persistent device again: a pair's end is
// duplicated.
func reopenBy(side *os.File, count *atomic.Int64) func(string) (*os.File, error) {
	return func(string) (*os.File, error) {
		count.Add(1)
		raw, err := side.SyscallConn()
		if err != nil {
			return nil, err
		}
		fd := -1
		var inner error
		err = raw.Control(func(old uintptr) { fd, inner = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), "reopened"), inner
	}
}

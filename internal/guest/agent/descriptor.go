package agent

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// Descriptor reads and writes a descriptor that may or may not block, and leaves
// that setting alone: the other end may share it.
type Descriptor int

// Read reads, waiting for bytes.
func (d Descriptor) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(d), p)
		if d.again(err, unix.POLLIN) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
}

// Write writes all of p, waiting for room.
func (d Descriptor) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := unix.Write(int(d), p[done:])
		if d.again(err, unix.POLLOUT) {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// again says whether to try again, once the descriptor is ready.
func (d Descriptor) again(err error, event int16) bool {
	if errors.Is(err, unix.EINTR) {
		return true
	}
	if !errors.Is(err, unix.EAGAIN) {
		return false
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(d), Events: event}}, -1)
	return true
}

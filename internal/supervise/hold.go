package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// holdFd is the descriptor a holder waits on.
const holdFd = 3

// Hold waits until the supervisor has written down who this process is, and
// then becomes the program: args are its path and its arguments. When the
// supervisor died first, Hold returns an error and the process should exit. It
// returns only on failure.
func Hold(args []string) error {
	if len(args) == 0 {
		return errors.New("hold: no program given; this command is for `cofferdam up` alone")
	}
	// What is set below holds for one thread, the one that becomes the program.
	runtime.LockOSThread()
	gate := os.NewFile(holdFd, "gate")
	if gate == nil {
		return errors.New("hold: nothing to wait on; this command is for `cofferdam up` alone")
	}
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		return fmt.Errorf("hold: the supervisor is gone: %w", err)
	}
	if err := gate.Close(); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	if os.Geteuid() == 0 {
		syscall.Umask(0o022)
	} else {
		syscall.Umask(0o077)
		// No program it starts, setuid or not, may have more rights than it.
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("hold: no new privileges: %w", err)
		}
	}
	return fmt.Errorf("hold: start %s: %w", args[0], syscall.Exec(args[0], args, os.Environ()))
}

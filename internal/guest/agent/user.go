package agent

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// asAgent runs work on a thread of its own that has the workload's credentials,
// so that the kernel refuses what the workload couldn't do either. The thread
// ends with the work.
func (a *Agent) asAgent(work func() error) error {
	if a.opts.SameUser {
		return work()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread never ends and stands for the process. Hold it, so that
			// another one takes the work.
			result <- a.asAgent(work)
			runtime.UnlockOSThread()
			return
		}
		// Never unlocked: the thread ends with this function, and its credentials too.
		if err := becomeAgent(); err != nil {
			result <- err
			return
		}
		result <- work()
	}()
	return <-result
}

// becomeAgent changes this thread alone, by raw calls, since those of package
// syscall change all. The real and saved user stay root: the workload may neither
// signal nor trace what has them.
func becomeAgent() error {
	const same = ^uintptr(0)
	if err := unix.Setgroups([]int{agentGID}); err != nil {
		return fmt.Errorf("become agent: groups: %w", err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, same, agentGID, same); errno != 0 {
		return fmt.Errorf("become agent: group: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, agentUID, same); errno != 0 {
		return fmt.Errorf("become agent: user: %w", errno)
	}
	return nil
}

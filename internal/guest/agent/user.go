package agent

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// guestUID is the guest's real and saved user; its effective one is root. Nobody
// else has it, so that not even the workload's root may signal the guest, trace it
// or set its limits.
const guestUID = 65_533

// apart makes it so.
func (a *Agent) apart() error {
	if !a.init {
		return nil
	}
	const same = ^uintptr(0)
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_SETRESUID, guestUID, same, guestUID); errno != 0 {
		return fmt.Errorf("become a user apart: %w", errno)
	}
	return nil
}

// credential gives the user of a command's process; nil: the agent's own.
func (a *Agent) credential(c *command) *syscall.Credential {
	switch {
	case a.opts.SameUser:
		return nil
	case c.root || c.sudo:
		return &syscall.Credential{}
	}
	return &syscall.Credential{Uid: agentUID, Gid: agentGID, Groups: []uint32{agentGID}}
}

// sudoCapabilities is what root may do that the workload became: own and reach
// files. It can't become another user (the guest's, say), end or trace others'
// processes, raise a limit, or mount.
var sudoCapabilities = map[uintptr]bool{
	unix.CAP_CHOWN: true, unix.CAP_DAC_OVERRIDE: true, unix.CAP_FOWNER: true, unix.CAP_FSETID: true,
}

// dropBounds takes every other capability from what this thread starts.
func dropBounds() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if sudoCapabilities[c] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: this kernel has no such capability
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

// limitFiles sets the limit of open files that a child inherits, and returns what
// sets the agent's own again.
func (a *Agent) limitFiles(n int64) (restore func(), err error) {
	var own unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &own); err != nil {
		return nil, fmt.Errorf("limit of open files: %w", err)
	}
	limit := unix.Rlimit{Cur: min(uint64(n), own.Max), Max: min(uint64(n), own.Max)}
	if !a.mayRaise {
		limit.Max = own.Max
	}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		return nil, fmt.Errorf("limit of open files: %w", err)
	}
	return func() { _ = unix.Prlimit(0, unix.RLIMIT_NOFILE, &own, nil) }, nil // it was so before
}

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
// syscall change all. The real and saved user stay: the workload may neither
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

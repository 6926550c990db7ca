package agent

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// reap takes every process that ended: main processes of commands and orphans.
// It only looks at first, and takes under the lock that fork holds, so that a
// number is never free for another process before its owner was looked up.
func (a *Agent) reap() {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ECHILD) {
			a.awaitStart()
			continue
		}
		a.take()
	}
}

// awaitStart waits until there is a process to wait for.
func (a *Agent) awaitStart() {
	a.procs.Lock()
	defer a.procs.Unlock()
	for !a.hasChild() {
		a.started.Wait()
	}
}

// hasChild says whether any child exists, ended or not.
func (a *Agent) hasChild() bool {
	var info unix.Siginfo
	return !errors.Is(unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil), unix.ECHILD)
}

// take reaps what has ended by now. Orphans may come as fast as they are reaped,
// and the kernel may give them first; main processes are asked for by number then.
func (a *Agent) take() {
	a.procs.Lock()
	defer a.procs.Unlock()
	for range 100 {
		if !a.takeOne(-1) {
			return
		}
	}
	for pid := range a.mains {
		a.takeOne(pid)
	}
}

// takeOne reaps one process, if one has ended. The caller holds procs.
func (a *Agent) takeOne(which int) bool {
	var status unix.WaitStatus
	pid, err := unix.Wait4(which, &status, unix.WNOHANG, nil)
	if err != nil {
		return errors.Is(err, unix.EINTR)
	}
	if c := a.mains[pid]; c != nil {
		delete(a.mains, pid)
		a.exited(c, status)
	}
	return pid > 0
}

// exited notes how much was written until the exit, and has the rest done
// elsewhere.
func (a *Agent) exited(c *command, status unix.WaitStatus) {
	go func() {
		<-c.ready
		a.mu.Lock()
		c.exited = true
		if c.input != nil {
			c.input.end()
		}
		for _, p := range c.pipes {
			p.goal = p.read
			if !p.over {
				p.goal += p.unread()
			}
		}
		a.mu.Unlock()
		a.finish(c, status)
	}()
}

// finish makes the command's status final: its tree is gone when a limit ended
// it, and its output up to the exit was read.
func (a *Agent) finish(c *command, status unix.WaitStatus) {
	a.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	for c.ending > 0 {
		c.drained.Wait()
	}
	a.drain(c)
	for c.ending > 0 { // What was drained may have been too much.
		c.drained.Wait()
	}
	failed := status != 0
	c.exitOffset = c.end
	a.mu.Unlock()

	children := a.list(c)
	full := failed && a.diskFull(c)
	crowded := failed && c.nproc > 0 && !c.root && a.count()+1 >= c.nproc

	a.mu.Lock()
	defer a.mu.Unlock()
	s := &c.status
	s.Phase, s.EndedAt, s.Children, s.Cut = guest.Exited, time.Now().UTC(), children, c.cut
	if c.input != nil {
		s.Input = c.input.taken
	}
	s.ExitCode = -1
	if status.Exited() {
		s.ExitCode = status.ExitStatus()
	} else if status.Signaled() {
		s.Signal = int(status.Signal())
	}
	if failed && (c.crowded || crowded) {
		c.blame(guest.ReasonPIDs)
	}
	if full {
		c.blame(guest.ReasonDisk)
	}
	if failed && c.filled {
		c.blame(guest.ReasonFiles)
	}
	c.final = true
	a.wake.Signal()
}

// diskFull says whether one of the file systems the command writes to has
// nearly no room left.
func (a *Agent) diskFull(c *command) bool {
	const nearly = 64 << 10
	for _, path := range []string{c.dir, "/", "/tmp", a.opts.Workspace} {
		var s unix.Statfs_t
		if err := unix.Statfs(path, &s); err != nil || s.Blocks == 0 {
			continue
		}
		if s.Flags&unix.ST_RDONLY == 0 && s.Bavail*uint64(s.Bsize) < nearly {
			return true
		}
	}
	return false
}

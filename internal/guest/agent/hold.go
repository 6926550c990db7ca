package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// held is how a command's time stands while its tree is stopped from outside.
type held struct {
	expires time.Time     // when its time is over; zero: it is not bounded
	left    time.Duration // while it is held
	now     bool
}

// hold stops a command's whole tree, or has it go on. Meanwhile its time stands
// still.
func (a *Agent) hold(c *command, stop bool) {
	a.mu.Lock()
	c.clock(stop)
	a.mu.Unlock()
	if !stop {
		a.tell(c, unix.SIGCONT)
		return
	}
	stopped := map[int]bool{}
	for fresh, rounds := true, 0; fresh && rounds < 100; rounds++ {
		fresh = false
		for _, pid := range a.members(c) { // and again what was being born
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				_ = unix.Kill(pid, unix.SIGSTOP) // it may have ended just now
			}
		}
	}
}

// clock stops the command's time, or has it go on. The caller holds mu.
func (c *command) clock(stop bool) {
	switch {
	case c.timer == nil || c.exited || stop == c.held.now:
	case !stop:
		c.held.now, c.held.expires = false, time.Now().Add(c.held.left)
		c.timer.Reset(c.held.left)
	case c.timer.Stop(): // else it is over already
		c.held.now, c.held.left = true, max(time.Until(c.held.expires), time.Millisecond)
	}
}

package agent

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

const (
	grace     = 2 * time.Second // from SIGTERM to SIGKILL at a time limit
	endWithin = 2 * time.Second // a status waits no longer for killed processes to be gone
	poll      = 10 * time.Millisecond
)

// processes lists the numbers in /proc without our own.
func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil && len(names) == 0 {
		return nil
	}
	self := os.Getpid()
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != self {
			pids = append(pids, pid)
		}
	}
	return pids
}

// members returns the living processes of the command's tree.
func (a *Agent) members(c *command) []int {
	var pids []int
	for _, pid := range processes() {
		mark, ok := markOf(pid)
		if !ok || mark != c.mark && !a.stray(mark) {
			continue
		}
		if state, ok := stateOf(pid); ok && state != 'Z' && state != 'X' {
			pids = append(pids, pid)
		}
	}
	return pids
}

func markOf(pid int) (uint64, bool) {
	var limit unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_RSS, nil, &limit)
	if err == nil {
		return limit.Max, true
	}
	if !errors.Is(err, unix.EPERM) {
		return 0, false
	}
	// Without CAP_SYS_RESOURCE, another user's processes tell it here.
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0, false
	}
	_, line, _ := strings.Cut(string(text), "Max resident set")
	line, _, _ = strings.Cut(line, "\n")
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return 0, false
	}
	mark, err := strconv.ParseUint(fields[1], 10, 64)
	return mark, err == nil
}

// stray says whether a mark is nobody's: a process lowered its limit. In a
// sandbox such a process belongs to every command; elsewhere it isn't ours.
func (a *Agent) stray(mark uint64) bool {
	if !a.init {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return mark >= a.base || mark < a.base-uint64(len(a.byID))
}

// stateOf reads the state letter of a process.
func stateOf(pid int) (byte, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name before it may hold anything.
	i := bytes.LastIndexByte(text, ')')
	if i < 0 || i+2 >= len(text) {
		return 0, false
	}
	return text[i+2], true
}

// signal sends a signal to a command's tree.
func (a *Agent) signal(r guest.SignalRequest) *guest.Error {
	if r.Signal < 1 || r.Signal > 64 {
		return guest.Errorf(guest.ReasonInvalid, "there is no signal %d", r.Signal)
	}
	a.mu.Lock()
	c := a.byID[r.ID]
	a.mu.Unlock()
	if c == nil {
		return guest.Errorf(guest.ReasonNotFound, "command %q: not found", r.ID)
	}
	<-c.ready
	if unix.Signal(r.Signal) == unix.SIGKILL {
		if !a.killTree(c, endWithin) {
			return guest.Errorf(guest.ReasonInternal, "command %q: processes of it don't end", r.ID)
		}
		return nil
	}
	for _, pid := range a.members(c) {
		_ = unix.Kill(pid, unix.Signal(r.Signal)) // It may have ended just now.
	}
	return nil
}

// timeout ends a command that ran for too long.
func (a *Agent) timeout(c *command) {
	a.mu.Lock()
	if c.exited {
		a.mu.Unlock()
		return
	}
	c.blame(guest.ReasonTime)
	c.ending++
	a.mu.Unlock()
	a.endTree(c, grace)
}

// endTree asks the tree to end, and after patience makes it. The caller has
// counted it in ending, and the command's status waits for it.
func (a *Agent) endTree(c *command, patience time.Duration) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		c.ending--
		c.drained.Broadcast()
	}()
	if patience > 0 {
		for _, pid := range a.members(c) {
			_ = unix.Kill(pid, unix.SIGTERM)
			_ = unix.Kill(pid, unix.SIGCONT) // A stopped process hears nothing.
		}
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); pause(poll) {
			if len(a.members(c)) == 0 {
				return
			}
		}
	}
	a.killTree(c, endWithin)
}

// killTree kills until none is left, and says whether that came within d. First
// everything is stopped: what is stopped can't fork, so also a tree that grows
// faster than it is killed comes to an end.
func (a *Agent) killTree(c *command, d time.Duration) bool {
	deadline := time.Now().Add(d)
	stopped := map[int]bool{}
	for fresh := true; fresh && time.Now().Before(deadline); {
		fresh = false
		for _, pid := range a.members(c) {
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
	}
	for {
		pids := a.members(c)
		if len(pids) == 0 {
			return true
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if time.Now().After(deadline) {
			return false
		}
		pause(time.Millisecond)
	}
}

// shutdown kills every process but the agent.
func (a *Agent) shutdown() *guest.Error {
	if a.init {
		// The first process is spared, and none else.
		if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return guest.Errorf(guest.ReasonInternal, "shutdown: %v", err)
		}
		return nil
	}
	a.mu.Lock()
	commands := make([]*command, 0, len(a.byID))
	for _, c := range a.byID {
		commands = append(commands, c)
	}
	a.mu.Unlock()
	for _, c := range commands {
		<-c.ready
		a.killTree(c, endWithin)
	}
	return nil
}

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

	listWithin = 300 * time.Millisecond
	crowded    = 50 // processes
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
	return a.search(c, func([]int) bool { return true })
}

// alive says whether the tree has a living process.
func (a *Agent) alive(c *command) bool {
	return len(a.search(c, func([]int) bool { return false })) > 0
}

// list returns the members that are found in a moment: among hundreds of busy
// processes each look takes long, and a status is not to wait for that.
func (a *Agent) list(c *command) []int {
	if !a.hasChild() {
		return nil
	}
	until := time.Now().Add(listWithin)
	return a.search(c, func([]int) bool { return time.Now().Before(until) })
}

// search finds members while more says so.
func (a *Agent) search(c *command, more func(found []int) bool) []int {
	var pids []int
	for _, pid := range processes() {
		mark, ok := markOf(pid)
		if !ok || mark != c.mark && !a.stray(mark) {
			continue
		}
		if state, ok := stateOf(pid); !ok || state == 'Z' || state == 'X' {
			continue
		}
		if pids = append(pids, pid); !more(pids) {
			break
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
	if a.frozen.Load() {
		return guest.Errorf(guest.ReasonInvalid, "the sandbox is frozen")
	}
	if r.Group || r.PID != 0 {
		return a.signalPart(c, r)
	}
	if unix.Signal(r.Signal) == unix.SIGKILL {
		if !a.killTree(c, endWithin) {
			return guest.Errorf(guest.ReasonInternal, "command %q: processes of it don't end", r.ID)
		}
		return nil
	}
	if s := unix.Signal(r.Signal); s == unix.SIGSTOP || s == unix.SIGCONT {
		a.hold(c, s == unix.SIGSTOP)
		return nil
	}
	a.tell(c, unix.Signal(r.Signal))
	return nil
}

// tell sends signals to each member, while a crowd is held still.
func (a *Agent) tell(c *command, signals ...unix.Signal) {
	if a.crowd() {
		defer a.freeze(c)()
	}
	for _, pid := range a.members(c) {
		for _, s := range signals {
			_ = unix.Kill(pid, s) // It may have ended just now.
		}
	}
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
	if a.frozen.Load() {
		return // Nothing of it ends any more.
	}
	if patience > 0 {
		a.tell(c, unix.SIGTERM, unix.SIGCONT) // A stopped process hears nothing.
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); pause(poll) {
			if !a.alive(c) {
				return
			}
		}
	}
	a.killTree(c, endWithin)
}

// killTree kills until none is left, and says whether that came within d.
func (a *Agent) killTree(c *command, d time.Duration) bool {
	deadline := time.Now().Add(d)
	frozen := false
	for round := 0; ; round++ {
		if !frozen && (round >= 2 || a.crowd()) {
			// It may grow as fast as it is killed. What is stopped can't fork, and leaves
			// the processor to us.
			frozen = true
			defer a.freeze(c)()
		}
		pids := a.members(c)
		if len(pids) == 0 || a.frozen.Load() {
			return true
		}
		if round > 3 && time.Now().After(deadline) {
			return false
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		pause(time.Millisecond)
	}
}

// crowd says whether there are so many processes that looking at each, while they
// run, takes too long.
func (a *Agent) crowd() bool { return len(processes()) > crowded }

// freeze stops the tree, and returns what lets others go on.
func (a *Agent) freeze(c *command) (thaw func()) {
	if a.init {
		// All but the first process, at one stroke, and again what was being born.
		for range 3 {
			_ = unix.Kill(-1, unix.SIGSTOP)
		}
		return func() {
			if !a.frozen.Load() {
				_ = unix.Kill(-1, unix.SIGCONT)
			}
		}
	}
	stopped := map[int]bool{}
	for fresh, rounds := true, 0; fresh && rounds < 100; rounds++ {
		fresh = false
		for _, pid := range a.members(c) {
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
	}
	return func() {
		for pid := range stopped {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
}

// shutdown kills every process but the agent.
func (a *Agent) shutdown() *guest.Error {
	if a.frozen.Load() {
		return guest.Errorf(guest.ReasonInvalid, "the sandbox is frozen")
	}
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

package agent

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const countEvery = 200 * time.Millisecond

// watchCount samples the count of processes while a command with a limit of them
// runs: the kernel doesn't tell who was refused one.
func (a *Agent) watchCount() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watched {
		return
	}
	a.watched = true
	go func() {
		// Not at once: most commands end before, and a look takes what they need.
		for pause(countEvery); a.sampleCount(); {
			pause(countEvery)
		}
	}()
}

// sampleCount marks the commands at their limit and says whether to go on.
func (a *Agent) sampleCount() bool {
	n := a.count()
	a.mu.Lock()
	defer a.mu.Unlock()
	running := false
	for _, c := range a.active {
		if c.final || c.nproc <= 0 || c.root {
			continue
		}
		running = true
		if n >= c.nproc {
			c.crowded = true
		}
	}
	a.watched = running
	return running
}

// count is the count of the workload's tasks, threads too, as the limit counts.
// In a sandbox all but ours are.
func (a *Agent) count() int64 {
	if !a.init {
		user := uint32(agentUID)
		if a.opts.SameUser {
			user = uint32(os.Getuid())
		}
		var n int64
		for _, pid := range processes() {
			var info unix.Stat_t
			if unix.Stat("/proc/"+strconv.Itoa(pid), &info) == nil && info.Uid == user {
				n += tasksOf(strconv.Itoa(pid))
			}
		}
		return n
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Procs) - tasksOf("self")
}

func tasksOf(pid string) int64 {
	names, err := os.ReadDir("/proc/" + pid + "/task")
	if err != nil {
		return 0
	}
	return int64(len(names))
}

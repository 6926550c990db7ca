package agent

import (
	"time"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent/quota"
)

const (
	inodesEvery = 500 * time.Millisecond
	filesEvery  = 200 * time.Millisecond
)

// watchUse looks at what the workload uses for as long as something of it runs:
// who takes the most goes before the sandbox itself does. It is for the first
// process of a sandbox; elsewhere memory and files are others' as well.
func (a *Agent) watchUse() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watching || !a.init {
		return
	}
	a.watching = true
	go func() {
		var inodes, files time.Time
		for {
			wait := a.relieve()
			if now := time.Now(); now.Sub(inodes) > inodesEvery {
				inodes = now
				a.checkInodes()
			}
			if now := time.Now(); now.Sub(files) > filesEvery {
				files = now
				a.checkFiles()
			}
			pause(wait)
			if !a.busy() {
				return
			}
		}
	}()
}

// busy says whether there is anything to watch, and ends the watching if not.
func (a *Agent) busy() bool {
	a.procs.Lock()
	defer a.procs.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watching = a.hasChild() // Under procs: none is started meanwhile.
	return a.watching
}

// relieve ends the largest command when memory is short, and says when to look
// again.
func (a *Agent) relieve() time.Duration {
	m, err := quota.LookMemory()
	if err != nil {
		return inodesEvery
	}
	if !m.Short() {
		return m.Next()
	}
	a.mu.Lock()
	byMark := map[uint64]*command{}
	busy := false
	for _, c := range a.byID {
		byMark[c.mark] = c
		busy = busy || c.ending > 0
	}
	a.mu.Unlock()
	if busy {
		return m.Next() // Somebody goes already.
	}
	use := map[*command]uint64{}
	var largest *command
	for _, pid := range processes() {
		if mark, ok := markOf(pid); ok && byMark[mark] != nil {
			c := byMark[mark]
			use[c] += quota.Resident(pid)
			if largest == nil || use[c] > use[largest] {
				largest = c
			}
		}
	}
	// What is not in processes (files in memory) ending one would not give back.
	if largest != nil && use[largest] > m.Total/16 {
		a.dismiss(largest, guest.ReasonMemory)
	}
	return m.Next()
}

// dismiss ends a command's tree for a limit.
func (a *Agent) dismiss(c *command, reason string) {
	a.mu.Lock()
	if !c.exited {
		c.blame(reason)
	}
	c.ending++
	a.mu.Unlock()
	go a.endTree(c, 0)
}

// workload lists the commands that run and are not the platform's.
func (a *Agent) workload() []*command {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*command
	for _, c := range a.active {
		if c.pid != 0 && !c.exited && !c.root {
			list = append(list, c)
		}
	}
	return list
}

// checkInodes ends the workload's commands when more files exist than may.
func (a *Agent) checkInodes() {
	list := a.workload()
	var limit uint64
	for _, c := range list {
		limit = max(limit, uint64(max(c.inodes, 0)))
	}
	if limit == 0 {
		return
	}
	made, err := quota.Made("/")
	if err != nil {
		return // No room: the limit of bytes speaks.
	}
	a.inodes.Limit = limit
	folders := []string{a.opts.Workspace, "/home/agent", "/tmp", "/var/tmp"}
	if a.inodes.Over(made, func(most uint64) uint64 { return quota.Count(folders, most) }) {
		for _, c := range a.workload() {
			a.dismiss(c, guest.ReasonInodes)
		}
	}
}

// checkFiles marks the commands of which a process has as many files open as it
// may: should one fail, that is why.
func (a *Agent) checkFiles() {
	byMark := map[uint64]*command{}
	for _, c := range a.workload() {
		if c.files > 0 && !c.filled {
			byMark[c.mark] = c
		}
	}
	pids := processes()
	if len(byMark) == 0 || len(pids) > crowded {
		return
	}
	for _, pid := range pids {
		mark, ok := markOf(pid)
		if c := byMark[mark]; ok && c != nil && quota.OpenFiles(pid, c.files) {
			a.mu.Lock()
			c.filled = true
			a.mu.Unlock()
		}
	}
}

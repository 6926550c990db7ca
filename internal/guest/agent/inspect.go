package agent

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// Bounds of an inspection: it goes in one message.
const (
	maxProcesses = 1000
	maxCommand   = 200 // bytes of a process's arguments
)

// inspect lists the living processes of one command, or of all that have some.
func (a *Agent) inspect(r guest.InspectRequest) guest.Answer {
	a.mu.Lock()
	marks := map[uint64]*command{}
	for id, c := range a.byID {
		select {
		case <-c.ready:
			if r.ID == "" || r.ID == id {
				marks[c.mark] = c
			}
		default: // It is being started and has no mark yet.
		}
	}
	known := r.ID == "" || a.byID[r.ID] != nil
	a.mu.Unlock()
	if !known {
		return guest.Answer{Error: guest.Errorf(guest.ReasonNotFound, "command %q: not found", r.ID)}
	}
	found := map[*command][]guest.Process{}
	for _, pid := range processes() {
		mark, ok := markOf(pid)
		if !ok {
			continue
		}
		c := marks[mark]
		if c == nil && r.ID != "" && a.stray(mark) {
			c = marks[a.markOf(r.ID)]
		}
		if c == nil || len(found[c]) >= maxProcesses {
			continue
		}
		if p, ok := describe(pid); ok {
			found[c] = append(found[c], p)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var answer guest.Answer
	total := 0
	for _, c := range marks {
		list := found[c][:min(len(found[c]), maxProcesses-total)]
		if r.ID == "" && len(list) == 0 && !c.input.open() {
			continue
		}
		total += len(list)
		inspection := guest.Inspection{ID: c.status.ID, Processes: list, InputOpen: c.input.open()}
		if c.input != nil {
			inspection.Input = c.input.taken
		}
		answer.Inspections = append(answer.Inspections, inspection)
	}
	return answer
}

func (a *Agent) markOf(id string) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.byID[id]; c != nil {
		return c.mark
	}
	return 0
}

// describe reads what a living process tells of itself.
func describe(pid int) (guest.Process, bool) {
	folder := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return guest.Process{}, false
	}
	// The name in parentheses may hold anything.
	first, last := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if first < 0 || last < first {
		return guest.Process{}, false
	}
	fields := strings.Fields(string(stat[last+1:]))
	if len(fields) < 2 || fields[0] == "Z" || fields[0] == "X" {
		return guest.Process{}, false
	}
	p := guest.Process{PID: pid, State: fields[0], Command: string(stat[first+1 : last])}
	p.Parent, _ = strconv.Atoi(fields[1]) // 0 when it is no number.
	if line, err := readHead(folder+"/cmdline", maxCommand); err == nil && len(line) > 0 {
		p.Command = string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '}))
	}
	return p, true
}

// readHead reads at most n bytes of a file.
func readHead(path string, n int) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, n)
	if n, err = unix.Read(fd, buf); err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// signalPart sends a signal to the main process's group, or to one process of the
// command's tree.
func (a *Agent) signalPart(c *command, r guest.SignalRequest) *guest.Error {
	target := 0
	for _, pid := range a.members(c) {
		if r.PID == pid {
			target = pid
		}
		if group, err := unix.Getpgid(pid); r.Group && err == nil && group == c.pid && c.pid > 0 {
			target = -c.pid
		}
	}
	if target == 0 {
		if r.Group {
			return nil // Nobody is left in it.
		}
		return guest.Errorf(guest.ReasonNotFound, "command %q has no process %d", r.ID, r.PID)
	}
	if err := unix.Kill(target, unix.Signal(r.Signal)); err != nil && !errors.Is(err, unix.ESRCH) {
		return guest.Errorf(guest.ReasonInternal, "command %q: signal %d: %v", r.ID, r.Signal, err)
	}
	return nil
}

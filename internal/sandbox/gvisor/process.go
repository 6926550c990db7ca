package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a process of the host, told from a later one with the same number
// by its start time.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot
}

// runscProcess is a living process of our runsc: the command line program, a
// sentry or a gofer.
type runscProcess struct {
	process
	Sandbox string
	Title   string // argv[0]
}

// runscProcesses returns all living processes whose arguments carry our runsc
// root. Zombies are left out: nothing but their parent can remove them.
func (d *Driver) runscProcesses() ([]runscProcess, error) { return processesBelow(d.runscRoot()) }

// processesBelow returns those of one runsc root.
func processesBelow(folder string) ([]runscProcess, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	root := []byte("--root=" + folder)
	var found []runscProcess
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil || len(text) == 0 {
			continue
		}
		argv := bytes.Split(bytes.TrimRight(text, "\x00"), []byte{0})
		if !slices.ContainsFunc(argv, func(a []byte) bool { return bytes.Equal(a, root) }) {
			continue
		}
		p, err := lookProcess(pid)
		if err != nil {
			continue
		}
		found = append(found, runscProcess{
			process: p, Sandbox: string(argv[len(argv)-1]), Title: filepath.Base(string(argv[0])),
		})
	}
	return found, nil
}

// processesOf returns the living runsc processes of one sandbox.
func (d *Driver) processesOf(id string) ([]runscProcess, error) {
	all, err := d.runscProcesses()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p runscProcess) bool { return p.Sandbox != id }), nil
}

var errGone = errors.New("process is gone")

// lookProcess reads a living process's identity. A zombie is gone.
func lookProcess(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, errGone
	}
	// The second field is the program's name in parentheses and may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return process{}, fmt.Errorf("process %d: odd stat line", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return process{}, errGone
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return process{}, fmt.Errorf("process %d: start time: %w", pid, err)
	}
	return process{PID: pid, Start: start}, nil
}

// alive says whether this very process still runs.
func (p process) alive() bool {
	now, err := lookProcess(p.PID)
	return err == nil && now.Start == p.Start
}

// watch returns a descriptor that becomes readable when the process ends. It
// can't be fooled by a number used again.
func (p process) watch() (*os.File, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, errGone
	}
	if !p.alive() {
		unix.Close(fd)
		return nil, errGone
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// waitEnd blocks until the process of a pidfd has ended or the file is closed;
// it says whether the process has ended.
func waitEnd(pidfd *os.File) bool {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	err = conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		ended = err == nil && n == 1
		return ended
	})
	return err == nil && ended
}

// killAll ends every process of the sandbox's cgroup and every runsc process
// that carries its id, and returns when none is left. The command line program
// goes first, so that it makes nothing new.
func (d *Driver) killAll(ctx context.Context, id string) error {
	for round := 0; ; round++ {
		processes, err := d.processesOf(id)
		if err != nil {
			return err
		}
		slices.SortFunc(processes, func(a, b runscProcess) int {
			return killOrder(a) - killOrder(b)
		})
		for _, p := range processes {
			p.kill()
		}
		members := d.cgroups.members(id)
		for _, pid := range members {
			if p, err := lookProcess(pid); err == nil {
				p.kill()
			}
		}
		if len(processes) == 0 && !anyAlive(members) {
			return nil
		}
		if err := pause(ctx, round); err != nil {
			return fmt.Errorf("sandbox %s: %d processes do not end: %w", id, len(processes)+len(members), err)
		}
	}
}

func killOrder(p runscProcess) int {
	switch p.Title {
	case "runsc-sandbox":
		return 1
	case "runsc-gofer":
		return 2
	}
	return 0
}

func anyAlive(pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		_, err := lookProcess(pid)
		return err == nil
	})
}

// kill sends SIGKILL through a pidfd, so that a number used again is not hit.
func (p process) kill() {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if p.alive() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // Gone already is as good.
	}
}

// pause waits a moment that grows with the round, for conditions of the kernel
// that nothing announces.
func pause(ctx context.Context, round int) error {
	wait := min(time.Millisecond<<min(round, 6), 50*time.Millisecond)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

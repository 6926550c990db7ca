package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Record says which process is a program. A number alone is no proof, since
// numbers are used again; start time and kernel boot make it one process ever.
type Record struct {
	Program   string    `json:"program"`
	PID       int       `json:"pid"`
	Start     uint64    `json:"start"`         // in clock ticks since the machine started
	Kernel    string    `json:"kernel"`        // the machine's boot id
	Exe       []string  `json:"exe"`           // what it may be: the holder, then the program
	URL       string    `json:"url,omitempty"` // of the supervisor, once ready
	StartedAt time.Time `json:"startedAt"`
}

// newRecord describes a living process.
func newRecord(program string, pid int, exe ...string) (Record, error) {
	start, err := startOf(pid)
	if err != nil {
		return Record{}, err
	}
	kernel, err := kernelBoot()
	if err != nil {
		return Record{}, err
	}
	return Record{Program: program, PID: pid, Start: start, Kernel: kernel, Exe: exe, StartedAt: time.Now().UTC()}, nil
}

func (l Layout) writeRecord(r Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("record of %s: %w", r.Program, err)
	}
	return writeFile(l.record(r.Program), append(data, '\n'), 0o644, owner{})
}

// readRecord returns the record of a program; ok is false when there is none.
// A record that can't be read is an error: it may hide a living process.
func (l Layout) readRecord(program string) (r Record, ok bool, err error) {
	data, err := os.ReadFile(l.record(program))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, false, faultOf(CodeStorage, err, "record %s: can't be read; end the process it names by hand and remove the file", l.record(program))
	}
	return r, true, nil
}

func (l Layout) dropRecord(program string) { _ = os.Remove(l.record(program)) }

// process is a handle of a process that keeps meaning that process.
type process struct {
	fd     int
	record Record
}

// open returns a handle of the recorded process; ok is false when it is gone
// or the number belongs to another one by now.
func (r Record) open() (p *process, ok bool, err error) {
	kernel, err := kernelBoot()
	if err != nil {
		return nil, false, err
	}
	if r.PID <= 1 || r.Kernel != kernel {
		return nil, false, nil
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("process %d: %w", r.PID, err)
	}
	p = &process{fd: fd, record: r}
	// The checks come after the handle: what they say is about the process held.
	start, err := startOf(r.PID)
	if err != nil || start != r.Start || p.ended() || !r.runs() {
		p.close()
		return nil, false, nil
	}
	return p, true, nil
}

// runs compares the process's executable with the recorded ones.
func (r Record) runs() bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(r.PID) + "/exe")
	if errors.Is(err, fs.ErrPermission) {
		return true // not ours to look at, and so not ours to end either
	}
	return err == nil && slices.Contains(r.Exe, strings.TrimSuffix(exe, " (deleted)"))
}

// Alive says whether the recorded process runs.
func (r Record) Alive() bool {
	p, ok, err := r.open()
	if err != nil || !ok {
		return false
	}
	p.close()
	return true
}

func (p *process) close() { _ = unix.Close(p.fd) }

func (p *process) signal(s unix.Signal) error {
	if err := unix.PidfdSendSignal(p.fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %s (process %d): %w", p.record.Program, p.record.PID, err)
	}
	return nil
}

func (p *process) ended() bool { return p.wait(0) }

// wait returns true when the process ended within d.
func (p *process) wait(d time.Duration) bool {
	deadline := time.Now().Add(d)
	for {
		left := max(time.Until(deadline), 0)
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(left.Milliseconds()))
		if n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		if err == nil && time.Now().Add(time.Millisecond).After(deadline) {
			return false
		}
	}
}

// end asks the process to stop, and kills it when it does not within grace.
func (p *process) end(grace time.Duration) (killed bool, err error) {
	if err := p.signal(unix.SIGTERM); err != nil {
		return false, err
	}
	if p.wait(grace) {
		return false, nil
	}
	if err := p.signal(unix.SIGKILL); err != nil {
		return true, err
	}
	if !p.wait(30 * time.Second) {
		return true, fault(CodeMachine, "%s (process %d) does not end, not even killed; it hangs in the kernel, and only a restart of the machine helps", p.record.Program, p.record.PID)
	}
	return true, nil
}

// startOf returns when a process started, in ticks since the machine did.
func startOf(pid int) (uint64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	// The name, in parentheses, may hold anything; the rest is numbers.
	i := bytes.LastIndexByte(data, ')')
	fields := bytes.Fields(data[i+1:])
	if i < 0 || len(fields) < 20 {
		return 0, fmt.Errorf("process %d: its status can't be read", pid)
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	return start, nil
}

func kernelBoot() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("the machine's boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

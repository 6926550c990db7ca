package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// The workload's user.
const (
	agentUID = 1000
	agentGID = 1000
)

const pipeSize = 256 << 10 // of a command's standard output and error

// Exit codes of what could not be started, as shells have them.
const (
	codeCannotRun = 126
	codeNotFound  = 127
)

// start answers a request to start a command. A name that is known is not started
// again.
func (a *Agent) start(epoch, request uint64, cmd guest.Command) {
	c, mine, refused := a.enter(cmd)
	if refused != nil {
		a.answer(epoch, request, guest.Answer{Error: refused})
		return
	}
	if mine {
		a.spawn(c, cmd)
		close(c.ready)
	}
	<-c.ready
	a.mu.Lock()
	defer a.mu.Unlock()
	if epoch != a.epoch {
		return
	}
	status := c.status
	status.Started = mine
	answer := guest.Answer{Number: c.number, Status: &status}
	if c.settled {
		answer.Number = 0 // Nothing more comes of it.
	} else if c.acked == 0 && !c.resumed {
		// The worker confirmed nothing of it, so there is no need to ask where to go on.
		c.resumed, c.sent, c.told = true, 0, endOpen
	}
	a.send(guest.Reply, request, guest.Marshal(answer))
}

// enter makes the command known, or finds it.
func (a *Agent) enter(cmd guest.Command) (c *command, mine bool, refused *guest.Error) {
	if !guest.ValidID(cmd.ID) || len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return nil, false, guest.Errorf(guest.ReasonInvalid, "a command needs an id and a program")
	}
	for _, text := range append([]string{cmd.Dir}, cmd.Argv...) {
		if strings.IndexByte(text, 0) >= 0 {
			return nil, false, guest.Errorf(guest.ReasonInvalid, "command %q: an argument holds a zero byte", cmd.ID)
		}
	}
	if cmd.User != "" && cmd.User != guest.UserAgent && cmd.User != guest.UserRoot && cmd.User != guest.UserSudo {
		return nil, false, guest.Errorf(guest.ReasonInvalid, "command %q: user %q is unknown; there are agent, sudo and root", cmd.ID, cmd.User)
	}
	if cmd.Terminal != nil && !cmd.Terminal.Valid() {
		return nil, false, guest.Errorf(guest.ReasonInvalid, "command %q: a terminal can't have %d rows and %d columns", cmd.ID, cmd.Terminal.Rows, cmd.Terminal.Cols)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.byID[cmd.ID]; ok {
		return c, false, nil
	}
	if a.frozen.Load() {
		return nil, false, guest.Errorf(guest.ReasonInvalid, "the sandbox is frozen")
	}
	if len(a.active) >= guest.MaxActive {
		return nil, false, guest.Errorf(guest.ReasonPIDs, "%d commands run already", len(a.active))
	}
	number := uint64(len(a.byID)) + 1
	c = &command{
		number: number, ready: make(chan struct{}),
		root: cmd.User == guest.UserRoot, sudo: cmd.User == guest.UserSudo, nproc: cmd.NProc, dir: cmd.Dir, limit: cmd.MaxOutput,
		files: cmd.Files, inodes: cmd.Inodes,
		status: guest.Status{ID: cmd.ID, Phase: guest.Running, Terminal: cmd.Terminal != nil, StartedAt: time.Now().UTC()},
	}
	if c.limit <= 0 {
		c.limit = guest.DefaultMaxOutput
	}
	if c.dir == "" {
		c.dir = a.opts.Workspace
	}
	c.space, c.drained = sync.NewCond(&a.mu), sync.NewCond(&a.mu)
	a.byID[cmd.ID], a.byNum[number] = c, c
	a.active = append(a.active, c)
	return c, true, nil
}

// spawn starts the command's main process.
func (a *Agent) spawn(c *command, cmd guest.Command) {
	a.mu.Lock()
	env := a.env
	a.mu.Unlock()
	if c.root || c.sudo {
		env = mergeEnv(env, []string{"HOME=/root", "USER=root", "LOGNAME=root"})
	}
	env = mergeEnv(env, cmd.Env)
	program, err := lookUp(cmd.Argv[0], c.dir, env)
	if err != nil {
		a.unstartable(c, err)
		return
	}
	s, err := a.openStreams(cmd)
	if err != nil {
		a.unstartable(c, fmt.Errorf("standard streams: %w", err))
		return
	}
	pid, err := a.fork(c, program, cmd.Argv, env, s.theirs)
	closeAll(without(s.theirs, a.null))
	if err != nil {
		closeAll(s.outputs, []int{s.input})
		a.unstartable(c, startError(err, program, c.dir))
		return
	}
	a.mu.Lock()
	for i, fd := range s.outputs {
		c.pipes = append(c.pipes, &pipe{fd: i + 1, file: pollable(fd)})
	}
	switch {
	case cmd.Terminal != nil:
		c.input = a.newInput(c.pipes[0].file, cmd)
	case cmd.Stdin:
		c.input = a.newInput(pollable(s.input), cmd)
	}
	if c.input != nil {
		go a.feed(c.input)
	}
	c.pid, c.status.PID = pid, pid
	if cmd.Timeout > 0 {
		c.held.expires = time.Now().Add(cmd.Timeout)
		c.timer = time.AfterFunc(cmd.Timeout, func() { a.timeout(c) })
	}
	for _, p := range c.pipes {
		go a.pump(c, p)
	}
	a.mu.Unlock()
	if c.nproc > 0 && !c.root {
		a.watchCount()
	}
	a.watchUse()
}

// pollable makes a descriptor a file that is waited for without a thread.
func pollable(fd int) *os.File {
	// The setting before NewFile: the poller takes it only so.
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "stream")
}

func without(fds []int, one int) []int {
	return slices.DeleteFunc(slices.Clone(fds), func(fd int) bool { return fd == one })
}

// fork makes the process under the lock that the reaper takes as well, so that
// even a process that ends at once is known when it is reaped.
func (a *Agent) fork(c *command, program string, argv, env []string, streams []int) (int, error) {
	attr := &syscall.ProcAttr{
		Dir: c.dir, Env: env,
		Files: []uintptr{uintptr(streams[0]), uintptr(streams[1]), uintptr(streams[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: c.status.Terminal, Credential: a.credential(c)},
	}
	a.procs.Lock()
	defer a.procs.Unlock()
	if a.frozen.Load() {
		return 0, errFrozen
	}
	// The child inherits the agent's own limits: the mark, and the count of
	// processes, which doesn't bind the agent. Both are set before each fork.
	a.marks++
	c.mark = a.base - a.marks
	mark := unix.Rlimit{Cur: c.mark, Max: c.mark}
	if err := unix.Setrlimit(unix.RLIMIT_RSS, &mark); err != nil {
		return 0, fmt.Errorf("mark: %w", err)
	}
	if c.nproc > 0 && !c.root {
		limit := unix.Rlimit{Cur: uint64(c.nproc), Max: uint64(c.nproc)}
		if !a.mayRaise {
			limit = unix.Rlimit{Cur: min(uint64(c.nproc), a.limitNow.Max), Max: a.limitNow.Max}
		}
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
			return 0, fmt.Errorf("limit of processes: %w", err)
		}
		defer unix.Setrlimit(unix.RLIMIT_NPROC, &a.limitNow) //nolint:errcheck // it was so before
	}
	if c.files > 0 {
		restore, err := a.limitFiles(c.files)
		if err != nil {
			return 0, err
		}
		defer restore()
	}
	// Of this thread alone, and inherited by the child.
	runtime.LockOSThread()
	if c.sudo {
		// Never unlocked: the thread ends with this goroutine, and its bounds too.
		if err := dropBounds(); err != nil {
			return 0, err
		}
	} else {
		defer runtime.UnlockOSThread()
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("no new privileges: %w", err)
	}
	pid, err := syscall.ForkExec(program, argv, attr)
	if err != nil {
		return 0, err
	}
	a.mains[pid] = c
	a.started.Signal()
	return pid, nil
}

// lookUp finds the program as execvp does, in the command's own PATH.
func lookUp(name, dir string, env []string) (string, error) {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return "", &startFailure{codeCannotRun, fmt.Sprintf("no such folder: %s", dir)}
	}
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	for _, entry := range env {
		path, ok := strings.CutPrefix(entry, "PATH=")
		if !ok {
			continue
		}
		for folder := range strings.SplitSeq(path, ":") {
			if !filepath.IsAbs(folder) {
				folder = filepath.Join(dir, folder)
			}
			candidate := filepath.Join(folder, name)
			if info, err := os.Stat(candidate); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
				return candidate, nil
			}
		}
	}
	return "", &startFailure{codeNotFound, fmt.Sprintf("no such program: %s", name)}
}

// startFailure is a reason why a command can't be started, with its exit code.
type startFailure struct {
	code int
	text string
}

// Error gives the text.
func (f *startFailure) Error() string { return f.text }

func startError(err error, program, dir string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &startFailure{codeNotFound, fmt.Sprintf("no such program: %s", program)}
	case errors.Is(err, syscall.ENOEXEC):
		return &startFailure{codeCannotRun, fmt.Sprintf("%s is no program and names none in its first line", program)}
	case errors.Is(err, fs.ErrPermission):
		return &startFailure{codeCannotRun, fmt.Sprintf("not permitted: %s in %s", program, dir)}
	}
	return &startFailure{codeCannotRun, fmt.Sprintf("can't run %s: %v", program, err)}
}

// unstartable ends a command that never began.
func (a *Agent) unstartable(c *command, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	code := codeCannotRun
	if failure, ok := errors.AsType[*startFailure](err); ok {
		code = failure.code
	}
	if errors.Is(err, syscall.EAGAIN) {
		c.status.Reason = guest.ReasonPIDs
	}
	c.status.Phase, c.status.ExitCode, c.status.Error = guest.Exited, code, err.Error()
	c.status.EndedAt = time.Now().UTC()
	c.final = true
	a.wake.Signal()
}

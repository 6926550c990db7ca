package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
	steady     = 10 * time.Second // a life this long makes the next restart quick again
	startTries = 3
	bootWait   = 90 * time.Second
	logLimit   = 16 << 20
)

// child is one program that is kept running.
type child struct {
	program
	layout Layout
	bin    string
	hold   []string
	log    *slog.Logger

	now  *life // the present process; changed only by start, keep and end, one after the other
	stop chan struct{}
	gone chan struct{}
	once sync.Once
}

// life is one process of a child.
type life struct {
	pid     int
	proc    *os.Process
	started time.Time
	logFrom int64         // where its output begins in the log
	done    chan struct{} // closed when it ended; then end is set
	end     string
}

func newChild(p program, l Layout, bin string, hold []string, log *slog.Logger) *child {
	return &child{program: p, layout: l, bin: bin, hold: hold, log: log, stop: make(chan struct{}), gone: make(chan struct{})}
}

// start starts the program and waits until it says that it is ready.
func (c *child) start(ctx context.Context) error {
	pause := backoffMin
	for try := 1; ; try++ {
		life, err := c.launch()
		if err != nil {
			return err
		}
		c.now = life
		ready, err := c.ready(ctx, life)
		if ready {
			c.log.Info("ready", "program", c.name, "pid", life.pid)
			go c.keep()
			return nil
		}
		c.finish(life)
		if err != nil {
			return err
		}
		if try == startTries {
			return fault(CodeProgram, "%s does not start (%s); the end of %s:\n%s", c.name, life.end, c.layout.LogFile(c.name), c.tail(life))
		}
		c.log.Warn("program ended before it was ready", "program", c.name, "how", life.end)
		if err := pauseFor(ctx, pause); err != nil {
			return err
		}
		pause *= 2
	}
}

// ready waits for the program's boot file; false without an error means that
// the program ended.
func (c *child) ready(ctx context.Context, life *life) (bool, error) {
	deadline := time.Now().Add(bootWait)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := c.layout.boot(c.folder); err == nil && b.PID == life.pid {
			return true, nil
		}
		select {
		case <-life.done:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-tick.C:
		}
		if time.Now().After(deadline) {
			return false, fault(CodeProgram, "%s is not ready after %s; the end of %s:\n%s", c.name, bootWait, c.layout.LogFile(c.name), c.tail(life))
		}
	}
}

// keep restarts the program whenever it ends, until the child is stopped.
func (c *child) keep() {
	defer close(c.gone)
	pause := backoffMin
	for {
		select {
		case <-c.stop:
			c.finish(c.now)
			return
		case <-c.now.done:
		}
		if time.Since(c.now.started) >= steady {
			pause = backoffMin
		}
		c.log.Warn("program ended and is started again", "program", c.name, "pid", c.now.pid, "how", c.now.end, "in", pause)
		for {
			select {
			case <-c.stop:
				c.layout.dropRecord(c.name)
				return
			case <-time.After(pause):
			}
			pause = min(pause*2, backoffMax)
			life, err := c.launch()
			if err == nil {
				c.now = life
				break
			}
			c.log.Error("program can't be started", "program", c.name, "error", err)
		}
	}
}

// end stops a started child and returns when its process is gone.
func (c *child) end() {
	c.once.Do(func() { close(c.stop) })
	<-c.gone
}

// finish ends a process: asked first, killed when it does not listen.
func (c *child) finish(life *life) {
	grace := c.grace
	if _, err := os.Stat(c.layout.stopMarker()); err == nil && c.name == workerName {
		grace = drainGrace
	}
	_ = life.proc.Signal(syscall.SIGTERM)
	select {
	case <-life.done:
	case <-time.After(grace):
		c.log.Warn("program did not stop and is killed", "program", c.name, "pid", life.pid, "after", grace)
		_ = life.proc.Kill()
		<-life.done
	}
	c.layout.dropRecord(c.name)
}

// launch starts the holder, writes its record, and lets it become the program.
func (c *child) launch() (*life, error) {
	args, err := c.args()
	if err != nil {
		return nil, faultOf(CodeProgram, err, "%s: can't be started", c.name)
	}
	logFile, from, err := openLog(c.layout.LogFile(c.name))
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	gateOut, gateIn, err := os.Pipe()
	if err != nil {
		return nil, faultOf(CodeMachine, err, "%s: can't be started", c.name)
	}
	defer gateIn.Close()
	path := filepath.Join(c.bin, c.name)
	cmd := exec.Command(c.hold[0], append(append(append([]string{}, c.hold[1:]...), path), args...)...)
	cmd.Args[0] = c.name
	cmd.Dir = "/"
	cmd.Env = c.environment()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = []*os.File{gateOut}
	// A session of its own, so that a terminal's signals reach the supervisor only.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.as.uid != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.as.uid), Gid: uint32(c.as.gid)}
	}
	err = cmd.Start()
	gateOut.Close()
	if err != nil {
		return nil, faultOf(CodeProgram, err, "%s: can't be started", c.name)
	}
	life := &life{pid: cmd.Process.Pid, proc: cmd.Process, started: time.Now(), logFrom: from, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		life.end = cmd.ProcessState.String()
		close(life.done)
	}()
	if err := c.release(life, path, gateIn); err != nil {
		_ = life.proc.Kill()
		<-life.done
		return nil, err
	}
	return life, nil
}

// release writes the record of the held process and opens its gate.
func (c *child) release(life *life, path string, gate io.Writer) error {
	holder, err := filepath.EvalSymlinks(c.hold[0])
	if err != nil {
		return faultOf(CodeProgram, err, "%s", c.hold[0])
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return faultOf(CodeProgram, err, "%s", c.name)
	}
	r, err := newRecord(c.name, life.pid, holder, path)
	if err != nil {
		return faultOf(CodeProgram, err, "%s: ended at once", c.name)
	}
	if err := c.layout.writeRecord(r); err != nil {
		return err
	}
	if _, err := gate.Write([]byte{1}); err != nil && !errors.Is(err, syscall.EPIPE) {
		return faultOf(CodeProgram, err, "%s: can't be started", c.name)
	}
	return nil
}

// environment is all of a daemon's environment; nothing else of the caller's
// reaches it. Its home is its own folder. A user without an entry in the
// machine's list is known by name all the same: libraries ask for it.
func (c *child) environment() []string {
	env := []string{"PATH=" + searchPath(os.Getenv("PATH")), "HOME=" + c.layout.path(c.folder), "USER=" + c.name}
	for _, name := range []string{"LANG", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// searchPath is the part of a search path that only root can put programs
// into, with the machine's usual folders at its end. The worker finds the
// machine's toolchains by it.
func searchPath(path string) string {
	usual := []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	var dirs []string
	for _, dir := range append(filepath.SplitList(path), usual...) {
		if !slices.Contains(dirs, dir) && (slices.Contains(usual, dir) || rootsOwn(dir)) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// rootsOwn says whether nobody but root can change what is in a folder, or put
// another in its place.
func rootsOwn(dir string) bool {
	if !filepath.IsAbs(dir) {
		return false
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for at := real; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			return false
		}
		if at == "/" {
			return true
		}
	}
}

// openLog opens a log for appending and returns where it ends. One that grew
// large is put aside, in place of the one put aside before.
func openLog(path string) (*os.File, int64, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, 0, faultOf(CodeStorage, err, "log %s", path)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, faultOf(CodeStorage, err, "log %s", path)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, faultOf(CodeStorage, err, "log %s", path)
	}
	return f, info.Size(), nil
}

// tail is the end of what a process wrote.
func (c *child) tail(life *life) string { return tailOf(c.layout.LogFile(c.name), life.logFrom) }

func tailOf(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		from = max(from, info.Size()-4096)
	}
	data, err := io.ReadAll(io.NewSectionReader(f, from, 4096))
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	lines = lines[max(0, len(lines)-12):]
	if len(lines) == 1 && lines[0] == "" {
		return "  (it wrote nothing)"
	}
	for i, line := range lines {
		// What was tried stands at the beginning, and what was wrong at the end.
		if len(line) > 600 {
			lines[i] = line[:250] + " … " + line[len(line)-300:]
		}
	}
	return "  " + strings.ToValidUTF8(strings.Join(lines, "\n  "), "�")
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

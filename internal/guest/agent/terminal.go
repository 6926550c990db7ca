package agent

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// openTerminal makes a terminal of the wanted size. It belongs to the command's
// user: whoever opens the master owns it.
func (a *Agent) openTerminal(cmd guest.Command) (streams, error) {
	master, replica := -1, -1
	open := func() (err error) {
		if master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		number, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
		if err != nil {
			return err
		}
		if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		path := "/dev/pts/" + strconv.FormatUint(uint64(number), 10)
		replica, err = unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		return err
	}
	var err error
	if cmd.User == "" || cmd.User == guest.UserAgent {
		err = a.asAgent(open)
	} else {
		err = open()
	}
	if err == nil {
		err = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: cmd.Terminal.Rows, Col: cmd.Terminal.Cols})
	}
	if err != nil {
		closeAll([]int{master, replica})
		return streams{}, fmt.Errorf("terminal: %w", err)
	}
	return streams{theirs: []int{replica, replica, replica}, outputs: []int{master}, input: master}, nil
}

// resize gives a command's terminal another size. The programs on it are told
// also when it has that size already, so that one who attaches sees them draw
// themselves anew.
func (a *Agent) resize(r guest.ResizeRequest) *guest.Error {
	if !r.Size.Valid() {
		return guest.Errorf(guest.ReasonInvalid, "a terminal can't have %d rows and %d columns", r.Size.Rows, r.Size.Cols)
	}
	a.mu.Lock()
	c := a.byID[r.ID]
	a.mu.Unlock()
	if c == nil {
		return guest.Errorf(guest.ReasonNotFound, "command %q: not found", r.ID)
	}
	<-c.ready
	a.mu.Lock()
	var same bool
	err := errNoTerminal
	if c.status.Terminal && len(c.pipes) == 1 {
		same, err = c.pipes[0].setSize(r.Size)
	}
	a.mu.Unlock()
	switch {
	case errors.Is(err, errNoTerminal):
		return guest.Errorf(guest.ReasonInvalid, "command %q has no terminal, or not any more", r.ID)
	case err != nil:
		return guest.Errorf(guest.ReasonInternal, "command %q: its terminal's size: %v", r.ID, err)
	}
	if same {
		for _, pid := range a.members(c) {
			_ = unix.Kill(pid, unix.SIGWINCH) // It may have ended just now.
		}
	}
	return nil
}

var errNoTerminal = errors.New("no terminal")

// setSize sets the size of the terminal that the pipe is, and says whether it had
// it already. The kernel tells the programs of a change.
func (p *pipe) setSize(size guest.Size) (same bool, err error) {
	if p.over {
		return false, errNoTerminal
	}
	raw, err := p.file.SyscallConn()
	if err != nil {
		return false, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		old, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
		if err == nil && old.Row == size.Rows && old.Col == size.Cols {
			same = true
			return
		}
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	return same, errors.Join(err, failed)
}

package agent

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// endOfInput is what a terminal takes for the end of its input (VEOF, Ctrl-D).
const endOfInput = 4

// input is a command's standard input: what the worker sent and the program has
// not read. Agent.mu guards it.
type input struct {
	file     *os.File // the writing end of a pipe, or the terminal
	terminal bool
	taken    int64  // bytes, in all
	waiting  []byte // taken and not being written
	writing  int    // bytes that are
	closing  bool   // no more is taken; what waits is written first
	over     bool   // the program closed its end, or has ended
	changed  *sync.Cond
	asker    uint64 // the request that waits for room
	idle     *time.Timer
	patience time.Duration
}

func (a *Agent) newInput(file *os.File, cmd guest.Command) *input {
	in := &input{
		file: file, terminal: cmd.Terminal != nil, closing: !cmd.Stdin, changed: sync.NewCond(&a.mu), patience: cmd.StdinIdle,
	}
	if in.patience > 0 {
		in.idle = time.AfterFunc(in.patience, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			in.closing = true
			in.changed.Broadcast()
		})
	}
	return in
}

// open says whether more is taken. The caller holds mu.
func (in *input) open() bool { return in != nil && !in.closing && !in.over }

// end takes no more, and wakes whoever writes. The caller holds mu.
func (in *input) end() {
	in.over, in.waiting = true, nil
	if in.idle != nil {
		in.idle.Stop()
	}
	_ = in.file.SetWriteDeadline(time.Unix(1, 0))
	in.changed.Broadcast()
}

// feed writes a command's input until it is closed or nobody reads it.
func (a *Agent) feed(in *input) {
	for {
		a.mu.Lock()
		for len(in.waiting) == 0 && !in.closing && !in.over {
			in.changed.Wait()
		}
		data, over := in.waiting, in.over
		in.waiting, in.writing = nil, len(data)
		a.mu.Unlock()
		if over {
			break
		}
		if len(data) == 0 {
			if in.terminal {
				_, _ = in.file.Write([]byte{endOfInput}) // It may have ended just now.
			}
			break
		}
		_, err := in.file.Write(data)
		a.mu.Lock()
		in.writing = 0
		if err != nil {
			in.over = true
		}
		in.changed.Broadcast()
		a.mu.Unlock()
	}
	a.mu.Lock()
	in.over = true
	in.changed.Broadcast()
	a.mu.Unlock()
	if !in.terminal {
		in.file.Close()
	}
}

// takeInput answers a request with input: when some of it was taken, or none can
// be any more. One request waits at a time; a newer one sends it away.
func (a *Agent) takeInput(epoch, request uint64, r guest.InputRequest) {
	a.mu.Lock()
	c := a.byID[r.ID]
	a.mu.Unlock()
	if c == nil {
		a.answer(epoch, request, guest.Answer{Error: guest.Errorf(guest.ReasonNotFound, "command %q: not found", r.ID)})
		return
	}
	<-c.ready
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := guest.Answer{Input: &guest.InputState{}}
	if in := c.input; in != nil {
		if r.Offset > in.taken {
			answer = guest.Answer{Error: guest.Errorf(guest.ReasonInvalid, "command %q: its input goes on at %d, not at %d", r.ID, in.taken, r.Offset)}
		} else {
			a.pour(epoch, request, in, r)
			answer.Input.Taken, answer.Input.Open = in.taken, in.open()
		}
	}
	if epoch == a.epoch {
		a.send(guest.Reply, request, guest.Marshal(answer))
	}
}

// pour takes what of the request is new and fits. The caller holds mu.
func (a *Agent) pour(epoch, request uint64, in *input, r guest.InputRequest) {
	if in.idle != nil && in.open() {
		in.idle.Reset(in.patience)
	}
	in.asker = request
	in.changed.Broadcast()
	for in.open() && epoch == a.epoch && in.asker == request {
		data := r.Data[min(in.taken-r.Offset, int64(len(r.Data))):]
		n := max(0, min(len(data), guest.InputBuffer-len(in.waiting)-in.writing))
		in.waiting = append(in.waiting, data[:n]...)
		in.taken += int64(n)
		if n == len(data) && r.Close && in.taken == r.Offset+int64(len(r.Data)) {
			in.closing = true
		}
		if n > 0 || len(data) == 0 {
			in.changed.Broadcast()
			return
		}
		in.changed.Wait()
	}
}

// streams are a command's descriptors: what its process gets, and our ends.
type streams struct {
	theirs  []int // standard input, output and error of the process; may repeat
	outputs []int // our reading ends; of a terminal the one that is written to as well
	input   int   // our writing end; -1: none
}

// close closes every descriptor that is given, once.
func closeAll(fds ...[]int) {
	done := map[int]bool{}
	for _, list := range fds {
		for _, fd := range list {
			if fd >= 0 && !done[fd] {
				done[fd] = true
				unix.Close(fd)
			}
		}
	}
}

// openStreams makes pipes or a terminal for a command.
func (a *Agent) openStreams(cmd guest.Command) (s streams, err error) {
	if cmd.Terminal != nil {
		return a.openTerminal(cmd)
	}
	s = streams{theirs: []int{a.null}, input: -1}
	var made []int
	pipe := func() (reading, writing int) {
		var ends [2]int
		if err == nil {
			err = unix.Pipe2(ends[:], unix.O_CLOEXEC)
		}
		if err != nil {
			return -1, -1
		}
		made = append(made, ends[:]...)
		return ends[0], ends[1]
	}
	if cmd.Stdin {
		s.theirs[0], s.input = pipe()
	}
	for range 2 {
		reading, writing := pipe()
		s.outputs, s.theirs = append(s.outputs, reading), append(s.theirs, writing)
		// A command that writes a lot is then read in large pieces; it works without.
		_, _ = unix.FcntlInt(uintptr(reading), unix.F_SETPIPE_SZ, pipeSize)
	}
	if err != nil {
		closeAll(made)
	}
	return s, err
}

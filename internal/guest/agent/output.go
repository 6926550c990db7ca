package agent

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// piece is a run of kept output of one descriptor.
type piece struct {
	fd     int
	offset int64 // of data's first byte
	data   []byte
}

// pipe is the reading end of a command's standard output or error.
type pipe struct {
	fd   int // 1 or 2
	file *os.File
	read int64 // bytes
	goal int64 // with the command's exit: the bytes that were written until then
	over bool
}

// pump reads a pipe until it ends. With a full buffer it doesn't read, and the
// command blocks.
func (a *Agent) pump(c *command, p *pipe) {
	defer p.file.Close()
	raw, err := p.file.SyscallConn()
	if err != nil {
		a.closePipe(c, p)
		return
	}
	for {
		a.mu.Lock()
		for !a.room(c) {
			c.space.Wait()
		}
		a.mu.Unlock()
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			n, failed = unix.Read(int(fd), a.scratch)
			if failed == unix.EAGAIN {
				return false
			}
			if failed == unix.EINTR {
				n, failed = -1, nil
				return true
			}
			if n > 0 {
				p.read += int64(n)
				a.keep(c, p.fd, a.scratch[:n])
			}
			return true
		})
		if err != nil || failed != nil || n == 0 {
			a.closePipe(c, p)
			return
		}
	}
}

func (a *Agent) closePipe(c *command, p *pipe) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.over = true
	c.drained.Broadcast()
	a.wake.Signal()
}

// room says whether more of the command's output can be kept. A command of which
// nothing is kept always may go on, whatever the others have. The caller holds mu.
func (a *Agent) room(c *command) bool {
	return c.kept == 0 || c.kept < guest.CommandBuffer && a.kept < guest.TotalBuffer
}

// keep takes output until the worker has it, up to the command's limit. The
// caller holds mu.
func (a *Agent) keep(c *command, fd int, data []byte) {
	c.drained.Broadcast()
	if left := c.limit - c.end; int64(len(data)) > left {
		c.cut += int64(len(data)) - left
		data = data[:left]
		if !c.overflow {
			c.overflow = true
			c.blame(guest.ReasonOutput)
			c.ending++
			go a.endTree(c, 0)
		}
	}
	if len(data) == 0 {
		return
	}
	if k := len(c.pieces) - 1; k >= 0 && c.pieces[k].fd == fd && cap(c.pieces[k].data)-len(c.pieces[k].data) >= len(data) {
		c.pieces[k].data = append(c.pieces[k].data, data...)
	} else {
		// A small piece gets some room to grow, a command that writes a lot is read in
		// large ones.
		buf := make([]byte, len(data), max(len(data), 2<<10))
		copy(buf, data)
		c.pieces = append(c.pieces, piece{fd: fd, offset: c.end, data: buf})
		c.kept += int64(cap(buf))
		a.kept += int64(cap(buf))
	}
	c.end += int64(len(data))
	a.wake.Signal()
}

// outputOf appends the command's next frame: output, or its end when all output
// up to it was sent. The caller holds mu.
func (a *Agent) outputOf(c *command, buf []byte) []byte {
	if !c.resumed {
		return buf
	}
	for i := range c.pieces {
		p := &c.pieces[i]
		if skip := c.sent - p.offset; skip < int64(len(p.data)) {
			data := p.data[skip:]
			data = data[:min(len(data), guest.MaxChunk)]
			payload := guest.AppendOutput(a.frame[:0], guest.Chunk{Fd: p.fd, Offset: c.sent, Data: data})
			a.frame = payload
			c.sent += int64(len(data))
			return guest.AppendFrame(buf, guest.Frame{Type: guest.Output, Epoch: a.epoch, Stream: c.number, Payload: payload})
		}
	}
	state := endOpen
	switch {
	case c.final && c.closed():
		state = endClosed
	case c.final:
		state = endExited
	}
	if state <= c.told {
		return buf
	}
	c.told = state
	ending := guest.Ending{Status: c.status, Offset: c.exitOffset, Closed: state == endClosed}
	return guest.AppendMessage(buf, guest.Frame{
		Type: guest.Exit, Epoch: a.epoch, Stream: c.number, Payload: guest.Marshal(ending),
	})
}

// acknowledged forgets what the worker has on disk.
func (a *Agent) acknowledged(f guest.Frame) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.byNum[f.Stream]
	if c == nil {
		return
	}
	if f.Type == guest.ExitAck {
		if c.told == endClosed && len(f.Payload) == 1 && f.Payload[0] == 1 {
			a.forget(c)
		}
		return
	}
	offset, _, ok := guest.ParseOffset(f.Payload)
	if !ok || offset > c.end {
		return
	}
	if offset > c.acked {
		c.acked = offset
		a.discard(c)
	}
	if f.Type == guest.Resume && !c.resumed {
		c.resumed, c.sent, c.told = true, c.acked, endOpen
		a.wake.Signal()
	}
}

// discard drops the pieces before the acknowledged offset. The caller holds mu.
func (a *Agent) discard(c *command) {
	i := 0
	for ; i < len(c.pieces); i++ {
		p := c.pieces[i]
		if p.offset+int64(len(p.data)) > c.acked {
			break
		}
		c.kept -= int64(cap(p.data))
		a.kept -= int64(cap(p.data))
		c.pieces[i] = piece{}
	}
	c.pieces = c.pieces[i:]
	if len(c.pieces) == 0 {
		c.pieces = nil
	}
	if i == 0 {
		return
	}
	for _, other := range a.active {
		other.space.Broadcast()
	}
}

// forget leaves of a command only what makes its id known for ever. The caller
// holds mu.
func (a *Agent) forget(c *command) {
	delete(a.byNum, c.number)
	for i, other := range a.active {
		if other == c {
			a.active = append(a.active[:i], a.active[i+1:]...)
			break
		}
	}
	a.kept -= c.kept
	c.kept, c.pieces, c.pipes, c.input, c.settled = 0, nil, nil, nil, true
}

// unread is the count of bytes that wait in the pipe.
func (p *pipe) unread() int64 {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return 0
	}
	var n int
	if raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) != nil || err != nil {
		return 0
	}
	return int64(n)
}

// drain waits until what was written before the exit was read, whoever else still
// holds the pipes. The caller holds mu.
func (a *Agent) drain(c *command) {
	for {
		waiting := false
		for _, p := range c.pipes {
			waiting = waiting || !p.over && p.read < p.goal
		}
		if !waiting {
			return
		}
		c.drained.Wait()
	}
}

// pause waits for d.
func pause(d time.Duration) {
	<-time.After(d)
}

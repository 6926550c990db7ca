package agent

import (
	"io"
	"sync"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent/archive"
)

// flow is a transfer of bytes from the worker (put) or to it (get). At most
// guest.Window bytes are on their way.
type flow struct {
	agent *Agent
	epoch uint64
	id    uint64
	put   bool

	mu      sync.Mutex
	changed *sync.Cond
	buffers [][]byte
	count   int64 // bytes received (put) or sent (get)
	taken   int64 // bytes that the consumer has taken
	told    int64 // put: the last credit that was sent
	ended   bool  // put: no more bytes follow
	dead    bool  // the worker is gone or gave up
}

// openFlow makes a flow known.
func (a *Agent) openFlow(epoch, id uint64, put bool) *flow {
	f := &flow{agent: a, epoch: epoch, id: id, put: put}
	f.changed = sync.NewCond(&f.mu)
	a.mu.Lock()
	defer a.mu.Unlock()
	if epoch != a.epoch {
		f.dead = true
		return f
	}
	a.flows[id] = f
	return f
}

// cut ends the flow: its epoch is over, or the worker gave up.
func (f *flow) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead, f.buffers = true, nil
	f.changed.Broadcast()
}

// close answers the transfer.
func (f *flow) close(answer guest.Answer) {
	f.agent.mu.Lock()
	if f.agent.flows[f.id] == f {
		delete(f.agent.flows, f.id)
	}
	f.agent.mu.Unlock()
	f.agent.answer(f.epoch, f.id, answer)
}

// flowFrame takes a frame of a transfer.
func (a *Agent) flowFrame(frame guest.Frame) {
	a.mu.Lock()
	f := a.flows[frame.Stream]
	if f != nil && frame.Type == guest.TransferStop {
		delete(a.flows, frame.Stream)
	}
	a.mu.Unlock()
	if f == nil {
		return
	}
	if frame.Type == guest.TransferStop {
		f.cut()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch frame.Type {
	case guest.Data:
		if f.put && !f.ended && f.count+int64(len(frame.Payload))-f.told <= guest.Window {
			f.buffers = append(f.buffers, append([]byte(nil), frame.Payload...))
			f.count += int64(len(frame.Payload))
		}
	case guest.TransferEnd:
		f.ended = true
	case guest.Credit:
		if n, _, ok := guest.ParseOffset(frame.Payload); ok && n > f.taken && n <= f.count {
			f.taken = n
		}
	}
	f.changed.Broadcast()
}

// Read gives the bytes of a put.
func (f *flow) Read(p []byte) (int, error) {
	f.mu.Lock()
	for len(f.buffers) == 0 && !f.ended && !f.dead {
		f.changed.Wait()
	}
	if f.dead {
		f.mu.Unlock()
		return 0, archive.ErrCut
	}
	if len(f.buffers) == 0 {
		f.mu.Unlock()
		return 0, io.EOF
	}
	n := copy(p, f.buffers[0])
	if f.buffers[0] = f.buffers[0][n:]; len(f.buffers[0]) == 0 {
		f.buffers[0] = nil
		f.buffers = f.buffers[1:]
	}
	f.taken += int64(n)
	credit := int64(-1)
	if f.taken-f.told >= guest.Window/4 {
		f.told, credit = f.taken, f.taken
	}
	f.mu.Unlock()
	if credit >= 0 {
		f.send(guest.Credit, guest.AppendOffset(nil, credit))
	}
	return n, nil
}

// Write sends bytes of a get, waiting for credit.
func (f *flow) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		data := p[done:min(len(p), done+guest.MaxData)]
		f.mu.Lock()
		for !f.dead && f.count+int64(len(data))-f.taken > guest.Window {
			f.changed.Wait()
		}
		if f.dead {
			f.mu.Unlock()
			return done, archive.ErrCut
		}
		f.count += int64(len(data))
		f.mu.Unlock()
		f.send(guest.Data, append([]byte(nil), data...))
		done += len(data)
	}
	return done, nil
}

func (f *flow) send(kind guest.Type, payload []byte) {
	f.agent.mu.Lock()
	defer f.agent.mu.Unlock()
	if f.agent.epoch == f.epoch {
		f.agent.send(kind, f.id, payload)
	}
}

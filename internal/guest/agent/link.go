package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cofferdam/cofferdam/internal/guest"
)

const batchSize = 256 << 10

// read takes frames until in ends. It never waits for the writer.
func (a *Agent) read(in io.Reader) error {
	reader := guest.NewReader(in)
	var assembler guest.Assembler
	for {
		frame, err := reader.Next()
		if errors.Is(err, guest.ErrCorrupt) {
			a.lost()
			continue
		}
		if err != nil {
			return fmt.Errorf("channel: %w", err)
		}
		if frame.Type == guest.Hello {
			a.hello(frame.Epoch)
			continue
		}
		a.mu.Lock()
		current := frame.Epoch == a.epoch && a.epoch != 0
		a.mu.Unlock()
		if !current {
			continue
		}
		if message, whole := assembler.Add(frame); whole {
			a.receive(message)
		}
	}
}

// lost tells the worker that bytes of its did not arrive. A worker that is gone
// doesn't hear it, which is right.
func (a *Agent) lost() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.epoch != 0 && !a.resync {
		a.resync = true
		a.send(guest.Resync, 0, nil)
	}
}

// hello begins an epoch, or answers again when the worker repeats itself.
func (a *Agent) hello(epoch uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if epoch == 0 {
		return
	}
	if epoch != a.epoch {
		a.epoch, a.resync = epoch, false
		a.outbox = nil
		for id, f := range a.flows {
			f.cut()
			delete(a.flows, id)
		}
		for _, c := range a.active {
			c.resumed = false
			if c.input != nil {
				c.input.changed.Broadcast() // Who waits, waits for nobody.
			}
		}
	}
	greeting := guest.Greeting{Boot: a.boot}
	for _, c := range a.active {
		if c.pid == 0 && !c.final {
			continue // It is being started; the worker will ask again.
		}
		greeting.Commands = append(greeting.Commands, guest.ActiveCommand{
			Number: c.number, Acked: c.acked, Status: c.status,
		})
	}
	a.send(guest.Welcome, 0, guest.Marshal(greeting))
}

func (a *Agent) receive(f guest.Frame) {
	switch f.Type {
	case guest.Resume, guest.Ack, guest.ExitAck:
		a.acknowledged(f)
	case guest.Start:
		var cmd guest.Command
		if a.parse(f, &cmd) {
			go a.start(f.Epoch, f.Stream, cmd)
		}
	case guest.Signal:
		var s guest.SignalRequest
		if a.parse(f, &s) {
			go a.answer(f.Epoch, f.Stream, guest.Answer{Error: a.signal(s)})
		}
	case guest.Input:
		r, ok := guest.ParseInput(f.Payload)
		if !ok {
			a.answer(f.Epoch, f.Stream, guest.Answer{Error: guest.Errorf(guest.ReasonInvalid, "the input can't be read")})
			return
		}
		r.Data = bytes.Clone(r.Data) // It lies in the reader's buffer.
		go a.takeInput(f.Epoch, f.Stream, r)
	case guest.Resize:
		var r guest.ResizeRequest
		if a.parse(f, &r) {
			go a.answer(f.Epoch, f.Stream, guest.Answer{Error: a.resize(r)})
		}
	case guest.Inspect:
		var r guest.InspectRequest
		if a.parse(f, &r) {
			go a.answer(f.Epoch, f.Stream, a.inspect(r))
		}
	case guest.Configure:
		var cfg guest.Config
		if a.parse(f, &cfg) {
			go a.answer(f.Epoch, f.Stream, guest.Answer{Error: a.configure(cfg)})
		}
	case guest.Protect:
		var p guest.Protection
		if a.parse(f, &p) {
			go func() { a.answer(f.Epoch, f.Stream, a.protect(p)) }()
		}
	case guest.Freeze:
		go func() { a.answer(f.Epoch, f.Stream, guest.Answer{Error: a.freezeAll()}) }()
	case guest.Ping:
		a.answer(f.Epoch, f.Stream, guest.Answer{})
	case guest.Shutdown:
		go a.answer(f.Epoch, f.Stream, guest.Answer{Error: a.shutdown()})
	case guest.Put:
		var p guest.PutRequest
		if a.parse(f, &p) {
			a.openPut(f.Epoch, f.Stream, p)
		}
	case guest.Get:
		var g guest.GetRequest
		if a.parse(f, &g) {
			a.openGet(f.Epoch, f.Stream, g)
		}
	case guest.FileDo:
		var op guest.FileOp
		if a.parse(f, &op) {
			go a.doFile(f.Epoch, f.Stream, op)
		}
	case guest.FileRead:
		var r guest.FileReadRequest
		if a.parse(f, &r) {
			a.openFileRead(f.Epoch, f.Stream, r)
		}
	case guest.FileWrite:
		var w guest.FileWriteRequest
		if a.parse(f, &w) {
			a.openFileWrite(f.Epoch, f.Stream, w)
		}
	case guest.Data, guest.TransferEnd, guest.TransferStop, guest.Credit:
		a.flowFrame(f)
	}
}

func (a *Agent) parse(f guest.Frame, v any) bool {
	if err := json.Unmarshal(f.Payload, v); err != nil {
		a.answer(f.Epoch, f.Stream, guest.Answer{Error: guest.Errorf(guest.ReasonInvalid, "the request can't be read: %v", err)})
		return false
	}
	return true
}

// answer replies to a request, unless its epoch is over: the worker asks again.
func (a *Agent) answer(epoch, stream uint64, answer guest.Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if epoch == a.epoch {
		a.send(guest.Reply, stream, guest.Marshal(answer))
	}
}

// send queues a frame. The caller holds mu.
func (a *Agent) send(kind guest.Type, stream uint64, payload []byte) {
	a.outbox = append(a.outbox, guest.Frame{Type: kind, Epoch: a.epoch, Stream: stream, Payload: payload})
	a.wake.Signal()
}

// write sends what waits: answers first, then output in turns.
func (a *Agent) write(out io.Writer) error {
	var buf []byte
	for {
		buf = a.collect(buf[:0])
		if _, err := out.Write(buf); err != nil {
			return fmt.Errorf("channel: %w", err)
		}
		if cap(buf) > 2*batchSize {
			buf = nil // A large message; an idle sandbox need not keep it.
		}
	}
}

// collect waits for something to send and returns its bytes.
func (a *Agent) collect(buf []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		for len(a.outbox) > 0 && len(buf) < batchSize {
			f := a.outbox[0]
			a.outbox[0] = guest.Frame{}
			a.outbox = a.outbox[1:]
			buf = guest.AppendMessage(buf, f)
		}
		for idle := 0; idle < len(a.active) && len(buf) < batchSize; {
			a.turn++
			n := len(buf)
			if buf = a.outputOf(a.active[a.turn%len(a.active)], buf); len(buf) == n {
				idle++
			} else {
				idle = 0
			}
		}
		if len(buf) > 0 {
			return buf
		}
		a.wake.Wait()
	}
}

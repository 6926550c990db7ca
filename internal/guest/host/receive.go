package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// read takes frames until the channel is closed.
func (c *Conn) read() {
	reader := guest.NewReader(c.out)
	var assembler guest.Assembler
	for {
		frame, err := reader.Next()
		if errors.Is(err, guest.ErrCorrupt) {
			c.lost("corrupt frame")
			continue
		}
		if err != nil {
			c.end(fmt.Errorf("%w: read: %w", ErrClosed, err))
			return
		}
		if !c.current(frame) {
			continue
		}
		if message, whole := assembler.Add(frame); whole {
			c.receive(message)
		}
	}
}

// current says whether the frame belongs to the epoch.
func (c *Conn) current(f guest.Frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f.Epoch == c.epoch && (c.established || f.Type == guest.Welcome)
}

// lost begins anew when bytes of an established epoch are missing.
func (c *Conn) lost(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.established {
		c.begin(why)
	}
}

// drop counts a frame that makes no sense. The first is worth a line.
func (c *Conn) drop(f guest.Frame, why string) {
	c.mu.Lock()
	c.dropped++
	first := c.dropped == 1
	c.mu.Unlock()
	if first {
		c.log.Warn("dropped a frame of the guest", slog.Int("type", int(f.Type)), slog.String("why", why))
	}
}

func (c *Conn) receive(f guest.Frame) {
	switch f.Type {
	case guest.Welcome:
		var greeting guest.Greeting
		if err := json.Unmarshal(f.Payload, &greeting); err != nil {
			c.drop(f, "not a greeting")
			return
		}
		c.welcome(greeting)
	case guest.Resync:
		c.lost("the guest lost bytes")
	case guest.Output:
		c.output(f)
	case guest.Exit:
		c.exit(f)
	case guest.Reply:
		c.reply(f)
	case guest.Data:
		c.data(f)
	case guest.Credit:
		c.credit(f)
	default:
		c.drop(f, "unknown type")
	}
}

// welcome establishes the epoch: each command goes on from what is on disk, and
// requests without an answer are asked again.
func (c *Conn) welcome(greeting guest.Greeting) {
	c.mu.Lock()
	if c.established {
		c.mu.Unlock()
		return // The answer to a hello that we repeated.
	}
	c.mu.Unlock()
	type resumed struct {
		number uint64
		offset int64
	}
	var resume []resumed
	numbers := map[uint64]*command{}
	active := map[string]bool{}
	for _, a := range greeting.Commands {
		cmd, ok := c.journals.get(a.Status.ID)
		if !ok || active[a.Status.ID] || numbers[a.Number] != nil {
			continue // No record of ours asked for it.
		}
		if err := cmd.started(a.Status); err != nil {
			c.log.Error("can't record a command", slog.Any("error", err))
			continue
		}
		offset, err := cmd.resume(a.Acked)
		if err != nil {
			c.log.Error("can't go on with a command", slog.Any("error", err))
			continue
		}
		active[cmd.id], numbers[a.Number] = true, cmd
		resume = append(resume, resumed{a.Number, offset})
	}
	c.forsake(active)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.established, c.boot = true, greeting.Boot
	c.numbers = numbers
	for _, r := range resume {
		c.send(guest.Resume, r.number, guest.AppendOffset(nil, r.offset))
	}
	c.repeat()
	c.wake.Signal()
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
}

// forsake ends the commands that were started and that the guest has forgotten.
func (c *Conn) forsake(active map[string]bool) {
	for _, cmd := range c.journals.list() {
		if active[cmd.id] {
			continue
		}
		if err := cmd.forgotten(); err != nil {
			c.log.Error("can't record a command's end", slog.Any("error", err))
		}
	}
}

func (c *Conn) output(f guest.Frame) {
	chunk, ok := guest.ParseOutput(f.Payload)
	cmd := c.numbered(f.Stream)
	if !ok || cmd == nil {
		c.drop(f, "output of no command")
		return
	}
	size, err := cmd.append(chunk)
	var refused *guest.Error
	switch {
	case errors.As(err, &refused):
		c.drop(f, refused.Text)
		return
	case err != nil:
		// Missing bytes, or a full disk: the guest still has what we don't, and a new
		// epoch asks for it again.
		c.lost(err.Error())
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.established && c.numbers[f.Stream] == cmd {
		c.acks[f.Stream] = size
		c.wake.Signal()
	}
}

func (c *Conn) exit(f guest.Frame) {
	var ending guest.Ending
	cmd := c.numbered(f.Stream)
	if err := json.Unmarshal(f.Payload, &ending); err != nil || cmd == nil || ending.Status.ID != cmd.id || ending.Offset < 0 {
		c.drop(f, "the end of no command")
		return
	}
	if err := cmd.ended(ending); err != nil {
		c.lost(err.Error())
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.established || c.numbers[f.Stream] != cmd {
		return
	}
	closed := byte(0)
	if ending.Closed {
		closed = 1
		delete(c.numbers, f.Stream)
		delete(c.acks, f.Stream)
	}
	c.send(guest.ExitAck, f.Stream, []byte{closed})
}

func (c *Conn) numbered(number uint64) *command {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.numbers[number]
}

package host

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// Options say what to dial. In, Out and Dir are required.
type Options struct {
	In     *os.File     // the FIFO that is the guest's standard input, opened O_RDWR|O_NONBLOCK; stays the caller's
	Out    *os.File     // the FIFO that is the guest's standard output, opened O_RDWR|O_NONBLOCK; stays the caller's
	Dir    string       // the journals' folder; made when absent
	Logger *slog.Logger // nil: nothing is logged
}

const (
	helloFirst = 20 * time.Millisecond // to repeat a hello after; doubled up to helloLast
	helloLast  = time.Second
	pipeSize   = 1 << 20
	batchSize  = 256 << 10
)

// Conn holds the channel to a guest. All methods are safe for concurrent use.
type Conn struct {
	in, out  *os.File
	log      *slog.Logger
	journals *Journals
	done     chan struct{}
	once     sync.Once
	cause    error // why it ended, set before done is closed
	loops    sync.WaitGroup
	kick     chan struct{} // tells the greeter that an epoch began

	mu          sync.Mutex
	wake        *sync.Cond // the writer's
	epoch       uint64
	established bool
	ready       chan struct{} // closed once the first epoch is established
	outbox      []guest.Frame // in order; all but hellos wait for the epoch
	hello       bool          // one is to be written
	numbers     map[uint64]*command
	acks        map[uint64]int64
	lastID      uint64
	requests    map[uint64]*request
	transfers   map[uint64]*transfer
	boot        string
	dropped     int64 // frames that made no sense
	closing     bool
}

// Dial takes the channel and repeats its hello until the guest answers or ctx
// ends. The guest need not run yet. One worker at a time may hold a channel.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	journals, err := OpenJournals(o.Dir)
	if err != nil {
		return nil, err
	}
	for _, file := range []*os.File{o.In, o.Out} {
		if err := file.SetDeadline(time.Time{}); err != nil {
			return nil, fmt.Errorf("dial: %s was not opened O_NONBLOCK: %w", file.Name(), err)
		}
		enlarge(file)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Conn{
		in: o.In, out: o.Out, log: o.Logger, journals: journals,
		done: make(chan struct{}), kick: make(chan struct{}, 1), ready: make(chan struct{}),
		numbers: map[uint64]*command{}, acks: map[uint64]int64{},
		requests: map[uint64]*request{}, transfers: map[uint64]*transfer{},
		lastID: random() >> 16, // So that an id of a dead worker is not taken for one of ours.
	}
	c.wake = sync.NewCond(&c.mu)
	c.mu.Lock()
	c.begin("dial")
	c.mu.Unlock()
	for _, loop := range []func(){c.read, c.write, c.greet} {
		c.loops.Go(loop)
	}
	select {
	case <-c.ready:
		return c, nil
	case <-c.done:
		return nil, fmt.Errorf("dial: %w", c.cause)
	case <-ctx.Done():
		c.Close()
		return nil, fmt.Errorf("dial: the guest does not answer: %w", ctx.Err())
	}
}

// enlarge makes the FIFO hold more where that is allowed; it works without.
func enlarge(file *os.File) {
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize)
	})
}

// random returns a number that is not zero.
func random() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:]) | 1
}

// Journals are the sandbox's journals. They stay readable after Close.
func (c *Conn) Journals() *Journals { return c.journals }

// Done is closed when the channel was let go of or broke. A guest that died does
// not close it: FIFOs that are held read-write have no end.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close lets go of the channel. The guest and its commands go on, and keep what
// they write until another worker dials. Streams end with ErrClosed.
func (c *Conn) Close() error {
	c.end(ErrClosed)
	c.loops.Wait()
	return c.journals.Close()
}

// Lose tells that the sandbox died, for reason: every command that had not ended
// ends with it, streams end after what was recorded, and the channel is closed.
func (c *Conn) Lose(reason string) error {
	c.end(ErrClosed)
	c.loops.Wait()
	err := c.journals.Lose(reason)
	c.journals.Close()
	return err
}

// end stops the loops.
func (c *Conn) end(cause error) {
	c.once.Do(func() {
		c.mu.Lock()
		c.cause, c.closing = cause, true
		for id, t := range c.transfers {
			t.finish(ErrClosed)
			delete(c.transfers, id)
		}
		c.wake.Broadcast()
		c.mu.Unlock()
		close(c.done)
		past := time.Unix(1, 0)
		_ = c.in.SetDeadline(past)
		_ = c.out.SetDeadline(past)
	})
}

// begin begins a new epoch. The caller holds mu.
func (c *Conn) begin(why string) {
	if c.epoch != 0 {
		c.log.Warn("the channel begins anew", slog.String("why", why), slog.Int64("dropped", c.dropped))
	}
	c.epoch, c.established = random(), false
	c.outbox = nil
	clear(c.numbers)
	clear(c.acks)
	for id, t := range c.transfers {
		t.finish(ErrInterrupted)
		delete(c.transfers, id)
	}
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// greet sends hellos until each epoch is established. Epochs that follow one
// another closely wait longer and longer, so that a hostile guest or a full disk
// can't keep the worker busy.
func (c *Conn) greet() {
	wait := helloFirst
	timer := time.NewTimer(helloLast)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-c.done:
			return
		case <-c.kick:
			if time.Since(last) > 2*helloLast {
				wait = helloFirst
				timer.Reset(0)
			} else {
				timer.Reset(wait)
			}
			continue
		case <-timer.C:
		}
		c.mu.Lock()
		if c.established {
			c.mu.Unlock()
			continue
		}
		c.hello = true
		c.wake.Signal()
		c.mu.Unlock()
		last = time.Now()
		timer.Reset(wait)
		wait = min(2*wait, helloLast)
	}
}

// write sends what waits. The reader never waits for it.
func (c *Conn) write() {
	var buf []byte
	for {
		buf = c.collect(buf[:0])
		if buf == nil {
			return
		}
		if _, err := c.in.Write(buf); err != nil {
			c.end(fmt.Errorf("%w: write: %w", ErrClosed, err))
			return
		}
	}
}

// collect returns the next bytes to write, or nil when the channel is closed.
func (c *Conn) collect(buf []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.closing {
			return nil
		}
		if c.hello {
			// The delimiter ends whatever a worker before us left half written.
			c.hello = false
			return guest.AppendFrame(append(buf, 0), guest.Frame{Type: guest.Hello, Epoch: c.epoch})
		}
		if c.established && len(c.acks)+len(c.outbox) > 0 {
			break
		}
		c.wake.Wait()
	}
	for number, offset := range c.acks {
		buf = guest.AppendFrame(buf, guest.Frame{
			Type: guest.Ack, Epoch: c.epoch, Stream: number, Payload: guest.AppendOffset(nil, offset),
		})
	}
	clear(c.acks)
	for len(c.outbox) > 0 && len(buf) < batchSize {
		f := c.outbox[0]
		c.outbox[0] = guest.Frame{}
		c.outbox = c.outbox[1:]
		f.Epoch = c.epoch
		buf = guest.AppendMessage(buf, f)
	}
	return buf
}

// send queues a frame. The caller holds mu.
func (c *Conn) send(kind guest.Type, stream uint64, payload []byte) {
	c.outbox = append(c.outbox, guest.Frame{Type: kind, Stream: stream, Payload: payload})
	c.wake.Signal()
}

package host

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// enemy is a guest that says what it likes.
type enemy struct {
	t      *testing.T
	in     *guest.Reader
	out    *os.File
	epoch  atomic.Uint64
	frames chan guest.Frame
}

// newEnemy dials a worker to an enemy that answered its hello.
func newEnemy(t *testing.T, greeting guest.Greeting) (*Conn, *enemy) {
	t.Helper()
	p := newFIFOs(t)
	in, out := p.open()
	e := &enemy{t: t, in: guest.NewReader(in), out: out, frames: make(chan guest.Frame, 1000)}
	connected := make(chan struct{})
	go func() {
		for {
			f, err := e.in.Next()
			if errors.Is(err, guest.ErrCorrupt) {
				continue
			}
			if err != nil {
				return
			}
			if f.Type == guest.Hello {
				e.epoch.Store(f.Epoch)
				e.send(guest.Welcome, 0, guest.Marshal(greeting))
				select {
				case <-connected:
				default:
					close(connected)
				}
				continue
			}
			f.Payload = append([]byte(nil), f.Payload...)
			select {
			case e.frames <- f:
			default:
			}
		}
	}()
	c := p.dial()
	<-connected
	t.Cleanup(func() {
		in.Close()
		out.Close()
	})
	return c, e
}

func (e *enemy) send(kind guest.Type, stream uint64, payload []byte) {
	_, _ = e.out.Write(guest.AppendFrame(nil, guest.Frame{Type: kind, Epoch: e.epoch.Load(), Stream: stream, Payload: payload}))
}

// expect waits for a frame of the worker.
func (e *enemy) expect(kind guest.Type) guest.Frame {
	e.t.Helper()
	for {
		select {
		case f := <-e.frames:
			if f.Type == kind {
				return f
			}
		case <-time.After(20 * time.Second):
			e.t.Fatalf("no frame of type %d came", kind)
		}
	}
}

// startOne has the worker start a command and answers as told.
func (e *enemy) startOne(c *Conn, number uint64, status guest.Status) {
	e.t.Helper()
	done := make(chan error, 1)
	go func() {
		cmd := sh("one", "true")
		cmd.MaxOutput = 100
		_, err := c.Start(soon(e.t), cmd)
		done <- err
	}()
	f := e.expect(guest.Start)
	e.send(guest.Reply, f.Stream, guest.Marshal(guest.Answer{Number: number, Status: &status}))
	if err := <-done; err != nil {
		e.t.Fatal(err)
	}
}

func TestHostileGuestCannotInventCommands(t *testing.T) {
	c, e := newEnemy(t, guest.Greeting{Commands: []guest.ActiveCommand{
		{Number: 7, Status: guest.Status{ID: "../../escape", Phase: guest.Running}},
		{Number: 8, Status: guest.Status{ID: "unknown", Phase: guest.Exited}},
	}})
	e.startOne(c, 3, guest.Status{ID: "somebody-else", Phase: guest.Running, PID: -4, Reason: "\x1b]0;x\a", Error: strings.Repeat("\x1b", 5000)})
	e.send(guest.Output, 8, guest.AppendOutput(nil, guest.Chunk{Fd: 1, Data: []byte("x")}))
	e.send(guest.Output, 3, guest.AppendOutput(nil, guest.Chunk{Fd: 1, Offset: -1, Data: []byte("x")}))
	e.send(guest.Output, 3, guest.AppendOutput(nil, guest.Chunk{Fd: 9, Data: []byte("x")}))
	e.send(guest.Output, 3, nil)
	e.send(guest.Exit, 3, guest.Marshal(guest.Ending{Status: guest.Status{ID: "other"}}))
	e.send(guest.Exit, 99, guest.Marshal(guest.Ending{Status: guest.Status{ID: "one"}}))
	e.send(guest.Exit, 3, []byte("{"))
	e.send(guest.Reply, 12345, []byte(`{"n":3}`))
	e.send(guest.Reply, 12345, []byte(`nonsense`))
	e.send(guest.Data, 3, make([]byte, guest.MaxPayload))
	e.send(guest.Credit, 3, guest.AppendOffset(nil, 1<<62))
	e.send(guest.Type(200), 3, nil)
	e.send(guest.Welcome, 0, []byte("["))
	e.send(guest.Output, 3, guest.AppendOutput(nil, guest.Chunk{Fd: 2, Data: []byte("good")}))
	e.send(guest.Exit, 3, guest.Marshal(guest.Ending{Offset: 4, Closed: true, Status: guest.Status{
		ID: "one", ExitCode: 7000, Signal: 900, Reason: "infra.worker_lost", Children: make([]int, 5000), Error: "\x1b[2Jtext\u202e",
	}}))
	stdout, stderr, s := attach(t, c.Journals(), "one")
	if stdout != "" || stderr != "good" {
		t.Errorf("%q, %q", stdout, stderr)
	}
	if s.ID != "one" || s.ExitCode != -1 || s.Signal != 0 || s.Reason != guest.ReasonInternal || len(s.Children) != maxChildren ||
		strings.ContainsAny(s.Error, "\x1b\u202e") || s.StartedAt.Year() > 3000 {
		t.Errorf("%+v", s)
	}
	if got := c.Statuses(); len(got) != 1 {
		t.Errorf("%d commands", len(got))
	}
	names, _ := filepath.Glob(filepath.Join(c.journals.dir, "*"))
	if len(names) != 2 {
		t.Errorf("on disk lies %v", names)
	}
}

func TestHostileGuestCannotFillTheDisk(t *testing.T) {
	c, e := newEnemy(t, guest.Greeting{})
	e.startOne(c, 3, guest.Status{ID: "one", Phase: guest.Running})
	for offset := int64(0); offset < 4<<20; offset += guest.MaxChunk {
		e.send(guest.Output, 3, guest.AppendOutput(nil, guest.Chunk{Fd: 1, Offset: offset, Data: make([]byte, guest.MaxChunk)}))
	}
	if err := pinged(e, c); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Status("one"); err != nil || s.Output > 100+outputSlack {
		t.Errorf("%+v, %v", s, err)
	}
}

// pinged has the worker read all that was sent before.
func pinged(e *enemy, c *Conn) error {
	done := make(chan error, 1)
	go func() { done <- c.Ping(soon(e.t)) }()
	f := e.expect(guest.Ping)
	e.send(guest.Reply, f.Stream, []byte("{}"))
	return <-done
}

// TestHostileGuestCannotKeepTheWorkerBusy asks for a new epoch again and again:
// hellos come rarely.
func TestHostileGuestCannotKeepTheWorkerBusy(t *testing.T) {
	c, e := newEnemy(t, guest.Greeting{})
	deadline := time.Now().Add(300 * time.Millisecond)
	epochs := map[uint64]bool{}
	for time.Now().Before(deadline) {
		e.send(guest.Resync, 0, nil)
		c.mu.Lock()
		epochs[c.epoch] = true
		c.mu.Unlock()
	}
	if len(epochs) > 20 {
		t.Errorf("%d epochs in 300 ms", len(epochs))
	}
}

func TestHostileDownload(t *testing.T) {
	c, e := newEnemy(t, guest.Greeting{})
	type result struct {
		r   io.ReadCloser
		err error
	}
	got := make(chan result, 1)
	go func() {
		r, err := c.Get(soon(t), "/x", nil)
		got <- result{r, err}
	}()
	f := e.expect(guest.Ping)
	e.send(guest.Reply, f.Stream, []byte("{}"))
	f = e.expect(guest.Get)
	for range 2 * guest.Window / guest.MaxData {
		e.send(guest.Data, f.Stream, make([]byte, guest.MaxData))
	}
	g := <-got
	if g.err == nil {
		defer g.r.Close()
		_, g.err = io.Copy(io.Discard, g.r)
	}
	if _, ok := errors.AsType[*guest.Error](g.err); !ok {
		t.Errorf("more than the window: %v", g.err)
	}
}

// TestHostileNoise sends random frames of the right epoch: no panic, and the
// worker still answers.
func TestHostileNoise(t *testing.T) {
	c, e := newEnemy(t, guest.Greeting{})
	e.startOne(c, 3, guest.Status{ID: "one", Phase: guest.Running})
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []guest.Type{guest.Welcome, guest.Output, guest.Exit, guest.Reply, guest.Data, guest.Credit, guest.Start, 0, 255}
	bodies := []string{"", "{}", "null", `{"status":null}`, `{"status":{"id":"one"},"offset":-5}`, `{"error":{"reason":"x","text":"y"}}`, "\x00\x00\x00\x00\x00\x00\x00\x00\x01x", `{"commands":[{"n":1},{"n":1},{}]}`}
	for range 3000 {
		e.send(kinds[random.IntN(len(kinds))], random.Uint64N(6), []byte(bodies[random.IntN(len(bodies))]))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			select {
			case f := <-e.frames:
				if f.Type == guest.Ping {
					e.send(guest.Reply, f.Stream, []byte("{}"))
				}
			case <-ctx.Done():
			}
		}
	}()
	if err := c.Ping(ctx); err != nil {
		t.Fatal(err)
	}
}

// A guest can't make a command one on a terminal, whose bytes a client would
// pass on as they are.
func TestHostileGuestCannotInventTerminals(t *testing.T) {
	c, e := newEnemy(t, guest.Greeting{})
	e.startOne(c, 1, guest.Status{ID: "one", Phase: guest.Running, Terminal: true})
	if s, err := c.Status("one"); err != nil || s.Terminal {
		t.Errorf("%+v, %v", s, err)
	}
	e.send(guest.Exit, 1, guest.Marshal(guest.Ending{Status: guest.Status{ID: "one", Phase: guest.Exited, Terminal: true}, Closed: true}))
	e.expect(guest.ExitAck)
	if s, err := c.Status("one"); err != nil || s.Terminal || s.Phase != guest.Exited {
		t.Errorf("%+v, %v", s, err)
	}
}

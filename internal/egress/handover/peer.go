package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	handlersMax  = 64
	writeTimeout = 10 * time.Second
)

// Request is what the other side asks. The handler owns File.
type Request struct {
	Kind string
	Body json.RawMessage
	File *os.File // nil when none came
}

// Handler answers a request with a body and possibly a descriptor, which the
// peer closes once it is sent. An error that is a *task.Failure crosses with
// its reason; others become infra.internal.
type Handler func(ctx context.Context, r Request) (body any, file *os.File, err error)

// Peer is one side of a conversation.
type Peer struct {
	conn    *net.UnixConn
	handler Handler

	writing sync.Mutex

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan answer
	gone    chan struct{} // closed when the conversation is over
	slots   chan struct{}
}

type answer struct {
	message
	file *os.File
}

// NewPeer makes a side of the conversation on conn. Nothing is read before
// Run.
func NewPeer(conn *net.UnixConn, handler Handler) *Peer {
	return &Peer{
		conn: conn, handler: handler, waiting: make(map[uint64]chan answer),
		gone: make(chan struct{}), slots: make(chan struct{}, handlersMax),
	}
}

// Run reads until the conversation ends and says why. It closes the
// connection. It is called once.
func (p *Peer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { p.conn.Close() })
	defer stop()
	defer p.end()
	for {
		body, file, err := readFrame(p.conn)
		if err != nil {
			return err
		}
		m, err := parse(body)
		if err != nil {
			closeFile(file)
			return err
		}
		if m.Reply {
			p.deliver(m, file)
			continue
		}
		p.slots <- struct{}{}
		go func() {
			defer func() { <-p.slots }()
			p.handle(ctx, m, file)
		}()
	}
}

// Gone is closed when the conversation is over.
func (p *Peer) Gone() <-chan struct{} { return p.gone }

// Close ends the conversation.
func (p *Peer) Close() { p.conn.Close() }

func (p *Peer) end() {
	p.conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.gone)
	p.waiting = nil
}

func (p *Peer) deliver(m message, file *os.File) {
	p.mu.Lock()
	ch := p.waiting[m.ID]
	delete(p.waiting, m.ID)
	p.mu.Unlock()
	if ch == nil { // the caller gave up
		closeFile(file)
		return
	}
	ch <- answer{m, file}
}

func (p *Peer) handle(ctx context.Context, m message, file *os.File) {
	body, out, err := p.handler(ctx, Request{Kind: m.Kind, Body: m.Body, File: file})
	defer closeFile(out)
	reply := message{ID: m.ID, Reply: true}
	if err == nil {
		reply.Body, err = json.Marshal(body)
	}
	if err != nil {
		reply.Failure = &failure{Reason: task.InfraInternal, Text: "the other side failed"}
		if f, ok := errors.AsType[*task.Failure](err); ok {
			reply.Failure = &failure{Reason: f.Reason, Text: f.Text}
		}
		out = nil
	}
	// A reply that can't be sent means that the conversation is over.
	if err := p.send(reply, out); err != nil {
		p.conn.Close()
	}
}

func (p *Peer) send(m message, file *os.File) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("message: %w", err)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	return writeFrame(p.conn, data, file)
}

// ErrGone says that the conversation is over.
var ErrGone = errors.New("the other side is gone")

// Call asks the other side and reads the reply's body into out (unless nil).
// file is sent and stays the caller's; the returned file is the caller's too.
func (p *Peer) Call(ctx context.Context, kind string, body any, file *os.File, out any) (*os.File, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	ch := make(chan answer, 1)
	p.mu.Lock()
	if p.waiting == nil {
		p.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", kind, ErrGone)
	}
	p.last++
	id := p.last
	p.waiting[id] = ch
	p.mu.Unlock()
	if err := p.send(message{ID: id, Kind: kind, Body: data}, file); err != nil {
		p.conn.Close() // half a frame may be out
		p.forget(id)
		return nil, fmt.Errorf("%s: %w", kind, errors.Join(ErrGone, err))
	}
	select {
	case a := <-ch:
		return finish(kind, a, out)
	case <-p.gone:
		select { // the reply may have come just before
		case a := <-ch:
			return finish(kind, a, out)
		default:
		}
		return nil, fmt.Errorf("%s: %w", kind, ErrGone)
	case <-ctx.Done():
		p.forget(id)
		return nil, fmt.Errorf("%s: %w", kind, ctx.Err())
	}
}

func (p *Peer) forget(id uint64) {
	p.mu.Lock()
	delete(p.waiting, id)
	p.mu.Unlock()
}

func finish(kind string, a answer, out any) (*os.File, error) {
	if a.Failure != nil {
		closeFile(a.file)
		return nil, &task.Failure{Reason: a.Failure.Reason, Text: a.Failure.Text}
	}
	if out != nil {
		if err := Decode(a.Body, out); err != nil {
			closeFile(a.file)
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return a.file, nil
}

func closeFile(f *os.File) {
	if f != nil {
		f.Close()
	}
}

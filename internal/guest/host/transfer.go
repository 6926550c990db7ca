package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// transfer is a stream of bytes to or from the guest. At most guest.Window bytes
// are on their way, so that neither end's memory grows and the channel is free
// for others.
type transfer struct {
	mu       sync.Mutex
	changed  *sync.Cond
	put      bool
	sent     int64    // put: bytes sent; get: bytes received
	credited int64    // bytes that the consumer has taken
	told     int64    // get: the last credit that was sent
	buffers  [][]byte // get: what was received and not taken
	over     bool     // nothing more will come
	err      error
	answer   guest.Answer // put: the guest's, when there was no error
}

func newTransfer(put bool) *transfer {
	t := &transfer{put: put}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// finish ends the transfer; the first end counts.
func (t *transfer) finish(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.over, t.err = true, err
	}
	t.changed.Broadcast()
}

// openTransfer tells the guest of a transfer. It waits for an epoch.
func (c *Conn) openTransfer(ctx context.Context, kind guest.Type, payload any) (uint64, *transfer, error) {
	if err := c.Ping(ctx); err != nil { // Established, and the guest is there.
		return 0, nil, err
	}
	text := guest.Marshal(payload)
	if len(text) > guest.MaxMessage {
		return 0, nil, guest.Errorf(guest.ReasonInvalid, "the request has %d bytes; the most is %d", len(text), guest.MaxMessage)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return 0, nil, ErrClosed
	}
	if !c.established {
		return 0, nil, ErrInterrupted
	}
	t := newTransfer(kind == guest.Put || kind == guest.FileWrite)
	c.lastID++
	c.transfers[c.lastID] = t
	c.send(kind, c.lastID, text)
	return c.lastID, t, nil
}

// stop gives a transfer up.
func (c *Conn) stop(id uint64, t *transfer, err error) {
	t.finish(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transfers[id] == t {
		delete(c.transfers, id)
		c.send(guest.TransferStop, id, nil)
	}
}

// sendFor queues a frame of a transfer that goes on.
func (c *Conn) sendFor(id uint64, t *transfer, kind guest.Type, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transfers[id] == t {
		c.send(kind, id, payload)
	}
}

// Put unpacks a tar stream beneath dir, as user agent. Entries that would leave
// dir, devices and the like are refused; the error names the entry, and those
// before it stay. ErrInterrupted may be tried again with a fresh stream.
func (c *Conn) Put(ctx context.Context, dir string, tar io.Reader) error {
	_, err := c.upload(ctx, guest.Put, guest.PutRequest{Dir: dir}, tar)
	return wrap("put", err)
}

// upload sends what src has and returns the guest's answer.
func (c *Conn) upload(ctx context.Context, kind guest.Type, payload any, src io.Reader) (guest.Answer, error) {
	id, t, err := c.openTransfer(ctx, kind, payload)
	if err != nil {
		return guest.Answer{}, err
	}
	defer context.AfterFunc(ctx, func() { c.stop(id, t, ctx.Err()) })()
	for {
		data := make([]byte, guest.MaxData)
		n, err := io.ReadFull(src, data)
		if n > 0 {
			if !t.reserve(int64(n)) {
				break
			}
			c.sendFor(id, t, guest.Data, data[:n])
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			c.sendFor(id, t, guest.TransferEnd, nil)
			break
		}
		if err != nil {
			c.stop(id, t, fmt.Errorf("read what is sent: %w", err))
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.over {
		t.changed.Wait()
	}
	return t.answer, t.err
}

// reserve waits until n more bytes may be on their way.
func (t *transfer) reserve(n int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.over && t.sent+n-t.credited > guest.Window {
		t.changed.Wait()
	}
	if t.over {
		return false
	}
	t.sent += n
	return true
}

// credit lets a put go on.
func (c *Conn) credit(f guest.Frame) {
	consumed, _, ok := guest.ParseOffset(f.Payload)
	c.mu.Lock()
	t := c.transfers[f.Stream]
	c.mu.Unlock()
	if !ok || t == nil || !t.put {
		c.drop(f, "credit of no transfer")
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if consumed > t.credited && consumed <= t.sent {
		t.credited = consumed
		t.changed.Broadcast()
	}
}

// data takes bytes of a get.
func (c *Conn) data(f guest.Frame) {
	c.mu.Lock()
	t := c.transfers[f.Stream]
	c.mu.Unlock()
	if t == nil || t.put || len(f.Payload) == 0 {
		return // Stopped a moment ago.
	}
	t.mu.Lock()
	tooMuch := t.sent+int64(len(f.Payload))-t.told > guest.Window
	if !tooMuch && !t.over {
		t.sent += int64(len(f.Payload))
		t.buffers = append(t.buffers, append([]byte(nil), f.Payload...))
		t.changed.Broadcast()
	}
	t.mu.Unlock()
	if tooMuch {
		c.drop(f, "more bytes than asked for")
		c.stop(f.Stream, t, guest.Errorf(guest.ReasonInternal, "the guest sends more than it was asked for"))
	}
}

// transferred ends a transfer with the guest's answer.
func (c *Conn) transferred(t *transfer, answer guest.Answer) {
	for i, note := range answer.Notes {
		if i == 20 {
			break
		}
		c.log.Info("left out of a download", slog.String("note", cleanText(note)))
	}
	switch {
	case answer.Error != nil:
		t.finish(answer.Error)
	case t.put:
		t.mu.Lock()
		t.answer = answer
		t.mu.Unlock()
		t.finish(nil)
	default:
		t.finish(io.EOF)
	}
}

// Get packs path, a file or a folder, as a tar stream whose first entry has its
// base name. exclude names entries relative to path that are left out with all
// beneath them. Sockets, devices and pipes are left out. An error that is known
// before the first byte is returned at once.
func (c *Conn) Get(ctx context.Context, path string, exclude []string) (io.ReadCloser, error) {
	d, err := c.download(ctx, guest.Get, guest.GetRequest{Path: path, Exclude: exclude})
	if err != nil {
		return nil, wrap("get", err)
	}
	return d, nil
}

// download opens a stream and waits for its first bytes.
func (c *Conn) download(ctx context.Context, kind guest.Type, payload any) (*download, error) {
	id, t, err := c.openTransfer(ctx, kind, payload)
	if err != nil {
		return nil, err
	}
	d := &download{conn: c, id: id, transfer: t}
	d.unhook = context.AfterFunc(ctx, func() { c.stop(id, t, ctx.Err()) })
	t.mu.Lock()
	for len(t.buffers) == 0 && !t.over {
		t.changed.Wait()
	}
	failed := len(t.buffers) == 0 && !errors.Is(t.err, io.EOF)
	t.mu.Unlock()
	if failed {
		d.unhook()
		return nil, t.err
	}
	return d, nil
}

// download is the reader of a get.
type download struct {
	conn     *Conn
	id       uint64
	transfer *transfer
	unhook   func() bool
}

// Read returns the next bytes of the tar stream.
func (d *download) Read(p []byte) (int, error) {
	t := d.transfer
	t.mu.Lock()
	for len(t.buffers) == 0 && !t.over {
		t.changed.Wait()
	}
	if len(t.buffers) == 0 {
		defer t.mu.Unlock()
		if errors.Is(t.err, io.EOF) {
			return 0, io.EOF
		}
		return 0, wrap("get", t.err)
	}
	n := copy(p, t.buffers[0])
	if t.buffers[0] = t.buffers[0][n:]; len(t.buffers[0]) == 0 {
		t.buffers[0] = nil
		t.buffers = t.buffers[1:]
	}
	t.credited += int64(n)
	tell := int64(-1)
	if t.credited-t.told >= guest.Window/4 && !t.over {
		t.told, tell = t.credited, t.credited
	}
	t.mu.Unlock()
	if tell >= 0 {
		d.conn.sendFor(d.id, t, guest.Credit, guest.AppendOffset(nil, tell))
	}
	return n, nil
}

// Close gives up what was not read.
func (d *download) Close() error {
	d.unhook()
	d.conn.stop(d.id, d.transfer, ErrClosed)
	return nil
}

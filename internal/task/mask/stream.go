package mask

import (
	"errors"
	"io"
	"sync"
	"time"
)

// letGo is the longest end that may be given away although it may be the
// beginning of a word. The rest of that word is masked all the same.
const letGo = 3

// stream is what is known between the pieces of a stream.
type stream struct {
	cover   bool
	held    []byte // from where a word may begin
	gone    int    // of held: given away already
	covered int    // of held: belongs to a word that began before
	wrote   bool   // the mark of that word was given
	hit     bool   // a word was found
}

type span struct{ start, end int }

// next takes the next bytes and gives what is sure. It may return b itself, and
// what it returns is good until the next call; b is never written to.
func (s *stream) next(m *Masker, b []byte, final bool) []byte {
	d := b
	if len(s.held) > 0 {
		d = append(s.held, b...)
	}
	var hits []span
	hold := m.scan(d, final, func(start, end int) { hits = append(hits, span{start, end}) })
	out := d[min(s.gone, hold):hold]
	if len(hits) > 0 || s.covered > 0 {
		var mark byte
		if m != nil {
			mark = m.mark
		}
		out = s.masked(d, hold, hits, mark)
	}
	for _, h := range hits {
		s.hit, s.covered = true, max(s.covered, h.end)
	}
	s.gone, s.covered = max(0, s.gone-hold), max(0, s.covered-hold)
	s.wrote = s.covered > 0
	s.held = append([]byte(nil), d[hold:]...)
	return out
}

// masked gives d from what is gone to hold without the hits.
func (s *stream) masked(d []byte, hold int, hits []span, mark byte) []byte {
	out := make([]byte, 0, hold+len(sealed))
	at, until, wrote := s.gone, s.covered, s.wrote
	fill := func(to int) { // what is covered, up to a place
		if to = min(to, hold); to <= at {
			return
		}
		for ; s.cover && at < to; at++ {
			out = append(out, mark)
		}
		if !s.cover && !wrote {
			out = append(out, sealed...)
		}
		at, wrote = to, true
	}
	for _, h := range hits {
		if h.start >= until {
			fill(until)
			if h.start > at {
				out = append(out, d[at:h.start]...)
				at = h.start
			}
			wrote = false
		}
		until = max(until, h.end)
	}
	fill(until)
	if at < hold {
		out = append(out, d[at:hold]...)
	}
	return out
}

// Options say how a Writer or a Reader masks. The zero value seals, and waits.
type Options struct {
	Cover bool // lengths and positions stay
	// Idle is after how long without more a short end is given away that may be the
	// beginning of a word, so that who waits for it before saying more is not left
	// waiting. Up to three bytes of a value that comes in pieces with such pauses
	// are then seen. 0: never.
	Idle time.Duration
	// Flush is called after an end was given away; nil: nothing is.
	Flush func()
}

// Writer masks what is written through it. It must be closed, which gives what
// was held; the writer beneath stays open.
type Writer struct {
	options Options
	masker  func() *Masker
	to      io.Writer

	mu     sync.Mutex
	stream stream
	timer  *time.Timer
	turn   int
	closed bool
	err    error
}

// NewWriter returns a Writer to another one. masker is asked at each piece, since
// values may come to be known in the meantime.
func NewWriter(to io.Writer, masker func() *Masker, o Options) *Writer {
	return &Writer{options: o, masker: masker, to: to, stream: stream{cover: o.Cover}}
}

// Write writes what is sure to be no part of a word.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, errClosed
	}
	w.turn++
	if w.err == nil {
		w.give(w.stream.next(w.masker(), b, false))
	}
	if w.err != nil {
		return 0, w.err
	}
	if n := len(w.stream.held); w.options.Idle > 0 && n > w.stream.gone && n <= letGo {
		turn := w.turn
		w.timer = time.AfterFunc(w.options.Idle, func() { w.idle(turn) })
	}
	return len(b), nil
}

var errClosed = errors.New("mask: the writer is closed")

func (w *Writer) give(b []byte) {
	if len(b) > 0 {
		_, w.err = w.to.Write(b)
	}
}

// idle gives a short end away when nothing came since.
func (w *Writer) idle(turn int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.stream
	if w.closed || w.turn != turn || w.err != nil || s.covered > s.gone {
		return
	}
	w.give(s.held[s.gone:])
	s.gone = len(s.held)
	if w.err == nil && w.options.Flush != nil {
		w.options.Flush()
	}
}

// Close gives what was held: nothing more comes.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
	if w.err == nil {
		w.give(w.stream.next(w.masker(), nil, true))
	}
	return w.err
}

// Abandon ends the Writer without giving what was held, as where a stream broke
// off and is read again.
func (w *Writer) Abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
	w.stream = stream{cover: w.options.Cover}
}

func (w *Writer) stop() {
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// Reader masks what is read through it.
type Reader struct {
	io.Closer
	from   io.Reader
	masker *Masker
	stream stream
	buf    []byte
	ready  []byte
	err    error
}

// NewReader returns a Reader of another one. Options.Idle does not count.
func NewReader(from io.ReadCloser, m *Masker, o Options) *Reader {
	return &Reader{Closer: from, from: from, masker: m, stream: stream{cover: o.Cover}}
}

// Masked says whether a word was found in what was read so far.
func (r *Reader) Masked() bool { return r.stream.hit }

// Read gives what is sure to be no part of a word.
func (r *Reader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if size := min(max(len(b), 512), 32<<10); len(r.buf) < size {
			r.buf = make([]byte, size)
		}
		n, err := r.from.Read(r.buf)
		r.err = err
		r.ready = r.stream.next(r.masker, r.buf[:n], err != nil)
	}
	n := copy(b, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

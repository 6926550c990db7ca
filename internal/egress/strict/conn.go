package strict

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
)

const (
	headMax   = 256 << 10
	lineMax   = 8 << 10 // of a chunk's size and of a trailer
	trailsMax = 64 << 10
	emptyMost = 16 // bytes of empty lines before a request (RFC 9112 §2.2)
	readSize  = 16 << 10
)

// state is what comes next.
type state uint8

const (
	atHead state = iota
	inBody
	atChunk   // a chunk's size
	inChunk   // its bytes
	chunkEnd  // the line end after them
	atTrailer // the fields after the last chunk
	opened    // the protocol was switched: anything passes
	ended     // nothing more passes
)

// Conn is a connection whose reads give only what may pass. Reads must not
// overlap; everything else may.
type Conn struct {
	net.Conn

	mu     sync.Mutex
	state  state
	in     []byte // read and not looked at
	looked int    // bytes of in that hold no end of a head
	out    []byte // looked at and not given
	left   int64  // of the body or the chunk
	trails int    // bytes of trailers so far
	heads  int64  // that were given
	bad    int64  // the number of the one that was refused; 0: none
	why    string
	cut    error // what reads end with once nothing more passes
	buf    []byte
	half   half
}

// New screens what is read from c.
func New(c net.Conn) *Conn { return &Conn{Conn: c} }

// Refused says why request n, counted from 1, must be refused; empty when it
// may be served.
func (c *Conn) Refused(n int64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bad != 0 && n >= c.bad {
		return c.why
	}
	return ""
}

// Open lets everything pass from now on: the protocol was switched.
func (c *Conn) Open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == atHead {
		c.state = opened
	}
}

// CloseWrite ends what is written, where the connection can do that.
func (c *Conn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// Read gives bytes that may pass.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		n, direct, err := c.ready(b)
		if n > 0 || err != nil {
			return n, err
		}
		if direct > 0 { // of a body, without a copy
			n, err := c.Conn.Read(b[:direct])
			c.passed(int64(n))
			return n, err
		}
		if c.buf == nil {
			c.buf = make([]byte, readSize)
		}
		n, err = c.Conn.Read(c.buf)
		c.mu.Lock()
		c.in = append(c.in, c.buf[:n]...)
		c.mu.Unlock()
		if n == 0 && err != nil {
			return 0, c.end(err)
		}
	}
}

// ready gives what was looked at, or else how many bytes may be read as they
// are.
func (c *Conn) ready(b []byte) (n, direct int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) == 0 && c.step() {
	}
	if len(c.out) > 0 {
		n := copy(b, c.out)
		if c.out = c.out[n:]; len(c.out) == 0 {
			c.out = nil
		}
		return n, 0, nil
	}
	switch {
	case c.state == ended:
		return 0, 0, c.cut
	case len(c.in) > 0:
		return 0, 0, nil
	case c.state == opened:
		return 0, len(b), nil
	case c.state == inBody || c.state == inChunk:
		return 0, int(min(int64(len(b)), c.left)), nil
	}
	return 0, 0, nil
}

// passed counts bytes of a body that were read as they are.
func (c *Conn) passed(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == inBody || c.state == inChunk {
		c.took(n)
	}
}

func (c *Conn) took(n int64) {
	if c.left -= n; c.left > 0 {
		return
	}
	if c.state == inBody {
		c.state = atHead
	} else {
		c.state = chunkEnd
	}
}

// step looks at one piece of what was read; false when more is needed. The
// lock is held.
func (c *Conn) step() bool {
	switch c.state {
	case atHead:
		return c.head()
	case inBody, inChunk:
		n := min(int64(len(c.in)), c.left)
		if n == 0 {
			return false
		}
		c.give(int(n))
		c.took(n)
		return true
	case atChunk, chunkEnd, atTrailer:
		return c.line()
	case opened:
		if len(c.in) == 0 {
			return false
		}
		c.give(len(c.in))
		return true
	}
	return false
}

// give moves n bytes on.
func (c *Conn) give(n int) {
	c.out = append(c.out, c.in[:n]...)
	if c.in = c.in[n:]; len(c.in) == 0 {
		c.in = nil
	}
}

// harmless stands in for a head that must not pass.
const harmless = "GET / HTTP/1.1\r\nHost: refused.invalid\r\nConnection: close\r\n\r\n"

func (c *Conn) refuse(why string) bool {
	c.bad, c.why, c.in = c.heads+1, why, nil
	c.out = append(c.out, harmless...)
	c.state, c.cut = ended, io.EOF
	return true
}

// head looks for a whole head.
func (c *Conn) head() bool {
	skipped := 0
	for len(c.in) > 0 && (c.in[0] == '\r' || c.in[0] == '\n') {
		if skipped++; skipped > emptyMost {
			return c.refuse("empty lines")
		}
		if len(c.in) == 1 && c.in[0] == '\r' {
			return false
		}
		c.in = c.in[1:]
	}
	// A head that comes a byte at a time must not be looked at anew each time.
	from := max(0, min(c.looked, len(c.in))-3)
	end := bytes.Index(c.in[from:], []byte("\r\n\r\n"))
	if end < 0 {
		switch {
		case len(c.in) > headMax:
			return c.refuse("a head that is too long")
		case bareNewline(c.in, from):
			return c.refuse("a line that ends without a carriage return")
		}
		c.looked = len(c.in)
		return false
	}
	end, c.looked = end+from, 0
	if end > headMax {
		return c.refuse("a head that is too long")
	}
	h, err := parseHead(c.in[:end+2])
	if err != nil {
		return c.refuse(err.Error())
	}
	c.heads++
	c.give(end + 4)
	switch {
	case h.chunked:
		c.state, c.trails = atChunk, 0
	case h.length > 0:
		c.state, c.left = inBody, h.length
	}
	return true
}

// bareNewline finds a line feed at or after from that no carriage return
// precedes: a head with one might never seem to end.
func bareNewline(b []byte, from int) bool {
	for i := from; i < len(b); i++ {
		if b[i] == '\n' && (i == 0 || b[i-1] != '\r') {
			return true
		}
	}
	return false
}

// line looks for one line of a chunked body.
func (c *Conn) line() bool {
	end := bytes.IndexByte(c.in, '\n')
	if end < 0 {
		if len(c.in) > lineMax {
			return c.broken("a line that is too long")
		}
		return false
	}
	if end > lineMax || end == 0 || c.in[end-1] != '\r' {
		return c.broken("a line of a chunked body")
	}
	text := c.in[:end-1]
	switch c.state {
	case chunkEnd:
		if len(text) > 0 {
			return c.broken("bytes after a chunk")
		}
		c.give(end + 1)
		c.state = atChunk
	case atChunk:
		size, err := chunkSize(text)
		if err != nil {
			return c.broken(err.Error())
		}
		c.give(end + 1)
		if c.state, c.left = inChunk, size; size == 0 {
			c.state = atTrailer
		}
	case atTrailer:
		c.trails += end
		if len(text) > 0 && (c.trails > trailsMax || trailer(text) != nil) {
			return c.broken("a trailer")
		}
		c.give(end + 1)
		if len(text) == 0 {
			c.state = atHead
		}
	}
	return true
}

// broken ends a body that can't be read in one way.
func (c *Conn) broken(what string) bool {
	c.in, c.state, c.cut = nil, ended, fmt.Errorf("%s: %w", what, io.ErrUnexpectedEOF)
	return true
}

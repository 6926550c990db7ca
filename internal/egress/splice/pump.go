package splice

import (
	"errors"
	"io"
	"net"
	"sync"
)

// bufferSize is large because each read of a 64 KiB frame's worth costs the
// same few locks as one of a few bytes.
const bufferSize = 256 << 10

// Pump moves bytes. Its zero value is ready.
type Pump struct {
	buffers sync.Pool
}

func (p *Pump) buffer() *[]byte {
	if b, ok := p.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, bufferSize)
	return &b
}

// Half is a connection that can be closed for writing alone.
type Half interface {
	net.Conn
	CloseWrite() error
}

// Copy moves bytes from src to dst until src ends, then closes dst for writing.
func (p *Pump) Copy(dst Half, src io.Reader) error {
	b := p.buffer()
	defer p.buffers.Put(b)
	for {
		n, err := src.Read(*b)
		if n > 0 {
			if _, werr := dst.Write((*b)[:n]); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return dst.CloseWrite()
		}
		if err != nil {
			return err
		}
	}
}

// Get and Put lend the pump's buffers, as net/http/httputil asks for them.
func (p *Pump) Get() []byte { return *p.buffer() }

// Put takes a buffer back.
func (p *Pump) Put(b []byte) { p.buffers.Put(&b) }

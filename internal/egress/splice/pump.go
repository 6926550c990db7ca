package splice

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
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
// count is added to as bytes arrive at dst.
func (p *Pump) Copy(dst Half, src io.Reader, count *atomic.Int64) error {
	b := p.buffer()
	defer p.buffers.Put(b)
	for {
		n, err := src.Read(*b)
		if n > 0 {
			written, werr := dst.Write((*b)[:n])
			count.Add(int64(written))
			if werr != nil {
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

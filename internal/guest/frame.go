package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// Version of the frames' layout.
const Version = 1

// MaxPayload is the most a frame carries.
const MaxPayload = 64 << 10

// Layout of a frame before stuffing: version, type, flags, epoch, stream,
// payload, checksum (CRC-32C of all before it); integers are big-endian.
const (
	headerSize  = 3 + 8 + 8
	trailerSize = 4
	maxPlain    = headerSize + MaxPayload + trailerSize
	maxStuffed  = maxPlain + maxPlain/254 + 1
)

// More is the flag of a message's frames that are not its last.
const More = 1

// Frame is the unit on the channel.
type Frame struct {
	Type    Type
	Flags   byte
	Epoch   uint64
	Stream  uint64 // a request, a command or a transfer, depending on Type
	Payload []byte
}

// ErrCorrupt says that bytes between two delimiters were no frame. The reader
// goes on with the next.
var ErrCorrupt = errors.New("corrupt frame")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C that frames and journals carry.
func Checksum(parts ...[]byte) uint32 {
	var sum uint32
	for _, part := range parts {
		sum = crc32.Update(sum, castagnoli, part)
	}
	return sum
}

// AppendFrame appends f, stuffed and with its delimiter. A payload over
// MaxPayload is a fault of the caller and panics.
func AppendFrame(dst []byte, f Frame) []byte {
	if len(f.Payload) > MaxPayload {
		panic("guest: payload over MaxPayload")
	}
	var header [headerSize]byte
	header[0], header[1], header[2] = Version, byte(f.Type), f.Flags
	binary.BigEndian.PutUint64(header[3:], f.Epoch)
	binary.BigEndian.PutUint64(header[11:], f.Stream)
	var trailer [trailerSize]byte
	binary.BigEndian.PutUint32(trailer[:], Checksum(header[:], f.Payload))
	s := stuffer{dst: dst}
	s.begin()
	s.write(header[:])
	s.write(f.Payload)
	s.write(trailer[:])
	s.end()
	return s.dst
}

// stuffer does consistent overhead byte stuffing: each block is its length plus
// one, then up to 254 bytes that are not zero; a block shorter than that stands
// for a zero after it.
type stuffer struct {
	dst  []byte
	code int // where the open block's length goes
}

func (s *stuffer) begin() {
	s.code = len(s.dst)
	s.dst = append(s.dst, 0)
}

func (s *stuffer) close() {
	s.dst[s.code] = byte(len(s.dst) - s.code)
}

func (s *stuffer) write(p []byte) {
	for len(p) > 0 {
		if p[0] == 0 { // Zeros come in runs.
			s.zero()
			p = p[1:]
			continue
		}
		room := 255 - (len(s.dst) - s.code)
		if room == 0 {
			s.close()
			s.begin()
			room = 254
		}
		run := p[:min(room, len(p))]
		zero := bytes.IndexByte(run, 0)
		if zero < 0 {
			s.dst = append(s.dst, run...)
			p = p[len(run):]
			continue
		}
		s.dst = append(s.dst, run[:zero]...)
		s.zero()
		p = p[zero+1:]
	}
}

// zero ends the open block with a zero. A full block stands for no zero, so an
// empty one has to follow it.
func (s *stuffer) zero() {
	if len(s.dst)-s.code == 255 {
		s.close()
		s.begin()
	}
	s.close()
	s.begin()
}

func (s *stuffer) end() {
	s.close()
	s.dst = append(s.dst, 0)
}

// unstuff undoes the stuffing in place and returns the plain bytes.
func unstuff(p []byte) ([]byte, bool) {
	var read, write int
	for read < len(p) {
		code := int(p[read])
		read++
		if code == 0 || read+code-1 > len(p) {
			return nil, false
		}
		if code > 1 {
			write += copy(p[write:], p[read:read+code-1])
			read += code - 1
		}
		if code < 255 && read < len(p) {
			p[write] = 0
			write++
		}
	}
	return p[:write], true
}

// parseFrame reads the bytes between two delimiters; it overwrites them, and the
// frame's payload lies within them.
func parseFrame(stuffed []byte) (Frame, error) {
	if len(stuffed) > maxStuffed {
		return Frame{}, ErrCorrupt
	}
	plain, ok := unstuff(stuffed)
	if !ok || len(plain) < headerSize+trailerSize || len(plain) > maxPlain || plain[0] != Version {
		return Frame{}, ErrCorrupt
	}
	body, trailer := plain[:len(plain)-trailerSize], plain[len(plain)-trailerSize:]
	if Checksum(body) != binary.BigEndian.Uint32(trailer) {
		return Frame{}, ErrCorrupt
	}
	return Frame{
		Type: Type(body[1]), Flags: body[2],
		Epoch: binary.BigEndian.Uint64(body[3:]), Stream: binary.BigEndian.Uint64(body[11:]),
		Payload: body[headerSize:],
	}, nil
}

// Reader reads frames. It holds one frame at most, whatever it is fed.
type Reader struct {
	src        io.Reader
	buf        []byte
	start, end int  // the unread part of buf
	scanned    int  // bytes after start that hold no delimiter
	skip       bool // the bytes up to the next delimiter belong to a frame that is too long
	err        error
}

// NewReader returns a Reader of src.
func NewReader(src io.Reader) *Reader {
	return &Reader{src: src, buf: make([]byte, 2*maxStuffed)}
}

// Buffered says whether bytes are waiting that were read already.
func (r *Reader) Buffered() bool { return r.end > r.start+r.scanned }

// Next returns the next frame, valid until the call after it. ErrCorrupt is
// returned once for each run of bytes that is no frame, and reading may go on;
// any other error is the source's and is final.
func (r *Reader) Next() (Frame, error) {
	for {
		if i := bytes.IndexByte(r.buf[r.start+r.scanned:r.end], 0); i >= 0 {
			stuffed := r.buf[r.start : r.start+r.scanned+i]
			r.start += r.scanned + i + 1
			r.scanned = 0
			if r.skip {
				r.skip = false
				return Frame{}, ErrCorrupt
			}
			if len(stuffed) == 0 {
				continue // Two delimiters in a row: the resynchronisation marker.
			}
			return parseFrame(stuffed)
		}
		r.scanned = r.end - r.start
		if r.scanned > maxStuffed {
			r.skip = true
		}
		if r.skip {
			r.start, r.scanned = r.end, 0
		}
		if err := r.fill(); err != nil {
			return Frame{}, err
		}
	}
}

func (r *Reader) fill() error {
	if r.err != nil {
		return r.err
	}
	if r.start == r.end {
		r.start, r.end = 0, 0
	} else if len(r.buf)-r.end < maxStuffed/2 {
		copy(r.buf, r.buf[r.start:r.end])
		r.start, r.end = 0, r.end-r.start
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	r.err = err
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

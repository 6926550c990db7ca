package api

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// FrameType is the media type of a stream of frames.
const FrameType = "application/vnd.cofferdam.frames"

// MaxFrame is the largest payload of one frame in bytes.
const MaxFrame = 1 << 20

// frameHeader is one byte of descriptor, eight of offset and four of length,
// big endian.
const frameHeader = 13

// The descriptors of a frame.
const (
	FrameStatus    = 0   // Data is a CommandStatus as JSON; the last frame of a complete stream
	FrameStdout    = 1   // Data is output
	FrameStderr    = 2   // Data is output
	FrameHeartbeat = 254 // no data: the command is silent and the connection alive
	FrameProblem   = 255 // Data is a Problem as JSON; the stream ends here before the command did
)

// ErrFrame is returned for bytes that are not a frame.
var ErrFrame = errors.New("malformed frame")

// Frame is a piece of a command's output on the wire.
type Frame struct {
	Fd     byte
	Offset int64 // of Data's first byte, counting the payload bytes of both streams together
	Data   []byte
}

// AppendFrame appends f's encoding to b.
func AppendFrame(b []byte, f Frame) ([]byte, error) {
	if len(f.Data) > MaxFrame || f.Offset < 0 || !validFd(f.Fd) {
		return b, ErrFrame
	}
	b = append(b, f.Fd)
	b = binary.BigEndian.AppendUint64(b, uint64(f.Offset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Data)))
	return append(b, f.Data...), nil
}

// FrameReader reads frames.
type FrameReader struct {
	r   io.Reader
	buf []byte
}

// NewFrameReader returns a reader of the frames in r.
func NewFrameReader(r io.Reader) *FrameReader { return &FrameReader{r: r} }

// Next returns the next frame, whose Data is valid until the call after. At a
// clean end it returns io.EOF, within a frame io.ErrUnexpectedEOF, and for
// anything that is not a frame ErrFrame. It never reserves more than MaxFrame.
func (fr *FrameReader) Next() (Frame, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(fr.r, head[:]); err != nil {
		return Frame{}, err
	}
	offset := binary.BigEndian.Uint64(head[1:9])
	length := binary.BigEndian.Uint32(head[9:13])
	if !validFd(head[0]) || length > MaxFrame || offset > 1<<62 {
		return Frame{}, fmt.Errorf("descriptor %d, length %d: %w", head[0], length, ErrFrame)
	}
	if cap(fr.buf) < int(length) {
		fr.buf = make([]byte, length)
	}
	data := fr.buf[:length]
	if _, err := io.ReadFull(fr.r, data); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Frame{Fd: head[0], Offset: int64(offset), Data: data}, nil
}

// Status decodes the status of a FrameStatus frame.
func (f Frame) Status() (CommandStatus, error) {
	var s CommandStatus
	if f.Fd != FrameStatus {
		return s, fmt.Errorf("descriptor %d is no status: %w", f.Fd, ErrFrame)
	}
	if err := json.Unmarshal(f.Data, &s); err != nil {
		return s, fmt.Errorf("status frame: %w", err)
	}
	return s, nil
}

func validFd(fd byte) bool {
	switch fd {
	case FrameStatus, FrameStdout, FrameStderr, FrameHeartbeat, FrameProblem:
		return true
	}
	return false
}

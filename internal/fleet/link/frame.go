package link

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// FrameType is the media type of a stream of frames.
const FrameType = "application/vnd.cofferdam.worker-frames"

// The kinds of frames.
const (
	KindStdout  = 1
	KindStderr  = 2
	KindStarted = 16 // a CommandState: the command is known; before any output
	KindEnded   = 17 // a CommandState, final; the last frame of a complete stream
	KindProblem = 18 // a Problem; the last frame of a stream that broke off
)

// ErrFrame is wrapped for bytes that are not a frame.
var ErrFrame = errors.New("malformed frame")

// header is one byte of kind, eight of offset, four of length, big endian.
const headerSize = 13

// Frame is one piece of a command's output stream.
type Frame struct {
	Kind   byte
	Offset int64  // of Data's first byte in the journal; 0 for kinds that carry JSON
	Data   []byte // valid until the next call of Next
}

// FrameWriter writes frames.
type FrameWriter struct {
	w    io.Writer
	head [headerSize]byte
}

// NewFrameWriter returns a writer of frames to w.
func NewFrameWriter(w io.Writer) *FrameWriter { return &FrameWriter{w: w} }

// Output writes a chunk, in as many frames as it takes.
func (fw *FrameWriter) Output(fd int, offset int64, data []byte) error {
	if fd != KindStdout && fd != KindStderr {
		return fmt.Errorf("descriptor %d: %w", fd, ErrFrame)
	}
	for len(data) > 0 {
		n := min(len(data), MaxFrame)
		if err := fw.write(byte(fd), offset, data[:n]); err != nil {
			return err
		}
		data, offset = data[n:], offset+int64(n)
	}
	return nil
}

// Note writes a frame that carries v as JSON.
func (fw *FrameWriter) Note(kind byte, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("frame of kind %d: %w", kind, err)
	}
	return fw.write(kind, 0, data)
}

func (fw *FrameWriter) write(kind byte, offset int64, data []byte) error {
	if offset < 0 || len(data) > limitOf(kind) {
		return fmt.Errorf("kind %d, offset %d, length %d: %w", kind, offset, len(data), ErrFrame)
	}
	fw.head[0] = kind
	binary.BigEndian.PutUint64(fw.head[1:9], uint64(offset))
	binary.BigEndian.PutUint32(fw.head[9:13], uint32(len(data)))
	if _, err := fw.w.Write(fw.head[:]); err != nil {
		return err
	}
	_, err := fw.w.Write(data)
	return err
}

// limitOf returns the largest payload of a kind; -1 for what is no kind.
func limitOf(kind byte) int {
	switch kind {
	case KindStdout, KindStderr:
		return MaxFrame
	case KindStarted, KindEnded, KindProblem:
		return MaxNote
	}
	return -1
}

// FrameReader reads frames.
type FrameReader struct {
	r    *bufio.Reader
	head [headerSize]byte
	buf  []byte
}

// NewFrameReader returns a reader of the frames in r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, 32<<10)}
}

// Next returns the next frame. At a clean end it returns io.EOF, within a frame
// io.ErrUnexpectedEOF, and for anything that is no frame an error that wraps
// ErrFrame. It reserves no more than the frame's kind allows.
func (fr *FrameReader) Next() (Frame, error) {
	if _, err := io.ReadFull(fr.r, fr.head[:]); err != nil {
		return Frame{}, err
	}
	kind := fr.head[0]
	offset := binary.BigEndian.Uint64(fr.head[1:9])
	length := int64(binary.BigEndian.Uint32(fr.head[9:13]))
	limit := int64(limitOf(kind))
	if length > limit || offset > 1<<62 || (offset != 0 && kind > KindStderr) {
		return Frame{}, fmt.Errorf("kind %d, offset %d, length %d: %w", kind, offset, length, ErrFrame)
	}
	if int64(cap(fr.buf)) < length {
		fr.buf = make([]byte, length)
	}
	data := fr.buf[:length]
	if _, err := io.ReadFull(fr.r, data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Frame{Kind: kind, Offset: int64(offset), Data: data}, nil
}

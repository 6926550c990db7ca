package host

import (
	"context"
	"io"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// Stream is a command's output and its end, read from the journal. It is for one
// reader.
type Stream struct {
	ctx      context.Context
	journals *Journals
	command  *command
	cursor   *cursor
	offset   int64 // of the next byte
	end      int64 // where the stream ends; -1 while the command runs
}

// Next returns the next chunk, waiting for it. After the command has ended and
// all that stood in the journal then was returned, it returns io.EOF.
func (s *Stream) Next() (guest.Chunk, error) {
	for {
		size, ended, changed, err := s.look()
		if err != nil {
			return guest.Chunk{}, err
		}
		if ended && s.end < 0 {
			s.end = size
		}
		if s.end >= 0 {
			size = s.end
		}
		if s.offset < size {
			return s.read(size)
		}
		if s.end >= 0 {
			return guest.Chunk{}, io.EOF
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return guest.Chunk{}, s.ctx.Err()
		case <-s.journals.closed:
			// What came last may have come together with the closing.
			if size, ended, _, err := s.look(); err == nil && (ended || size > s.offset) {
				continue
			}
			return guest.Chunk{}, ErrClosed
		}
	}
}

func (s *Stream) look() (size int64, ended bool, changed <-chan struct{}, err error) {
	c := s.command
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.loadLocked(); err != nil {
		return 0, false, nil, err
	}
	return c.journal.length(), c.record.Status.Ended(), c.changed, nil
}

func (s *Stream) read(size int64) (guest.Chunk, error) {
	if s.cursor == nil {
		s.command.mu.Lock()
		j := s.command.journal
		s.command.mu.Unlock()
		cursor, err := newCursor(j, s.offset)
		if err != nil {
			return guest.Chunk{}, err
		}
		s.cursor = cursor
	}
	chunk, err := s.cursor.next(s.offset)
	if err != nil {
		return guest.Chunk{}, err
	}
	chunk.Data = chunk.Data[:min(int64(len(chunk.Data)), size-s.offset)]
	s.offset = chunk.Offset + int64(len(chunk.Data))
	return chunk, nil
}

// Status is the command's status; it is final once Next returned io.EOF.
func (s *Stream) Status() guest.Status { return s.command.status() }

// Close lets go of the journal. The command goes on.
func (s *Stream) Close() error {
	if s.cursor == nil {
		return nil
	}
	err := s.cursor.file.Close()
	s.cursor = nil
	return err
}

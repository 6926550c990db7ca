package report

import (
	"bufio"
	"errors"
	"io"
)

// Lines calls take with each line of a report without its end. Of a line that is
// longer than MaxLine it has the beginning, and long is true. The bytes are
// the reader's own and last until take returns.
func Lines(from io.Reader, take func(line []byte, long bool) error) error {
	r := bufio.NewReaderSize(Bounded(from), MaxLine)
	for {
		line, err := r.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if len(line) > 0 {
			if takeErr := take(trimEnd(line), long); takeErr != nil {
				return takeErr
			}
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func trimEnd(line []byte) []byte {
	n := len(line)
	if n > 0 && line[n-1] == '\n' {
		n--
	}
	if n > 0 && line[n-1] == '\r' {
		n--
	}
	return line[:n]
}

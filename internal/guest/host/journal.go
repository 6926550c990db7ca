package host

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// A journal file is a magic line and records: length of the data, descriptor,
// CRC-32C of those and the data (big-endian), the data. Records are only ever
// appended.
const (
	journalMagic  = "cofferdam journal 1\n"
	recordHeader  = 4 + 1 + 4
	indexInterval = 256 << 10 // payload bytes between two entries of the index
)

var errTorn = errors.New("journal: torn record")

// mark says where the record that begins at a payload offset lies in the file.
type mark struct {
	offset   int64
	position int64
}

// journal is a command's output on disk, with a sparse index in memory.
type journal struct {
	path string

	mu       sync.Mutex
	file     *os.File // nil: not open for writing
	size     int64    // payload bytes
	position int64    // bytes of the file
	index    []mark
	buf      []byte
}

// loadJournal reads what is whole of the journal at path; an absent one is empty.
func loadJournal(path string) (*journal, error) {
	j := &journal{path: path}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := j.scan(file); err != nil {
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	return j, nil
}

// open makes the journal writable and cuts a torn tail off. The caller holds mu.
func (j *journal) open() error {
	if j.file != nil {
		return nil
	}
	file, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = file.Truncate(j.position)
	if err == nil && j.position == 0 {
		_, err = file.WriteAt([]byte(journalMagic), 0)
		j.position = int64(len(journalMagic))
	}
	if err != nil {
		file.Close()
		return err
	}
	j.file = file
	return nil
}

// scan walks the records' headers, builds the index and finds the end of what is
// whole. Of the last record the checksum is verified as well: a killed writer
// tears that one only.
func (j *journal) scan(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	total := info.Size()
	magic := make([]byte, len(journalMagic))
	if _, err := file.ReadAt(magic, 0); err != nil {
		return nil // New, or torn before its first record.
	}
	if string(magic) != journalMagic {
		return errors.New("not a journal")
	}
	j.position = int64(len(journalMagic))
	last := int64(-1)
	var lastSize int64
	src := bufio.NewReaderSize(io.NewSectionReader(file, j.position, total), indexInterval)
	for {
		header, err := src.Peek(recordHeader)
		if err != nil {
			break
		}
		n, err := parseHeader(header)
		if err != nil || j.position+recordHeader+n > total {
			break
		}
		if _, err := src.Discard(recordHeader + int(n)); err != nil {
			return err
		}
		j.mark()
		last, lastSize = j.position, n
		j.position += recordHeader + n
		j.size += n
	}
	if last >= 0 {
		if _, err := readRecord(file, last, make([]byte, lastSize)); err != nil {
			j.position, j.size = last, j.size-lastSize
			if k := len(j.index); j.index[k-1].position == last {
				j.index = j.index[:k-1]
			}
		}
	}
	return nil
}

// mark notes the record that begins at the end.
func (j *journal) mark() {
	if k := len(j.index); k == 0 || j.size-j.index[k-1].offset >= indexInterval {
		j.index = append(j.index, mark{j.size, j.position})
	}
}

func readHeader(file *os.File, position int64) (size int64, err error) {
	var header [recordHeader]byte
	if _, err := file.ReadAt(header[:], position); err != nil {
		return 0, errTorn
	}
	return parseHeader(header[:])
}

func parseHeader(header []byte) (size int64, err error) {
	size = int64(binary.BigEndian.Uint32(header))
	if fd := header[4]; size == 0 || size > guest.MaxChunk || fd != 1 && fd != 2 {
		return 0, errTorn
	}
	return size, nil
}

// readRecord reads the record at position into data, which has its size.
func readRecord(file *os.File, position int64, data []byte) (fd int, err error) {
	buf := make([]byte, recordHeader)
	if _, err := file.ReadAt(buf, position); err != nil {
		return 0, errTorn
	}
	if _, err := file.ReadAt(data, position+recordHeader); err != nil {
		return 0, errTorn
	}
	if guest.Checksum(buf[:5], data) != binary.BigEndian.Uint32(buf[5:]) {
		return 0, errTorn
	}
	return int(buf[4]), nil
}

// append writes a chunk. After an error the journal is as before.
func (j *journal) append(fd int, data []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.open(); err != nil {
		return err
	}
	j.buf = binary.BigEndian.AppendUint32(j.buf[:0], uint32(len(data)))
	j.buf = append(j.buf, byte(fd))
	j.buf = binary.BigEndian.AppendUint32(j.buf, guest.Checksum(j.buf, data))
	j.buf = append(j.buf, data...)
	if _, err := j.file.WriteAt(j.buf, j.position); err != nil {
		return errors.Join(err, j.file.Truncate(j.position))
	}
	j.mark()
	j.position += int64(len(j.buf))
	j.size += int64(len(data))
	return nil
}

// length is the count of payload bytes.
func (j *journal) length() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size
}

// seek returns a record at or before offset.
func (j *journal) seek(offset int64) mark {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := sort.Search(len(j.index), func(i int) bool { return j.index[i].offset > offset })
	if i == 0 {
		return mark{0, int64(len(journalMagic))}
	}
	return j.index[i-1]
}

// close ends writing for now; reading goes on.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file, j.buf = nil, nil
	return err
}

// cursor reads a journal's records one after another.
type cursor struct {
	file *os.File
	at   mark // the next record
	buf  []byte
}

// newCursor returns a cursor whose first chunk holds offset.
func newCursor(j *journal, offset int64) (*cursor, error) {
	file, err := os.Open(j.path)
	if err != nil {
		return nil, err
	}
	c := &cursor{file: file, at: j.seek(offset)}
	for c.at.offset < offset {
		size, err := readHeader(file, c.at.position)
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("journal %s at %d: %w", j.path, c.at.offset, err)
		}
		if c.at.offset+size > offset {
			break
		}
		c.at.offset += size
		c.at.position += recordHeader + size
	}
	return c, nil
}

// next returns the part of the next record that lies at offset or after it. The
// caller knows that there is one.
func (c *cursor) next(offset int64) (guest.Chunk, error) {
	size, err := readHeader(c.file, c.at.position)
	if err != nil {
		return guest.Chunk{}, err
	}
	if int64(cap(c.buf)) < size {
		c.buf = make([]byte, guest.MaxChunk)
	}
	data := c.buf[:size]
	fd, err := readRecord(c.file, c.at.position, data)
	if err != nil {
		return guest.Chunk{}, err
	}
	skip := max(0, offset-c.at.offset)
	chunk := guest.Chunk{Fd: fd, Offset: c.at.offset + skip, Data: data[skip:]}
	c.at.offset += size
	c.at.position += recordHeader + size
	return chunk, nil
}

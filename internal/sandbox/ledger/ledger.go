// Package ledger is the clean-up ledger of one machine: before a host object is
// made, a record says so; when it is proved gone, the record is closed. After
// a crash or a power cut the open records are what may still be there.
//
// Words. An entry names one host object: its kind ("folder", "cgroup",
// "process", …), its name and the sandbox it belongs to. Open and Close are
// single lines of an append-only file, each with a checksum, each synced to
// disk before the call returns. A torn last line, what a power cut in mid-write
// leaves, is cut off at the next Open; a damaged line in the middle is an error,
// because guessing there could forget an object.
//
// Not promised: that an entry's object exists. An entry may have been opened for
// an object that was never made.
package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrCorrupt is wrapped by Open when a line that is not the last is damaged.
var ErrCorrupt = errors.New("ledger is damaged")

// Entry is one host object that may exist.
type Entry struct {
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Sandbox string    `json:"sandbox,omitempty"`
	Opened  time.Time `json:"opened"`
}

type key struct{ kind, name, sandbox string }

func (e Entry) key() key { return key{e.Kind, e.Name, e.Sandbox} }

// line is what stands in the file: a checksum of the record's bytes, and them.
type line struct {
	Sum    string          `json:"sum"`
	Record json.RawMessage `json:"record"`
}

type record struct {
	Op      string    `json:"op"` // "open" or "close"
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Sandbox string    `json:"sandbox,omitempty"`
	Time    time.Time `json:"time"`
}

// Ledger is an open ledger file. Its methods are safe for concurrent use.
type Ledger struct {
	path string
	now  func() time.Time

	mu   sync.Mutex
	file *os.File
	open map[key]Entry
	size int64 // bytes in the file that are whole lines
	dead int   // lines that no longer say anything
	err  error // a failed write that could not be taken back
}

// compactAt is how many lines without meaning are kept before the file is
// written anew.
const compactAt = 2000

// Open opens or creates the ledger at path. now gives the time of records; nil
// is time.Now.
func Open(path string, now func() time.Time) (*Ledger, error) {
	if now == nil {
		now = time.Now
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ledger %s: %w", path, err)
	}
	l := &Ledger{path: path, now: now, file: file, open: map[key]Entry{}}
	if err := l.load(); err != nil {
		file.Close()
		return nil, fmt.Errorf("ledger %s: %w", path, err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		file.Close()
		return nil, fmt.Errorf("ledger %s: %w", path, err)
	}
	return l, nil
}

func (l *Ledger) load() error {
	in := bufio.NewReader(l.file)
	for number := 1; ; number++ {
		text, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(text) == 0 {
			break
		}
		whole := err == nil
		rec, perr := parse(text)
		if perr != nil || !whole {
			if _, more := in.Peek(1); more == nil {
				return fmt.Errorf("line %d: %w", number, ErrCorrupt)
			}
			break // the torn end of a write that was never acknowledged
		}
		l.apply(rec)
		l.size += int64(len(text))
	}
	if err := l.file.Truncate(l.size); err != nil {
		return err
	}
	_, err := l.file.Seek(l.size, io.SeekStart)
	return err
}

func (l *Ledger) apply(rec record) {
	k := key{rec.Kind, rec.Name, rec.Sandbox}
	_, known := l.open[k]
	if rec.Op == "open" {
		if known {
			l.dead++
			return
		}
		l.open[k] = Entry{Kind: rec.Kind, Name: rec.Name, Sandbox: rec.Sandbox, Opened: rec.Time}
		return
	}
	if known {
		l.dead++
	}
	l.dead++
	delete(l.open, k)
}

func parse(text []byte) (record, error) {
	var ln line
	if err := json.Unmarshal(text, &ln); err != nil {
		return record{}, err
	}
	if ln.Sum != sum(ln.Record) {
		return record{}, ErrCorrupt
	}
	var rec record
	if err := json.Unmarshal(ln.Record, &rec); err != nil {
		return record{}, err
	}
	if rec.Op != "open" && rec.Op != "close" {
		return record{}, fmt.Errorf("operation %q: %w", rec.Op, ErrCorrupt)
	}
	return rec, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli)) }

// Open records that the objects of entries are about to be made, all with one
// sync. An entry that is open already stays as it is.
func (l *Ledger) Open(entries ...Entry) error { return l.write("open", entries) }

// Close records that the objects of entries are proved gone.
func (l *Ledger) Close(entries ...Entry) error { return l.write("close", entries) }

func (l *Ledger) write(op string, entries []Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return fmt.Errorf("ledger %s: %w", l.path, l.err)
	}
	var text bytes.Buffer
	var records []record
	for _, e := range entries {
		if _, known := l.open[e.key()]; known == (op == "open") {
			continue
		}
		rec := record{Op: op, Kind: e.Kind, Name: e.Name, Sandbox: e.Sandbox, Time: l.now().UTC()}
		if err := encode(&text, rec); err != nil {
			return fmt.Errorf("ledger %s: %w", l.path, err)
		}
		records = append(records, rec)
	}
	if len(records) == 0 {
		return nil
	}
	if err := l.append(text.Bytes()); err != nil {
		return fmt.Errorf("ledger %s: %w", l.path, err)
	}
	for _, rec := range records {
		l.apply(rec)
	}
	if l.dead >= compactAt {
		if err := l.compact(); err != nil {
			return fmt.Errorf("ledger %s: compact: %w", l.path, err)
		}
	}
	return nil
}

// append writes text and syncs it. When that fails, for example on a full disk,
// the file is cut back to its last whole line, so that a later write does not
// stand behind half of this one.
func (l *Ledger) append(text []byte) error {
	_, err := l.file.Write(text)
	if err == nil {
		err = l.file.Sync()
	}
	if err == nil {
		l.size += int64(len(text))
		return nil
	}
	if terr := l.file.Truncate(l.size); terr != nil {
		l.err = fmt.Errorf("%w (and the file can't be cut back: %w)", err, terr)
		return l.err
	}
	if _, serr := l.file.Seek(l.size, io.SeekStart); serr != nil {
		l.err = serr
	}
	return err
}

func encode(w *bytes.Buffer, rec record) error {
	body, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	text, err := json.Marshal(line{Sum: sum(body), Record: body})
	if err != nil {
		return err
	}
	w.Write(text)
	return w.WriteByte('\n')
}

// compact writes the open entries to a new file and puts it in place of the old
// one with one rename, so that there is a whole ledger at every moment.
func (l *Ledger) compact() error {
	var text bytes.Buffer
	for _, e := range l.sorted("") {
		rec := record{Op: "open", Kind: e.Kind, Name: e.Name, Sandbox: e.Sandbox, Time: e.Opened}
		if err := encode(&text, rec); err != nil {
			return err
		}
	}
	next := l.path + ".new"
	file, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = file.Write(text.Bytes()); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Rename(next, l.path)
	}
	if err != nil {
		file.Close()
		os.Remove(next)
		return err
	}
	l.file.Close()
	l.file, l.size, l.dead = file, int64(text.Len()), 0
	return syncDir(filepath.Dir(l.path))
}

// Entries returns the open entries, oldest first.
func (l *Ledger) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sorted("")
}

// Of returns the open entries of one sandbox, oldest first.
func (l *Ledger) Of(sandbox string) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sorted(sandbox)
}

func (l *Ledger) sorted(sandbox string) []Entry {
	entries := []Entry{}
	for _, e := range l.open {
		if sandbox == "" || e.Sandbox == sandbox {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		if c := a.Opened.Compare(b.Opened); c != 0 {
			return c
		}
		return strings.Compare(a.Sandbox+a.Kind+a.Name, b.Sandbox+b.Kind+b.Name)
	})
	return entries
}

// Release closes the file. The ledger can't be used afterwards.
func (l *Ledger) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = os.ErrClosed
	}
	return l.file.Close()
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

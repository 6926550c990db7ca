// Package record keeps the gateway's decision log: one file of JSON lines a
// sandbox, each line a task.EgressRecord.
//
// Words. A record is in the file (written, not necessarily on the platter) when
// Append returns. A tally stands for many alike refusals: the first is
// recorded at once, the rest of the same kind are counted and recorded together
// with Count set. Beyond the soft limit of the file every refusal is tallied;
// beyond the hard limit, twice that, nothing is appended and so nothing may be
// dialled.
//
// Not promised: that the last records survive a power cut.
package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// SoftLimit is the size in bytes from which on refusals are only tallied.
const SoftLimit = 64 << 20

// ErrFull says that the file has reached its hard limit.
var ErrFull = errors.New("decision log is full")

const (
	window     = 10 * time.Second // in which alike refusals are counted together
	fullWindow = time.Minute      // the same, beyond the soft limit
	kindsMax   = 256              // of refusals counted apart
	lineMax    = 64 << 10
)

// Log is the decision log of one sandbox. Safe for concurrent use.
type Log struct {
	sandbox string
	soft    int64
	now     func() time.Time

	mu      sync.Mutex
	file    *os.File
	size    int64
	seq     int64
	conn    int64
	left    map[int64]task.EgressRecord // see Left
	tallies map[kind]*tally
	stop    chan struct{}
	done    chan struct{}
}

// kind is what makes refusals alike.
type kind struct {
	name, address, protocol string
	port                    uint16
	reason                  task.Reason
}

type tally struct {
	record task.EgressRecord
	count  int64
	since  time.Time
}

// Open opens or makes the log of the sandbox in dir and goes on where it
// ended. A last line that was not written whole is cut off. soft is the soft
// limit; 0 means SoftLimit.
func Open(dir, sandbox string, soft int64) (*Log, error) {
	if soft <= 0 {
		soft = SoftLimit
	}
	path := Path(dir, sandbox)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("decision log: %w", err)
	}
	l := &Log{
		sandbox: sandbox, soft: soft, now: time.Now, file: f, tallies: make(map[kind]*tally), left: make(map[int64]task.EgressRecord),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := l.resume(); err != nil {
		f.Close()
		return nil, err
	}
	go l.flushing()
	return l, nil
}

// Path is where the log of a sandbox lies in dir.
func Path(dir, sandbox string) string { return filepath.Join(dir, sandbox+".jsonl") }

// resume finds the end of the file and the highest numbers in it.
func (l *Log) resume() error {
	whole, err := scan(l.file, func(r task.EgressRecord) {
		l.seq, l.conn = max(l.seq, r.Seq), max(l.conn, r.Conn)
		switch {
		case r.Request != 0:
		case r.Done:
			delete(l.left, r.Conn)
		case r.Inside != 0:
			l.left[r.Conn] = r
		}
	})
	if err != nil {
		return fmt.Errorf("decision log: %w", err)
	}
	if err := l.file.Truncate(whole); err != nil {
		return fmt.Errorf("decision log: %w", err)
	}
	l.size = whole
	return nil
}

// leftMost is far more than the connections that a sandbox may have at one time.
const leftMost = 1024

// Left gives the connections whose end nobody recorded before the log was
// opened, the youngest first: those of a process that was killed, and of the
// ones before it.
func (l *Log) Left() []task.EgressRecord {
	list := slices.SortedFunc(maps.Values(l.left), func(a, b task.EgressRecord) int { return cmp.Compare(b.Conn, a.Conn) })
	return list[:min(len(list), leftMost)]
}

// Conn gives the number of the next connection.
func (l *Log) Conn() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn++
	return l.conn
}

// Append numbers the record and writes it. The caller must not act on the
// decision when it fails.
func (l *Log) Append(r task.EgressRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.append(r)
}

func (l *Log) append(r task.EgressRecord) error {
	if l.file == nil {
		return os.ErrClosed
	}
	if l.size >= 2*l.soft {
		return ErrFull
	}
	r.Seq, r.Sandbox, r.Time = l.seq+1, l.sandbox, l.now().UTC()
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("decision log: %w", err)
	}
	n, err := l.file.Write(append(line, '\n'))
	if err != nil {
		// A piece of a line would spoil the next one.
		if n > 0 {
			_ = l.file.Truncate(l.size)
		}
		return fmt.Errorf("decision log: %w", err)
	}
	l.size += int64(n)
	l.seq++
	return nil
}

// Deny records a refusal of one connection, alone while there is room and
// tallied afterwards.
func (l *Log) Deny(r task.EgressRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size < l.soft {
		if l.append(r) == nil {
			return
		}
	}
	l.tally(r)
}

// Tally records a refusal of a kind that may come in floods.
func (l *Log) Tally(r task.EgressRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally(r)
}

func (l *Log) tally(r task.EgressRecord) {
	k := kind{name: r.Name, address: r.Address, protocol: r.Protocol, port: r.Port, reason: r.Reason}
	t := l.tallies[k]
	if t == nil && len(l.tallies) >= kindsMax {
		// Everything beyond is one kind, so that inventing addresses gains nothing.
		k = kind{protocol: r.Protocol, reason: r.Reason}
		r.Name, r.Address, r.Port, r.Rule = "", "", 0, ""
		t = l.tallies[k]
	}
	if t != nil {
		t.count++
		return
	}
	l.tallies[k] = &tally{record: r, since: l.now()}
	if l.size < l.soft {
		_ = l.append(r)
	} else {
		l.tallies[k].count = 1
	}
}

func (l *Log) flushing() {
	defer close(l.done)
	tick := time.NewTicker(window / 2)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
			l.flush(false)
		}
	}
}

// flush records the counts whose window is over, or all of them.
func (l *Log) flush(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := window
	if l.size >= l.soft {
		wait = fullWindow
	}
	for k, t := range l.tallies {
		if !all && l.now().Sub(t.since) < wait {
			continue
		}
		if t.count > 0 {
			r := t.record
			r.Count = t.count
			_ = l.append(r)
		}
		delete(l.tallies, k)
	}
}

// Close records what was counted and closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.file == nil {
		l.mu.Unlock()
		return nil
	}
	close(l.stop)
	l.mu.Unlock()
	<-l.done
	l.flush(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.file
	l.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// Read gives the records of the file whose number is greater than after. A
// last line that is being written is left out.
func Read(f io.Reader, after int64) ([]task.EgressRecord, error) {
	var out []task.EgressRecord
	_, err := scan(f, func(r task.EgressRecord) {
		if r.Seq > after {
			out = append(out, r)
		}
	})
	return out, err
}

// scan calls found for each whole, well-formed line and gives the length of
// the whole lines.
func scan(f io.Reader, found func(task.EgressRecord)) (whole int64, err error) {
	buf := make([]byte, 0, lineMax)
	for {
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		rest := buf
		for i := bytes.IndexByte(rest, '\n'); i >= 0; i = bytes.IndexByte(rest, '\n') {
			var r task.EgressRecord
			if json.Unmarshal(rest[:i], &r) == nil {
				found(r)
			}
			whole += int64(i) + 1
			rest = rest[i+1:]
		}
		buf = append(buf[:0], rest...)
		if len(buf) == cap(buf) {
			return whole, fmt.Errorf("line of more than %d bytes", lineMax)
		}
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return whole, err
		}
	}
}

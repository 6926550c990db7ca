package keeper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cofferdam/cofferdam/internal/egress/handover"
	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/task"
)

const journalVersion = 1

// line is one line of a journal; exactly one field is set.
type line struct {
	Begin     *begin       `json:"begin,omitempty"` // the first line
	Authority *sealed      `json:"authority,omitempty"`
	Grant     *task.Grant  `json:"grant,omitempty"`
	Name      *names.Entry `json:"name,omitempty"`
	Limits    *limits      `json:"limits,omitempty"`
}

// limits are a sandbox's own.
type limits struct {
	Names       int64 `json:"names,omitempty"`
	Connections int64 `json:"connections,omitempty"`
}

type begin struct {
	Version int    `json:"version"`
	Sandbox string `json:"sandbox"`
}

type sealed struct {
	PEM    []byte `json:"pem"`
	Sealed []byte `json:"sealed"`
}

// journal is the file of one sandbox and what stands in it. Safe for
// concurrent use.
type journal struct {
	path string

	mu        sync.Mutex
	file      *os.File
	size      int64
	authority sealed
	grant     task.Grant
	names     []names.Entry
	limits    limits
}

var errCorrupt = errors.New("journal is corrupt")

func journalPath(dir, id string) string { return filepath.Join(dir, id+".json") }

// newJournal makes the journal of a new sandbox, whose grant reaches nothing.
func newJournal(dir, id string) (*journal, error) {
	path := journalPath(dir, id)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &journal{path: path, file: f, grant: task.Grant{Sandbox: id}}
	err = j.append(line{Begin: &begin{Version: journalVersion, Sandbox: id}})
	if err == nil {
		err = syncFolder(dir)
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}
	return j, nil
}

// loadJournal reads a journal. A last line that was not written whole is cut
// off: nobody was told of it.
func loadJournal(dir, id string) (*journal, error) {
	path := journalPath(dir, id)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &journal{path: path, file: f, grant: task.Grant{Sandbox: id}}
	if err := j.replay(id); err != nil {
		f.Close()
		return nil, fmt.Errorf("journal of %s: %w", id, err)
	}
	return j, nil
}

func (j *journal) replay(id string) error {
	data, err := os.ReadFile(j.path)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	if err := j.file.Truncate(int64(whole)); err != nil {
		return err
	}
	j.size = int64(whole)
	first := true
	for text := range bytes.Lines(data[:whole]) {
		var l line
		if err := handover.Decode(text, &l); err != nil {
			return fmt.Errorf("%w: %w", errCorrupt, err)
		}
		if first != (l.Begin != nil) {
			return fmt.Errorf("%w: begin", errCorrupt)
		}
		first = false
		switch {
		case l.Begin != nil:
			if l.Begin.Version != journalVersion || l.Begin.Sandbox != id {
				return fmt.Errorf("%w: of %q", errCorrupt, l.Begin.Sandbox)
			}
		case l.Grant != nil && l.Grant.Sandbox != id:
			return fmt.Errorf("%w: grant of %q", errCorrupt, l.Grant.Sandbox)
		}
		j.take(l)
	}
	if first {
		return fmt.Errorf("%w: empty", errCorrupt)
	}
	return nil
}

func (j *journal) take(l line) {
	switch {
	case l.Authority != nil:
		j.authority = *l.Authority
	case l.Grant != nil:
		j.grant = *l.Grant
	case l.Name != nil:
		if !slices.Contains(j.names, *l.Name) { // journals of before could repeat one
			j.names = append(j.names, *l.Name)
		}
	case l.Limits != nil:
		j.limits = *l.Limits
	}
}

// append writes a line and waits until it is on the disk.
func (j *journal) append(l line) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(l)
}

// write is append with the lock held.
func (j *journal) write(l line) error {
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if j.file == nil {
		return fmt.Errorf("journal: %w", os.ErrClosed)
	}
	n, err := j.file.Write(append(data, '\n'))
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		_ = j.file.Truncate(j.size)
		return fmt.Errorf("journal: %w", err)
	}
	j.size += int64(n)
	j.take(l)
	return nil
}

// addName stores an entry; one that is stored already is fine, one that
// contradicts another is not. Both families of a name are asked for at once, so
// the same entry comes twice at one time.
func (j *journal) addName(e names.Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, old := range j.names {
		if old == e {
			return nil
		}
		if old.Name == e.Name || old.Index == e.Index {
			return fmt.Errorf("name %q at %d contradicts %q at %d", e.Name, e.Index, old.Name, old.Index)
		}
	}
	return j.write(line{Name: &e})
}

// state gives what is to be handed over.
func (j *journal) state() (sealed, task.Grant, []names.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.authority, j.grant, append([]names.Entry(nil), j.names...)
}

// bounds are the sandbox's own limits.
func (j *journal) bounds() limits {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.limits
}

func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}

// remove deletes the journal for good.
func (j *journal) remove() error {
	j.close()
	if err := os.Remove(j.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	return syncFolder(filepath.Dir(j.path))
}

// journals lists the sandboxes that have one in dir.
func journals(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("journals: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok && handover.ValidID(id) && e.Type().IsRegular() {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// epochs remembers which gateway answered when a command was started and when
// its end was first seen, so that a command which failed while the gateway was
// replaced is told apart, also by a worker that was itself replaced meanwhile. One
// file a sandbox, a line a note, the first note counts. The files are not synced:
// what ends the machine ends its sandboxes too.
type epochs struct {
	dir string

	mu    sync.Mutex
	known map[string]map[note]string // by sandbox
}

// note is a moment of a command.
type note struct {
	command string
	ended   bool
}

type noteLine struct {
	Command string `json:"command"`
	Ended   bool   `json:"ended,omitempty"`
	Epoch   string `json:"epoch"`
}

func newEpochs(dir string) *epochs { return &epochs{dir: dir, known: map[string]map[note]string{}} }

func (e *epochs) path(sandbox string) string { return filepath.Join(e.dir, sandbox+".epochs") }

// started notes the epoch for a command that may be about to start and returns
// the one that counts.
func (e *epochs) started(sandbox, command, epoch string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first(sandbox, note{command, false}, epoch)
}

// seen returns the epochs of a command's start and of its end or, while it runs,
// of now.
func (e *epochs) seen(sandbox, command, now string, ended bool) (before, after string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, err = e.first(sandbox, note{command, false}, now); err != nil || !ended {
		return before, now, err
	}
	after, err = e.first(sandbox, note{command, true}, now)
	return before, after, err
}

// first returns the noted epoch, noting the given one when there is none. e.mu
// is held.
func (e *epochs) first(sandbox string, n note, epoch string) (string, error) {
	notes, err := e.load(sandbox)
	if err != nil {
		return "", err
	}
	if noted, ok := notes[n]; ok {
		return noted, nil
	}
	line, err := json.Marshal(noteLine{Command: n.command, Ended: n.ended, Epoch: epoch})
	if err != nil {
		return "", err
	}
	file, err := os.OpenFile(e.path(sandbox), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	// The line ends the one that a crash may have torn before it.
	_, err = file.Write(append(append([]byte{'\n'}, line...), '\n'))
	if err := errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	notes[n] = epoch
	return epoch, nil
}

func (e *epochs) load(sandbox string) (map[note]string, error) {
	if notes := e.known[sandbox]; notes != nil {
		return notes, nil
	}
	notes := map[note]string{}
	file, err := os.Open(e.path(sandbox))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		defer file.Close()
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			var l noteLine
			if json.Unmarshal(lines.Bytes(), &l) != nil {
				continue // An empty line, or one that was torn.
			}
			n := note{l.Command, l.Ended}
			if _, ok := notes[n]; !ok {
				notes[n] = l.Epoch
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("epochs of %s: %w", sandbox, err)
		}
	}
	e.known[sandbox] = notes
	return notes, nil
}

// forget removes what is noted of a sandbox.
func (e *epochs) forget(sandbox string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.known, sandbox)
	if err := os.Remove(e.path(sandbox)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sandboxes returns the sandboxes that something is noted of.
func (e *epochs) sandboxes() ([]string, error) {
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, entry := range entries {
		if id, ours := strings.CutSuffix(entry.Name(), ".epochs"); ours {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Package frozen remembers which sandboxes of a machine are kept as evidence, over
// restarts of everything. Such a sandbox is neither worked in nor cleaned up until a
// person releases it.
package frozen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/cofferdam/cofferdam/internal/sandbox"
)

// Set is the frozen sandboxes of one machine: a file each. It is safe for concurrent
// use.
type Set struct {
	dir string

	mu  sync.RWMutex
	has map[string]bool
}

// Open reads the folder and makes it where it is absent.
func Open(dir string) (*Set, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("frozen sandboxes: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("frozen sandboxes: %w", err)
	}
	s := &Set{dir: dir, has: map[string]bool{}}
	for _, e := range entries {
		if sandbox.ValidID(e.Name()) {
			s.has[e.Name()] = true
		}
	}
	return s, nil
}

// Has says whether the sandbox is kept. A nil set has none.
func (s *Set) Has(id string) bool {
	if s == nil {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.has[id]
}

// Add keeps the sandbox from here on. It may be repeated.
func (s *Set) Add(id string) error {
	if !sandbox.ValidID(id) {
		return fmt.Errorf("sandbox id %q is not valid", id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.OpenFile(filepath.Join(s.dir, id), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("frozen sandboxes: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close(), s.sync()); err != nil {
		return fmt.Errorf("frozen sandboxes: %w", err)
	}
	s.has[id] = true
	return nil
}

// Remove lets the sandbox go. One that is not kept is no error.
func (s *Set) Remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has[id] {
		return nil
	}
	if err := os.Remove(filepath.Join(s.dir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("frozen sandboxes: %w", err)
	}
	delete(s.has, id)
	return s.sync()
}

func (s *Set) sync() error {
	dir, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

package files

import (
	"bytes"
	"sync"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// maxEffects is how many effects are remembered.
const maxEffects = 1024

// Memory knows the effects that were had, by their keys, so that a request whose
// answer was lost may be repeated. The zero Memory is ready for use.
type Memory struct {
	mu    sync.Mutex
	byKey map[string]*effect
	order []string
}

type effect struct {
	request []byte
	done    chan struct{} // closed when the result is known
	result  guest.FileResult
	had     bool // it succeeded; a failure may be tried again
}

// Once has the effect of a request, unless it was had; without a key it always
// has. A key that names another request is refused.
func (m *Memory) Once(key string, request any, do func() (guest.FileResult, error)) (guest.FileResult, error) {
	if key == "" {
		return do()
	}
	if !guest.ValidFileKey(key) {
		return guest.FileResult{}, guest.Errorf(guest.ReasonInvalid, "key %.80q: it must be 1 to 64 letters, digits, '.', '_' and '-'", key)
	}
	e := &effect{request: guest.Marshal(request), done: make(chan struct{})}
	for {
		first := m.enter(key, e)
		if first == e {
			break
		}
		if !bytes.Equal(first.request, e.request) {
			return guest.FileResult{}, guest.Errorf(guest.ReasonConflict, "key %q was used for another request", key)
		}
		if <-first.done; first.had {
			return first.result, nil
		}
	}
	defer func() {
		if !e.had {
			m.forget(key, e)
		}
		close(e.done)
	}()
	result, err := do()
	e.result, e.had = result, err == nil
	return result, err
}

// enter returns the effect of that key that is known, or makes e it.
func (m *Memory) enter(key string, e *effect) *effect {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.byKey[key]; known != nil {
		return known
	}
	if m.byKey == nil {
		m.byKey = map[string]*effect{}
	}
	m.byKey[key] = e
	if m.order = append(m.order, key); len(m.order) > maxEffects {
		delete(m.byKey, m.order[0])
		m.order = append([]string(nil), m.order[1:]...)
	}
	return e
}

func (m *Memory) forget(key string, e *effect) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byKey[key] == e {
		delete(m.byKey, key)
		for i, k := range m.order {
			if k == key {
				m.order = append(m.order[:i], m.order[i+1:]...)
				break
			}
		}
	}
}

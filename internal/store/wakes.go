package store

import "sync"

// wakes tells watchers in this process that a task may have changed.
type wakes struct {
	mu    *sync.Mutex
	chans map[string]map[chan struct{}]struct{} // "" watches all tasks
}

func newWakes() wakes {
	return wakes{mu: new(sync.Mutex), chans: map[string]map[chan struct{}]struct{}{}}
}

// Watch returns a channel that receives when there may be more events or more
// of a log of the task ("": of any task), and what ends the watching. Wakes
// that nobody fetched in time are merged; nothing is sent after the end.
func (s *Store) Watch(taskID string) (<-chan struct{}, func()) {
	w, c := s.wakes, make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chans[taskID] == nil {
		w.chans[taskID] = map[chan struct{}]struct{}{}
	}
	w.chans[taskID][c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.chans[taskID], c)
		if len(w.chans[taskID]) == 0 {
			delete(w.chans, taskID)
		}
	}
}

func (s *Store) wake(taskID string) {
	w := s.wakes
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range []string{taskID, ""} {
		for c := range w.chans[id] {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}

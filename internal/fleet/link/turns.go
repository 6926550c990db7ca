package link

import (
	"context"
	"sync"
)

// Turns makes those who name the same id go one after another. Both ends use
// it, each for itself: a sandbox's making, its grants and its end must not
// overtake each other. The zero value is ready.
type Turns struct {
	mu    sync.Mutex
	turns map[string]*turn
}

type turn struct {
	free  chan struct{} // holds one token when nobody has the turn
	users int           // who has it and who waits
}

// Take waits for the id's turn. done gives it back.
func (t *Turns) Take(ctx context.Context, id string) (done func(), err error) {
	t.mu.Lock()
	if t.turns == nil {
		t.turns = map[string]*turn{}
	}
	mine := t.turns[id]
	if mine == nil {
		mine = &turn{free: make(chan struct{}, 1)}
		mine.free <- struct{}{}
		t.turns[id] = mine
	}
	mine.users++
	t.mu.Unlock()

	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(t.turns, id)
		}
	}
	select {
	case <-mine.free:
		return func() { mine.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// Package spender asks the control plane, for the gateway, whether a budget has
// room for a request to a model. It implements outbound.Purse.
//
// Words. A request takes a place, which it gives back when what it used is on
// record. A question is asked in turns while the task waits for a budget to be
// raised. Where no budget binds a sandbox's task nobody is asked again for a
// minute, so a control plane that restarts is not noticed; a budget that is set
// counts from then on.
package spender

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/plane"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	freeTime = time.Minute
	freeMost = 4096 // sandboxes that are known to be free
	// places bounds the requests of a sandbox that are under way at one time where a
	// budget binds: what is under way when it is met goes beyond it.
	places = 8
)

// Spender asks. It is safe for concurrent use.
type Spender struct {
	turns *plane.Turns

	mu     sync.Mutex
	free   map[string]time.Time // until when nobody is asked for a sandbox
	places map[string]*room
}

// room is a sandbox's places.
type room struct {
	free  chan struct{}
	users int
}

// New returns a spender. Nothing is asked before a request comes.
func New(o plane.Options) (*Spender, error) {
	turns, err := plane.NewTurns(o, "/v1/gateway/spend")
	if err != nil {
		return nil, err
	}
	return &Spender{turns: turns, free: map[string]time.Time{}, places: map[string]*room{}}, nil
}

// Close ends connections that are idle.
func (s *Spender) Close() { s.turns.Close() }

// Take waits for room. See outbound.Purse.
func (s *Spender) Take(ctx context.Context, sandbox string, counted bool) (done func(), err error) {
	if s.isFree(sandbox) {
		return func() {}, nil
	}
	let, err := s.place(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	free, err := s.ask(ctx, turn{Sandbox: sandbox, Counted: counted})
	if err != nil || free {
		let()
		let = func() {}
	}
	if free {
		s.setFree(sandbox)
	}
	return let, err
}

func (s *Spender) isFree(sandbox string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.free[sandbox])
}

func (s *Spender) setFree(sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) >= freeMost {
		clear(s.free) // they are asked again
	}
	s.free[sandbox] = time.Now().Add(freeTime)
}

// place takes one of the sandbox's places.
func (s *Spender) place(ctx context.Context, sandbox string) (let func(), err error) {
	s.mu.Lock()
	r := s.places[sandbox]
	if r == nil {
		r = &room{free: make(chan struct{}, places)}
		s.places[sandbox] = r
	}
	r.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.users--; r.users == 0 {
			delete(s.places, sandbox)
		}
	}
	select {
	case r.free <- struct{}{}:
		return sync.OnceFunc(func() { <-r.free; leave() }), nil
	case <-ctx.Done():
		leave()
		return nil, task.Fail(task.Cancelled, "the request was given up", ctx.Err())
	}
}

// turn is what is asked, and outcome what it came to.
type (
	turn struct {
		Sandbox string `json:"sandbox"`
		Counted bool   `json:"counted"`
	}
	outcome struct {
		State  string      `json:"state"`
		Reason task.Reason `json:"reason"`
		Text   string      `json:"text"`
	}
)

// ask asks until there is an answer; free says that no budget binds the task.
func (s *Spender) ask(ctx context.Context, t turn) (free bool, err error) {
	var last plane.Heard
	var refused *task.Failure
	lost := s.turns.Ask(ctx, func() any { return t }, func(data []byte, err error) (plane.Heard, error) {
		last, free, refused, err = hear(data, err)
		return last, err
	})
	switch {
	case lost == nil && refused != nil:
		return false, refused
	case lost == nil:
		return free, nil
	case last == plane.Waiting:
		return false, task.Fail(task.Cancelled, "the request was given up", lost)
	}
	return false, task.Fail(task.InfraControlAway, "the control plane did not say in time whether a budget has room; see that cofferdamd runs", lost)
}

// hear reads what came of one turn.
func hear(data []byte, err error) (heard plane.Heard, free bool, refused *task.Failure, useless error) {
	if r, ok := errors.AsType[*plane.Refused](err); ok && r.Reason.Class() == "policy" {
		return plane.Final, false, task.Fail(r.Reason, "", nil), nil
	}
	if err != nil {
		return plane.Away, false, nil, err
	}
	var o outcome
	if json.Unmarshal(data, &o) != nil {
		o.State = ""
	}
	switch o.State {
	case "waiting":
		return plane.Waiting, false, nil, nil
	case "go", "free":
		return plane.Final, o.State == "free", nil, nil
	case "refused":
		return plane.Final, false, task.Fail(cmp.Or(o.Reason, task.LimitSpend), o.Text, nil), nil
	}
	return plane.Away, false, nil, errors.New("the answer is none")
}

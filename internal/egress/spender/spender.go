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
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/plane"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	defaultWait = 30 * time.Second
	turnTime    = 40 * time.Second // one turn, at most
	firstPause  = 50 * time.Millisecond
	lastPause   = time.Second
	freeTime    = time.Minute
	freeMost    = 4096 // sandboxes that are known to be free
	// places bounds the requests of a sandbox that are under way at one time where a
	// budget binds: what is under way when it is met goes beyond it.
	places = 8
)

// Options make a spender. Control and TokenFile are required.
type Options struct {
	Control   string        // URL of cofferdamd; plain http on this machine only
	TokenFile string        // with the token of role gateway; read again at each turn
	Wait      time.Duration // for a control plane that is away; 0: 30 s
	Log       *slog.Logger  // nil: no log
}

// Spender asks. It is safe for concurrent use.
type Spender struct {
	plane *plane.Client
	wait  time.Duration
	log   *slog.Logger

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
func New(o Options) (*Spender, error) {
	client, err := plane.New(o.Control, o.TokenFile)
	if err != nil {
		return nil, err
	}
	s := &Spender{plane: client, wait: o.Wait, log: o.Log, free: map[string]time.Time{}, places: map[string]*room{}}
	if s.wait <= 0 {
		s.wait = defaultWait
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// Close ends connections that are idle.
func (s *Spender) Close() { s.plane.Close() }

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

// turn is one turn of a question, and what it came to.
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
	away, pause := time.Time{}, firstPause
	for {
		o, err := s.take(ctx, t)
		var refused *plane.Refused
		switch {
		case err == nil && o.State == "waiting":
			if ctx.Err() != nil {
				return false, task.Fail(task.Cancelled, "the request was given up", ctx.Err())
			}
			away, pause = time.Time{}, firstPause
			continue
		case err == nil && (o.State == "go" || o.State == "free"):
			return o.State == "free", nil
		case err == nil && o.State == "refused":
			if o.Reason == task.ReasonNone {
				o.Reason = task.LimitSpend
			}
			return false, task.Fail(o.Reason, o.Text, nil)
		case errors.As(err, &refused) && refused.Reason.Class() == "policy":
			return false, task.Fail(refused.Reason, "", nil)
		}
		now := time.Now()
		if away.IsZero() {
			away = now
		}
		if ctx.Err() != nil || now.Sub(away) >= s.wait {
			return false, task.Fail(task.InfraControlAway, "the control plane did not say in time whether a budget has room; see that cofferdamd runs", err)
		}
		s.log.DebugContext(ctx, "whether a budget has room is not known", "sandbox", t.Sandbox, "error", err)
		timer := time.NewTimer(pause)
		pause = min(2*pause, lastPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// take takes one turn.
func (s *Spender) take(ctx context.Context, t turn) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	data, err := s.plane.Ask(ctx, "/v1/gateway/spend", t)
	if err != nil {
		return outcome{}, err
	}
	var o outcome
	if json.Unmarshal(data, &o) != nil || o.State == "" {
		return outcome{}, errors.New("the answer is none")
	}
	return o, nil
}

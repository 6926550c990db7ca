package plane

import (
	"context"
	"log/slog"
	"time"
)

const (
	defaultWait = 30 * time.Second
	turnTime    = 40 * time.Second // one turn, at most
	firstPause  = 50 * time.Millisecond
	lastPause   = time.Second
)

// Heard is what an answer in turns comes to.
type Heard uint8

// What was heard.
const (
	Away    Heard = iota // nothing of use: it is asked again after a pause
	Waiting              // it is not decided yet, and asked again at once
	Final
)

// Options make Turns. Control and TokenFile are required.
type Options struct {
	Control   string        // URL of cofferdamd; plain http on this machine only
	TokenFile string        // with the token of role gateway; read again at each turn
	Wait      time.Duration // for a control plane that is away; 0: 30 s
	Log       *slog.Logger  // nil: no log
}

// Turns asks what may take long: each turn lasts some seconds and says that
// nothing is decided yet, or what was. A control plane that is away between turns
// is waited for, for a time. It is safe for concurrent use.
type Turns struct {
	client *Client
	path   string
	wait   time.Duration
	log    *slog.Logger
}

// NewTurns returns what asks by one path. Nothing is asked.
func NewTurns(o Options, path string) (*Turns, error) {
	client, err := New(o.Control, o.TokenFile)
	if err != nil {
		return nil, err
	}
	t := &Turns{client: client, path: path, wait: o.Wait, log: o.Log}
	if t.wait <= 0 {
		t.wait = defaultWait
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	return t, nil
}

// Wait is how long a control plane that is away is waited for.
func (t *Turns) Wait() time.Duration { return t.wait }

// Close ends connections that are idle.
func (t *Turns) Close() { t.client.Close() }

// Ask asks until hear says that what came is final. question is called for each
// turn; hear is given an answer or the error of asking, and tells why an answer
// is of no use. The error is the last one, after ctx has ended or the control
// plane was away too long.
func (t *Turns) Ask(ctx context.Context, question func() any, hear func(answer []byte, err error) (Heard, error)) error {
	away, pause := time.Time{}, firstPause
	for {
		heard, err := hear(t.turn(ctx, question()))
		switch heard {
		case Final:
			return nil
		case Waiting:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			away, pause = time.Time{}, firstPause
			continue
		case Away:
		}
		now := time.Now()
		if away.IsZero() {
			away = now
		}
		if ctx.Err() != nil || now.Sub(away) >= t.wait {
			return err
		}
		t.log.DebugContext(ctx, "the control plane does not answer", "path", t.path, "error", err)
		timer := time.NewTimer(pause)
		pause = min(2*pause, lastPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func (t *Turns) turn(ctx context.Context, question any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	return t.client.Ask(ctx, t.path, question)
}

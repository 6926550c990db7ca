// Package asker asks the control plane what becomes of connections that wait
// for a person, for the gateway. It implements egress.Asker.
//
// Words. A question is asked in turns: each turn lasts some seconds and says
// that nobody answered yet, or what was answered. A control plane that is away
// between turns is waited for, at most Options.Wait; then it is
// infra.control_plane_away. The question stays in the inbox meanwhile.
package asker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/plane"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	defaultWait = 30 * time.Second
	turnTime    = 40 * time.Second // one turn, at most
	firstPause  = 50 * time.Millisecond
	lastPause   = time.Second
	mostTurns   = 10 * time.Minute // that a question waits, whatever the control plane says
)

// Options make an asker. Control and TokenFile are required.
type Options struct {
	Control   string        // URL of cofferdamd; plain http on this machine only
	TokenFile string        // with the token of role gateway; read again at each turn
	Wait      time.Duration // for a control plane that is away; 0: 30 s
	Log       *slog.Logger  // nil: no log
}

// Asker asks. It is safe for concurrent use.
type Asker struct {
	plane *plane.Client
	wait  time.Duration
	log   *slog.Logger
}

// New returns an asker. Nothing is asked before a connection waits.
func New(o Options) (*Asker, error) {
	client, err := plane.New(o.Control, o.TokenFile)
	if err != nil {
		return nil, err
	}
	a := &Asker{plane: client, wait: o.Wait, log: o.Log}
	if a.wait <= 0 {
		a.wait = defaultWait
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	return a, nil
}

// turn is one turn of a question, and what it came to.
type (
	turn struct {
		Sandbox  string         `json:"sandbox"`
		Use      string         `json:"use"`
		Approval string         `json:"approval,omitempty"`
		Egress   task.EgressAsk `json:"egress"`
	}
	outcome struct {
		State    string      `json:"state"`
		Approval string      `json:"approval"`
		ID       string      `json:"id"`
		Once     bool        `json:"once"`
		Reason   task.Reason `json:"reason"`
	}
)

// Ask waits for what becomes of a held connection, until ctx ends. Errors are
// *task.Failure with task.InfraControlAway.
func (a *Asker) Ask(ctx context.Context, h task.Held) (task.HeldAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, mostTurns+a.wait)
	defer cancel()
	t := turn{Sandbox: h.Sandbox, Use: h.Use, Egress: h.EgressAsk}
	away, pause := time.Time{}, firstPause
	for {
		o, err := a.take(ctx, t)
		var refused *plane.Refused
		switch {
		case err == nil && o.State == "waiting":
			t.Approval, away, pause = o.Approval, time.Time{}, firstPause
			continue
		case err == nil && o.State == "allowed" && o.ID != "":
			return task.HeldAnswer{Allow: true, Once: o.Once, ID: o.ID}, nil
		case err == nil:
			return task.HeldAnswer{Reason: refusal(o.Reason)}, nil
		case errors.As(err, &refused) && final(refused.Reason):
			return task.HeldAnswer{Reason: refusal(refused.Reason)}, nil
		}
		now := time.Now()
		if away.IsZero() {
			away = now
		}
		if ctx.Err() != nil || now.Sub(away) >= a.wait {
			return task.HeldAnswer{}, task.Fail(task.InfraControlAway, "the control plane did not say in time what a person answered; see that cofferdamd runs", err)
		}
		a.log.DebugContext(ctx, "a question is not taken", "sandbox", h.Sandbox, "error", err)
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
func (a *Asker) take(ctx context.Context, t turn) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	data, err := a.plane.Ask(ctx, "/v1/gateway/ask", t)
	if err != nil {
		return outcome{}, err
	}
	var o outcome
	if json.Unmarshal(data, &o) != nil || o.State == "" || o.State == "waiting" && o.Approval == "" {
		return outcome{}, errors.New("answer: not the expected JSON")
	}
	return o, nil
}

// final says whether a refusal's reason stands, rather than being gone in a
// moment.
func final(r task.Reason) bool {
	switch r.Class() {
	case "policy", "approval", "limit", "cancelled":
		return true
	}
	return r == task.InputInvalid || r == task.InputNotFound
}

// refusal is the reason that the inside reads.
func refusal(r task.Reason) task.Reason {
	switch r {
	case task.ApprovalDenied, task.ApprovalExpired, task.LimitRequests:
		return r
	}
	if r.Class() == "policy" || r.Class() == "input" {
		return task.PolicyDenied
	}
	return task.ApprovalDenied
}

// Close ends connections that are idle.
func (a *Asker) Close() { a.plane.Close() }

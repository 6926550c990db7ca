package spender

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/plane"
	"github.com/cofferdam/cofferdam/internal/egress/plane/planetest"
	"github.com/cofferdam/cofferdam/internal/task"
)

var _ outbound.Purse = (*Spender)(nil)

const box = "sb-aaaaaaaaaaaaaaaa"

func serve(t *testing.T, wait time.Duration, h http.HandlerFunc) *Spender {
	t.Helper()
	url, file := planetest.Serve(t, h)
	a, err := New(plane.Options{Control: url, TokenFile: file, Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   any
		want   task.Reason // empty: it may go
	}{
		"room":        {200, outcome{State: "go"}, ""},
		"no budget":   {200, outcome{State: "free"}, ""},
		"none":        {200, outcome{State: "refused", Reason: task.LimitSpend}, task.LimitSpend},
		"no reason":   {200, outcome{State: "refused"}, task.LimitSpend},
		"not allowed": {403, map[string]string{"code": "policy.denied"}, task.PolicyDenied},
		"a word":      {200, outcome{State: "sure"}, task.InfraControlAway},
		"nothing":     {200, map[string]string{}, task.InfraControlAway},
		"a fault":     {500, map[string]string{"code": "infra.internal"}, task.InfraControlAway},
	} {
		s := serve(t, 50*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) { planetest.Says(w, c.status, c.body) })
		done, err := s.Take(t.Context(), box, true)
		var f *task.Failure
		switch {
		case c.want == "" && err != nil, c.want != "" && (!errors.As(err, &f) || f.Reason != c.want):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case err == nil:
			done()
		}
		if len(s.places) != 0 {
			t.Errorf("%s: a place is left", name)
		}
	}
}

// A question goes on in turns, also over a control plane that is away between
// them; one without a budget is not asked again.
func TestTurns(t *testing.T) {
	var n atomic.Int64
	s := serve(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		var got turn
		if json.NewDecoder(r.Body).Decode(&got) != nil || got != (turn{Sandbox: box}) || r.Header.Get("Authorization") != "Bearer cfd_x" {
			t.Errorf("asked %+v", got)
		}
		switch n.Add(1) {
		case 1, 3:
			planetest.Says(w, 200, outcome{State: "waiting"})
		case 2:
			w.WriteHeader(502)
		default:
			planetest.Says(w, 200, outcome{State: "free"})
		}
	})
	for range 3 {
		done, err := s.Take(t.Context(), box, false)
		if err != nil || n.Load() != 4 {
			t.Fatalf("%v after %d turns", err, n.Load())
		}
		done()
	}
}

// Where a budget binds only so many requests are under way at one time.
func TestPlaces(t *testing.T) {
	s := serve(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) { planetest.Says(w, 200, outcome{State: "go"}) })
	var held []func()
	for range places {
		done, err := s.Take(t.Context(), box, true)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, done)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Take(ctx, box, true); err == nil {
		t.Fatal("one more is under way")
	}
	got := make(chan error)
	go func() {
		done, err := s.Take(t.Context(), box, true)
		if err == nil {
			done()
		}
		got <- err
	}()
	held[0]()
	held[0]() // twice is once
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	for _, done := range held[1:] {
		done()
	}
	if len(s.places) != 0 {
		t.Error("places are left")
	}
}

func TestGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		planetest.Says(w, 200, outcome{State: "waiting"})
	})
	if _, err := s.Take(ctx, box, true); err == nil {
		t.Error("it went on")
	}
}

package asker

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress"
	"github.com/cofferdam/cofferdam/internal/egress/plane"
	"github.com/cofferdam/cofferdam/internal/egress/plane/planetest"
	"github.com/cofferdam/cofferdam/internal/task"
)

var _ egress.Asker = (*Asker)(nil)

var question = task.Held{Sandbox: "sb-aaaaaaaaaaaaaaaa", Use: "u1", EgressAsk: task.EgressAsk{Name: "a.test", Port: 443, Protocol: "tls", Seen: "tls"}}

func serve(t *testing.T, wait time.Duration, h http.HandlerFunc) *Asker {
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
		want   task.HeldAnswer
	}{
		"once":        {200, outcome{State: "allowed", ID: "ap-1", Once: true}, task.HeldAnswer{Allow: true, Once: true, ID: "ap-1"}},
		"decision":    {200, outcome{State: "allowed", ID: "d-1"}, task.HeldAnswer{Allow: true, ID: "d-1"}},
		"by nobody":   {200, outcome{State: "allowed"}, task.HeldAnswer{Reason: task.ApprovalDenied}},
		"denied":      {200, outcome{State: "denied", Reason: task.ApprovalDenied}, task.HeldAnswer{Reason: task.ApprovalDenied}},
		"expired":     {200, outcome{State: "expired", Reason: task.ApprovalExpired}, task.HeldAnswer{Reason: task.ApprovalExpired}},
		"void":        {200, outcome{State: "void"}, task.HeldAnswer{Reason: task.ApprovalDenied}},
		"not allowed": {403, map[string]string{"code": "policy.denied"}, task.HeldAnswer{Reason: task.PolicyDenied}},
		"too many":    {429, map[string]string{"code": "limit.requests"}, task.HeldAnswer{Reason: task.LimitRequests}},
		"task over":   {409, map[string]string{"code": "cancelled"}, task.HeldAnswer{Reason: task.ApprovalDenied}},
	} {
		a := serve(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) { planetest.Says(w, c.status, c.body) })
		got, err := a.Ask(t.Context(), question)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}

// A question goes on in turns, also over a control plane that is away between
// them, and names its entry.
func TestTurns(t *testing.T) {
	var n atomic.Int64
	a := serve(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		var got turn
		if json.NewDecoder(r.Body).Decode(&got) != nil || got.Egress != question.EgressAsk || got.Use != "u1" || r.Header.Get("Authorization") != "Bearer cfd_x" {
			t.Errorf("asked %+v", got)
		}
		switch n.Add(1) {
		case 1:
			planetest.Says(w, 200, outcome{State: "waiting", Approval: "ap-1"})
		case 2:
			w.WriteHeader(502)
		case 3:
			planetest.Says(w, 200, map[string]string{"something": "else"})
		case 4:
			planetest.Says(w, 503, map[string]string{"code": "infra.storage"})
		default:
			if got.Approval != "ap-1" {
				t.Errorf("turn %d: %+v", n.Load(), got)
			}
			planetest.Says(w, 200, outcome{State: "allowed", ID: "d-1"})
		}
	})
	if got, err := a.Ask(t.Context(), question); err != nil || !got.Allow || n.Load() != 5 {
		t.Errorf("%+v %v after %d turns", got, err, n.Load())
	}
}

func TestControlPlaneAway(t *testing.T) {
	a := serve(t, 100*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	got, err := a.Ask(t.Context(), question)
	if f, ok := errors.AsType[*task.Failure](err); !ok || f.Reason != task.InfraControlAway || got.Allow {
		t.Errorf("%+v %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := a.Ask(ctx, question); err == nil || got.Allow {
		t.Errorf("%+v %v", got, err)
	}
}

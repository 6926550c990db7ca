package outbound

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The control plane's own requests are held to the models that are allowed, as
// those of a sandbox are, and nothing is asked outside before.
func TestModelsOfOurOwnLoop(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Grant.Rules[0].Paths, o.Grant.Rules[0].Body = nil, &task.Body{Models: []string{"good-*"}}
	})
	for body, want := range map[string]task.Reason{
		`{"model":"good-1","messages":[]}`: task.ReasonNone,
		`{"model":"bad-1"}`:                task.PolicyModel,
		`{"messages":[]}`:                  task.PolicyModel,
	} {
		sent := io.NopCloser(strings.NewReader(body))
		var asked *http.Request
		got, reason := w.do("POST", w.url+"/v1/messages", func(r *http.Request) {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Api-Key", placeholder)
			r.Body, r.ContentLength, r.GetBody = sent, int64(len(body)), nil
			asked = r
		})
		if reason != want || want == task.ReasonNone && got != "/v1/messages "+body {
			t.Errorf("%s: %q, %q; want %q", body, got, reason, want)
		}
		if asked.Body != sent || asked.GetBody != nil {
			t.Errorf("%s: the caller's request was changed", body)
		}
		if want == task.ReasonNone {
			if key := <-w.keys; key != realKey {
				t.Errorf("%s: the far side saw the key %q", body, key)
			}
		} else if len(w.keys) != 0 {
			t.Errorf("%s reached the far side", body)
		}
	}
}

// What is held of bodies is bounded and given back.
func TestBodiesAreBounded(t *testing.T) {
	b := NewBodies(2 * bodyStep)
	request := func(n int) *http.Request {
		return &http.Request{Body: io.NopCloser(strings.NewReader(strings.Repeat("x", n))), ContentLength: int64(n)}
	}
	first, held := b.read(request(bodyStep + 1))
	if first.Unread || len(first.Bytes) != bodyStep+1 || held != 2*bodyStep {
		t.Fatalf("%t, %d bytes, %d held", first.Unread, len(first.Bytes), held)
	}
	r := request(10)
	second, none := b.read(r)
	if !second.Unread || none != 0 {
		t.Errorf("more is held than there may be: %+v, %d", second, none)
	}
	if all, err := io.ReadAll(r.Body); err != nil || len(all) != 10 {
		t.Errorf("the body that was not looked at is %d bytes, %v", len(all), err)
	}
	b.give(held)
	if again, n := b.read(request(10)); again.Unread || n != bodyStep {
		t.Errorf("what was given back is not there: %+v, %d", again, n)
	}
	var unbounded *Bodies
	if body, _ := unbounded.read(&http.Request{Body: http.NoBody}); body.Unread || len(body.Bytes) != 0 {
		t.Errorf("no body is %+v", body)
	}
	if body, n := unbounded.read(request(decide.MaxBody + 1)); !body.Unread || n != 0 {
		t.Errorf("a body that says it is too long was read: %d", n)
	}
}

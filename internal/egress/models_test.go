package egress

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// purse keeps what it was asked, and answers with err.
type purse struct {
	mu    sync.Mutex
	asked []bool // whether each request is counted
	done  int
	err   error
	hold  chan struct{} // nil: nothing is held
	held  chan struct{} // told when something is
}

func (p *purse) Take(ctx context.Context, sandbox string, counted bool) (func(), error) {
	p.mu.Lock()
	p.asked = append(p.asked, counted)
	hold, err := p.hold, p.err
	p.mu.Unlock()
	if hold != nil {
		select {
		case p.held <- struct{}{}:
		default:
		}
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, task.Fail(task.Cancelled, "gone", nil)
		}
	}
	if sandbox != testID {
		err = task.Fail(task.PolicyDenied, "another sandbox", nil)
	}
	return func() { p.mu.Lock(); defer p.mu.Unlock(); p.done++ }, err
}

func (p *purse) take() (asked []bool, done int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, done = p.asked, p.done
	p.asked, p.done = nil, 0
	return asked, done
}

const streamed = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m-1\",\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n" +
	"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n"

// What a request to a model used is on record; a purse is asked before it goes,
// and again when its end is on record. Other requests are neither.
func TestModelsAreCounted(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			w := newWithin(t, h2, func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				rw.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(rw, streamed)
			})
			p := &purse{}
			w.gateway.options.Purse = p
			w.grant(task.Rule{ID: task.RuleModel, Host: "ok.test", Ports: []uint16{w.port}, Protocol: task.ProtocolHTTP, Paths: []string{"/model/**"}, Private: true})
			client := w.inside(h2)
			want := task.ModelTokens{Model: "m-1", Input: 25, CacheRead: 5, Output: 15}
			for _, c := range []struct {
				method, path string
				asked        []bool
				tokens       bool
			}{
				{"POST", "/v1/messages", []bool{true}, true},            // with a credential
				{"POST", "/model/v1/messages", []bool{true}, true},      // under the rule for models
				{"POST", "/model/v1/images", []bool{false}, false},      // that can't be counted
				{"POST", "/model/v1/messages/count_tokens", nil, false}, // free
				{"GET", "/model/v1/models", nil, false},
				{"POST", "/v1/other", nil, false},
				{"POST", "/free/v1/messages", nil, false}, // somebody else's
			} {
				r := w.request(c.method, w.url(c.path), nil)
				if c.method == "POST" {
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader("{}")), 2
				}
				res, body := w.do(client, r)
				rec := w.await("the end of "+c.path, func(rec task.EgressRecord) bool { return rec.Done && rec.Path == c.path })
				asked, _ := p.take()
				if res.StatusCode != http.StatusOK || body != streamed || fmt.Sprint(asked) != fmt.Sprint(c.asked) {
					t.Errorf("%s %s: %d, asked %v, want %v", c.method, c.path, res.StatusCode, asked, c.asked)
				}
				if (rec.Tokens != nil) != c.tokens || c.tokens && *rec.Tokens != want {
					t.Errorf("%s %s: %+v", c.method, c.path, rec.Tokens)
				}
			}
		})
	}
}

// A request is held while a purse says so; what it refuses reads why, and never
// reaches the far side.
func TestPurse(t *testing.T) {
	w := newWithin(t, false, func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "{}") })
	p := &purse{hold: make(chan struct{}), held: make(chan struct{}, 1)}
	w.gateway.options.Purse = p
	client := w.inside(false)
	ask := func() *http.Request {
		r := w.request("POST", w.url("/v1/messages"), nil)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("{}")), 2
		return r
	}
	done := make(chan string)
	go func() {
		_, body := w.do(client, ask())
		done <- body
	}()
	<-p.held
	if n := len(w.far.take()); n != 0 {
		t.Errorf("%d requests went out", n)
	}
	close(p.hold)
	if body := <-done; body != "{}" || len(w.far.take()) != 1 {
		t.Errorf("%q", body)
	}
	for reason, status := range map[task.Reason]int{task.LimitSpend: 403, task.InfraControlAway: 503} {
		p.mu.Lock()
		p.err = task.Fail(reason, "", nil)
		p.mu.Unlock()
		res, body := w.do(client, ask())
		if res.StatusCode != status || code(t, body) != reason || len(w.far.take()) != 0 {
			t.Errorf("%d %s, want %s", res.StatusCode, body, reason)
		}
		w.await("the refusal", func(rec task.EgressRecord) bool {
			return rec.Verdict == "denied" && rec.Reason == reason && rec.Path == "/v1/messages"
		})
	}
}

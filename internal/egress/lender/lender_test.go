package lender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/task"
)

var _ outbound.Lender = (*Lender)(nil)

const (
	box    = "sb-aaaaaaaaaaaaaaaa"
	secret = "sk-real-value-0123456789"
	bearer = "cfd_token-of-the-gateway"
)

// control is a control plane that can go away, come back and answer anything.
type control struct {
	t       *testing.T
	address string

	mu     sync.Mutex
	server *http.Server
	asked  int
	token  string
	answer func(w http.ResponseWriter, n int) // nil: lends
	begun  chan struct{}                      // receives at each question, when there is room
}

func newControl(t *testing.T) *control {
	t.Helper()
	c := &control{t: t, token: bearer, begun: make(chan struct{}, 1000)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = l.Addr().String()
	c.serve(l)
	t.Cleanup(c.goAway)
	return c
}

func (c *control) serve(l net.Listener) {
	s := &http.Server{Handler: http.HandlerFunc(c.lend)}
	c.mu.Lock()
	c.server = s
	c.mu.Unlock()
	go func() { _ = s.Serve(l) }()
}

func (c *control) goAway() {
	c.mu.Lock()
	s := c.server
	c.server = nil
	c.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
}

func (c *control) comeBack() {
	c.t.Helper()
	l, err := net.Listen("tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	c.serve(l)
}

func (c *control) lend(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.asked++
	n, answer, token := c.asked, c.answer, c.token
	c.mu.Unlock()
	select {
	case c.begun <- struct{}{}:
	default:
	}
	var q struct{ Sandbox, Lease string }
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/gateway/lend" || d.Decode(&q) != nil:
		w.WriteHeader(http.StatusBadRequest)
	case r.Header.Get("Authorization") != "Bearer "+token:
		w.WriteHeader(http.StatusUnauthorized)
	case answer != nil:
		answer(w, n)
	default:
		lends(w, q.Lease)
	}
}

func lends(w http.ResponseWriter, lease string) {
	fmt.Fprintf(w, `{"value":%q,"expiresAt":"2001-01-01T00:00:00Z","seconds":60}`, secret+lease)
}

func refuses(w http.ResponseWriter, code string, status int) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"code":%q,"detail":"x"}`, code)
}

func (c *control) set(answer func(http.ResponseWriter, int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

func (c *control) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newLender(t *testing.T, c *control, change func(*Options)) (*Lender, *clock) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "control.token")
	if err := os.WriteFile(file, []byte(bearer+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := &clock{now: time.Now()}
	o := Options{Control: "http://" + c.address, TokenFile: file, Wait: 60 * time.Second, Now: now.Now}
	if change != nil {
		change(&o)
	}
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, now
}

func lease(id string) task.Lease { return task.Lease{ID: id} }

func reason(err error) task.Reason {
	if f, ok := errors.AsType[*task.Failure](err); ok {
		return f.Reason
	}
	if err != nil {
		return "other"
	}
	return ""
}

func wants(t *testing.T, l *Lender, id string) {
	t.Helper()
	v, err := l.Value(t.Context(), box, lease(id))
	if err != nil || v.Reveal() != secret+id {
		t.Fatalf("value of %s: %q, %v", id, v.Reveal(), err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestValueIsKeptRenewedAndEnds(t *testing.T) {
	c := newControl(t)
	l, now := newLender(t, c, nil)
	for range 50 {
		wants(t, l, "l-a")
	}
	if c.count() != 1 {
		t.Errorf("asked %d times for one value", c.count())
	}
	if len(l.Held(box)) != 1 || len(l.Held(box[:len(box)-1])) != 0 {
		t.Errorf("held: %d, of another sandbox %d", len(l.Held(box)), len(l.Held(box[:len(box)-1])))
	}
	// At half its time it is renewed behind the one who needs it.
	now.add(31 * time.Second)
	wants(t, l, "l-a")
	eventually(t, "the renewal", func() bool { return c.count() == 2 })
	eventually(t, "its end", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.held[box+"/l-a"].asking == nil
	})
	// It stands a minute from then, also while nobody answers, and no longer.
	c.goAway()
	now.add(59 * time.Second)
	wants(t, l, "l-a")
	now.add(time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := l.Value(ctx, box, lease("l-a")); reason(err) != task.InfraControlAway || !v.Empty() {
		t.Errorf("after its time: %q, %v", v.Reveal(), err)
	}
}

// A kept value lasts Keep at most, whatever the answer says.
func TestValueIsNeverKeptLonger(t *testing.T) {
	c := newControl(t)
	l, now := newLender(t, c, nil)
	c.set(func(w http.ResponseWriter, _ int) { fmt.Fprintf(w, `{"value":%q,"seconds":86400}`, secret) })
	if _, err := l.Value(t.Context(), box, lease("l-a")); err != nil {
		t.Fatal(err)
	}
	now.add(Keep)
	c.set(func(w http.ResponseWriter, _ int) { refuses(w, "policy.credential", 403) })
	if _, err := l.Value(t.Context(), box, lease("l-a")); reason(err) != task.PolicyCredential {
		t.Errorf("got %v", err)
	}
}

// What is for one request is asked for by each and never held.
func TestValueForOneRequest(t *testing.T) {
	c := newControl(t)
	l, _ := newLender(t, c, nil)
	c.set(func(w http.ResponseWriter, n int) { fmt.Fprintf(w, `{"value":"once-%d","seconds":0,"once":true}`, n) })
	var mu sync.Mutex
	seen := map[string]int{}
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			v, err := l.Value(context.WithoutCancel(t.Context()), box, lease("l-a"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			seen[v.Reveal()]++
		})
	}
	asking.Wait()
	if len(seen) != 20 || c.count() != 20 {
		t.Errorf("%d values from %d questions for 20 requests", len(seen), c.count())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.held[box+"/l-a"]; e != nil && e.value != nil {
		t.Error("one is held")
	}
}

// Who mints the value fails: that is told at once, and a value that is held
// lasts on.
func TestProviderFails(t *testing.T) {
	c := newControl(t)
	l, now := newLender(t, c, nil)
	wants(t, l, "l-a")
	c.set(func(w http.ResponseWriter, _ int) { refuses(w, "infra.credential_provider", 503) })
	if v, err := l.Value(t.Context(), box, lease("l-b")); reason(err) != task.InfraCredential || !v.Empty() || c.count() != 2 {
		t.Errorf("got %v after %d questions", err, c.count())
	}
	now.add(31 * time.Second)
	wants(t, l, "l-a")
	eventually(t, "the renewal", func() bool { return c.count() == 3 })
	wants(t, l, "l-a")
}

func TestWaitsForTheControlPlane(t *testing.T) {
	c := newControl(t)
	l, _ := newLender(t, c, nil)
	c.goAway()
	got := make(chan error, 10)
	for range cap(got) {
		go func() {
			v, err := l.Value(context.WithoutCancel(t.Context()), box, lease("l-a"))
			if err == nil && v.Reveal() != secret+"l-a" {
				err = errors.New("another value")
			}
			got <- err
		}()
	}
	eventually(t, "a question under way", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		e := l.held[box+"/l-a"]
		return e != nil && e.asking != nil
	})
	c.comeBack()
	for range cap(got) {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	if c.count() != 1 {
		t.Errorf("asked %d times at once", c.count())
	}
}

// What is no answer is asked again until the wait is over, and says so then.
func TestFaultyControlPlane(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, int){
		"garbage":  func(w http.ResponseWriter, _ int) { fmt.Fprint(w, "\x00\xff<html>"+secret) },
		"cut":      func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `{"value":"`+secret) },
		"no value": func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `{"seconds":60}`) },
		"no time":  func(w http.ResponseWriter, _ int) { fmt.Fprintf(w, `{"value":%q}`, secret) },
		"once, with a time": func(w http.ResponseWriter, _ int) {
			fmt.Fprintf(w, `{"value":%q,"seconds":60,"once":true}`, secret)
		},
		"a line break": func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `{"value":"`+secret+`\r\nHost: evil","seconds":60}`) },
		"huge": func(w http.ResponseWriter, _ int) {
			fmt.Fprintf(w, `{"value":%q,"seconds":60}`, strings.Repeat(secret, 10000))
		},
		"unauthorized": func(w http.ResponseWriter, _ int) { refuses(w, "input.unauthorized", 401) },
		"another role": func(w http.ResponseWriter, _ int) { refuses(w, "policy.denied", 403) },
		"a proxy":      func(w http.ResponseWriter, _ int) { w.WriteHeader(403) },
		"too often":    func(w http.ResponseWriter, _ int) { refuses(w, "limit.requests", 429) },
		"broken":       func(w http.ResponseWriter, _ int) { refuses(w, "infra.vault", 500) },
		"elsewhere": func(w http.ResponseWriter, _ int) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
		"silence": func(w http.ResponseWriter, _ int) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newControl(t)
			var log strings.Builder
			l, _ := newLender(t, c, func(o *Options) {
				o.Wait = 300 * time.Millisecond
				o.Log = slog.New(slog.NewTextHandler(&log, nil))
			})
			c.set(answer)
			v, err := l.Value(t.Context(), box, lease("l-a"))
			if reason(err) != task.InfraControlAway || !v.Empty() || strings.Contains(err.Error(), secret) {
				t.Errorf("got %q, %v", v.Reveal(), err)
			}
			l.Close()
			if strings.Contains(log.String(), secret) || strings.Contains(log.String(), bearer) {
				t.Errorf("the log says %s", log.String())
			}
			// It is well again.
			l, _ = newLender(t, c, nil)
			c.set(func(w http.ResponseWriter, n int) {
				if n%2 == 0 {
					answer(w, n)
					return
				}
				lends(w, "l-a")
			})
			wants(t, l, "l-a")
		})
	}
}

func TestRefusalIsTold(t *testing.T) {
	c := newControl(t)
	l, now := newLender(t, c, nil)
	wants(t, l, "l-a")
	c.set(func(w http.ResponseWriter, _ int) { refuses(w, "policy.credential", 403) })
	if _, err := l.Value(t.Context(), box, lease("l-b")); reason(err) != task.PolicyCredential {
		t.Errorf("got %v", err)
	}
	// Whoever hammers with a refused lease does not hammer the control plane.
	before := c.count()
	for range 100 {
		if _, err := l.Value(t.Context(), box, lease("l-b")); reason(err) != task.PolicyCredential {
			t.Fatal(err)
		}
	}
	if c.count() != before {
		t.Errorf("asked %d times more", c.count()-before)
	}
	// A renewal that is refused drops what was held.
	now.add(31 * time.Second)
	wants(t, l, "l-a")
	eventually(t, "the refusal", func() bool {
		_, err := l.Value(t.Context(), box, lease("l-a"))
		return reason(err) == task.PolicyCredential
	})
}

func TestGrantAndDetachWipe(t *testing.T) {
	c := newControl(t)
	l, _ := newLender(t, c, nil)
	for _, id := range []string{"l-a", "l-b", "l-c"} {
		wants(t, l, id)
	}
	bytes := func(id string) []byte {
		l.mu.Lock()
		defer l.mu.Unlock()
		if e := l.held[box+"/"+id]; e != nil {
			return e.value
		}
		return nil
	}
	a, b, other := bytes("l-a"), bytes("l-b"), bytes("l-c")
	l.Granted(task.Grant{Sandbox: "sb-another", Leases: []task.Lease{}})
	l.Granted(task.Grant{Sandbox: box, Leases: []task.Lease{{ID: "l-b"}, {ID: "l-c"}}})
	if bytes("l-a") != nil || bytes("l-b") == nil || strings.Trim(string(a), "\x00") != "" || string(b) != secret+"l-b" {
		t.Errorf("after a grant without it: %q %q", a, b)
	}
	l.Forget(box)
	if bytes("l-b") != nil || strings.Trim(string(b)+string(other), "\x00") != "" || len(l.held) != 0 {
		t.Errorf("after detaching: %q %q", b, other)
	}
}

// An answer that comes after the grant was changed is not kept and not told.
func TestAnswerAfterTheGrantIsOver(t *testing.T) {
	c := newControl(t)
	l, _ := newLender(t, c, nil)
	release := make(chan struct{})
	c.set(func(w http.ResponseWriter, _ int) { <-release; lends(w, "l-a") })
	got := make(chan error, 1)
	go func() {
		_, err := l.Value(context.WithoutCancel(t.Context()), box, lease("l-a"))
		got <- err
	}()
	<-c.begun
	l.Granted(task.Grant{Sandbox: box})
	close(release)
	if err := <-got; reason(err) != task.PolicyCredential {
		t.Errorf("got %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) != 0 {
		t.Errorf("held: %v", l.held)
	}
}

// The token's file is read at each question: one that is replaced is taken.
func TestTokenIsReadAgain(t *testing.T) {
	c := newControl(t)
	file := ""
	l, _ := newLender(t, c, func(o *Options) { file = o.TokenFile })
	if err := os.WriteFile(file, []byte("stale"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := l.Value(context.WithoutCancel(t.Context()), box, lease("l-a"))
		got <- err
	}()
	<-c.begun
	if err := os.WriteFile(file, []byte(bearer), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

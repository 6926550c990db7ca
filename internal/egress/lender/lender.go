// Package lender asks the control plane for the values of leases, for the
// gateway. It implements outbound.Lender.
//
// Words. A value is lent for a short time, at most Keep; it is in memory only,
// in bytes that are overwritten when it is dropped. A value that is used is
// asked for again before its time is over, so that a control plane that is away
// for a moment is not noticed. A lease that is not held makes who needs it wait,
// at most Options.Wait; then it is infra.control_plane_away. A refusal is told
// at once, and a value that was held is dropped by it. A value that is for one
// request is asked for again for each and never held.
//
// Not promised: that a copy of the value which a request already carries is
// overwritten; strings of Go can't be.
package lender

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/plane"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Keep is the longest that a value is kept, whatever the control plane says.
const Keep = time.Minute

// The times of asking again.
const (
	defaultWait = 30 * time.Second
	askTime     = 15 * time.Second // one question, at most
	firstPause  = 50 * time.Millisecond
	lastPause   = time.Second
	refusedFor  = time.Second // a refusal stands so long before the same is asked again
	maxHeld     = 16384       // values at one time
)

// Options make a Lender. Control and TokenFile are required.
type Options struct {
	Control   string        // URL of cofferdamd; plain http on this machine only
	TokenFile string        // with the token of role gateway; read again at each question
	Wait      time.Duration // for a control plane that is away; 0: 30 s
	Log       *slog.Logger  // nil: no log
	Now       func() time.Time
}

// Lender lends values. It is safe for concurrent use.
type Lender struct {
	plane *plane.Client
	wait  time.Duration
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	held   map[string]*entry // by sandbox and lease
	closed bool
	ctx    context.Context // ends with the Lender; questions go on when who asked first is gone
	stop   context.CancelFunc
	asking sync.WaitGroup
}

// entry is what is known of one lease of one sandbox.
type entry struct {
	value   []byte    // nil: none
	renew   time.Time // ask again from here on
	refused error     // nil: not refused
	until   time.Time // the value, or the refusal, stands so long
	asking  *question // nil: none is under way
	dropped bool      // the grant it was for is over
}

// question is one question under way. What it came to is set when done closes.
type question struct {
	done  chan struct{}
	value task.Secret
	once  bool // the value is for one of those who wait
	taken bool // one of them has it
	err   error
}

// New returns a lender. Nothing is asked before the first value is needed.
func New(o Options) (*Lender, error) {
	client, err := plane.New(o.Control, o.TokenFile)
	if err != nil {
		return nil, err
	}
	l := &Lender{plane: client, wait: o.Wait, log: o.Log, now: o.Now, held: map[string]*entry{}}
	if l.wait <= 0 {
		l.wait = defaultWait
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.now == nil {
		l.now = time.Now
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l, nil
}

// Value gives the value of the sandbox's lease, from memory while it is fresh.
// Errors are *task.Failure: of class policy when the lease is refused,
// task.InfraCredential when who mints it does not answer as it should,
// task.InfraControlAway when it can't be known now.
func (l *Lender) Value(ctx context.Context, sandbox string, lease task.Lease) (task.Secret, error) {
	if sandbox == "" || lease.ID == "" || strings.ContainsAny(sandbox+lease.ID, "\x00/") {
		return task.Secret{}, task.Fail(task.PolicyCredential, "no lease is named", nil)
	}
	patience, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	for {
		value, q, err := l.look(sandbox + "/" + lease.ID)
		if q == nil {
			return value, err
		}
		select {
		case <-q.done:
			if q.once {
				if value, ok := l.claim(q); ok {
					return value, nil
				}
				continue
			}
			// A question that another one began may have had less time than ours.
			if q.err == nil || refusal(q.err) || task.ReasonOf(q.err) == task.InfraCredential || patience.Err() != nil {
				return q.value, q.err
			}
		case <-patience.Done():
			return task.Secret{}, task.Fail(task.InfraControlAway, "the control plane did not lend the credential in time; see that cofferdamd runs", patience.Err())
		}
	}
}

// claim takes the value of a question that is for one request, unless another
// one has it.
func (l *Lender) claim(q *question) (task.Secret, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.taken {
		return task.Secret{}, false
	}
	q.taken = true
	return q.value, true
}

// look gives what is held. When that is nothing, it returns the question that
// it began or found under way.
func (l *Lender) look(key string) (task.Secret, *question, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return task.Secret{}, nil, task.Fail(task.InfraControlAway, "the gateway is stopping", nil)
	}
	e := l.held[key]
	if e == nil {
		if len(l.held) >= maxHeld {
			l.sweep()
		}
		if len(l.held) >= maxHeld {
			return task.Secret{}, nil, task.Fail(task.InfraControlAway, "too many credentials are in use on this machine", nil)
		}
		e = &entry{}
		l.held[key] = e
	}
	now := l.now()
	fresh := now.Before(e.until)
	switch {
	case e.value != nil && fresh:
		if !now.Before(e.renew) && e.asking == nil {
			l.begin(key, e)
		}
		return task.NewSecret(string(e.value)), nil, nil
	case e.refused != nil && fresh:
		return task.Secret{}, nil, e.refused
	}
	e.wipe()
	e.refused = nil
	if e.asking == nil {
		l.begin(key, e)
	}
	return task.Secret{}, e.asking, nil
}

// begin asks in the background. The lock is held.
func (l *Lender) begin(key string, e *entry) {
	q := &question{done: make(chan struct{})}
	e.asking = q
	l.asking.Go(func() {
		sandbox, lease, _ := strings.Cut(key, "/")
		ctx, cancel := context.WithTimeout(l.ctx, l.wait)
		defer cancel()
		a, err := l.ask(ctx, sandbox, lease)
		l.mu.Lock()
		defer l.mu.Unlock()
		q.value, q.err = l.settle(key, e, a, err)
		q.once = a.once && q.err == nil
		e.asking = nil
		close(q.done)
	})
}

// settle takes an answer over and gives what to tell who waits. The lock is
// held.
func (l *Lender) settle(key string, e *entry, a lent, err error) (task.Secret, error) {
	switch {
	case e.dropped || l.closed:
		// The grant it was asked for is over: nothing of the answer stays.
		clear(a.value)
		return task.Secret{}, task.Fail(task.PolicyCredential, "the lease ended", nil)
	case err == nil && a.once:
		e.wipe()
		e.refused = nil
		value := task.NewSecret(string(a.value))
		clear(a.value)
		return value, nil
	case err == nil:
		e.wipe()
		e.value, e.refused = a.value, nil
		e.until, e.renew = a.asked.Add(a.keep), a.asked.Add(a.keep/2)
		time.AfterFunc(max(0, e.until.Sub(l.now())), func() { l.expire(key, e) })
		return task.NewSecret(string(a.value)), nil
	case refusal(err):
		e.wipe()
		e.refused, e.until = err, l.now().Add(refusedFor)
	default:
		// A value that is held lasts on until its time is over.
		l.log.Warn("a credential's value is not lent", "sandbox", strings.SplitN(key, "/", 2)[0], "error", err)
	}
	return task.Secret{}, err
}

// expire overwrites a value whose time is over.
func (l *Lender) expire(key string, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now().Before(e.until) {
		return // it was renewed
	}
	e.wipe()
	if e.asking == nil && l.held[key] == e {
		delete(l.held, key)
	}
}

func (e *entry) wipe() {
	clear(e.value)
	e.value = nil
}

// sweep forgets what is over. The lock is held.
func (l *Lender) sweep() {
	now := l.now()
	for key, e := range l.held {
		if e.asking == nil && !now.Before(e.until) {
			e.wipe()
			delete(l.held, key)
		}
	}
}

// Granted drops every value of the sandbox whose lease is not in its grant. It
// is to be called when a grant changes.
func (l *Lender) Granted(grant task.Grant) {
	kept := map[string]bool{}
	for _, lease := range grant.Leases {
		kept[grant.Sandbox+"/"+lease.ID] = true
	}
	l.drop(grant.Sandbox, kept)
}

// Forget drops every value of the sandbox. It is to be called when it is
// detached.
func (l *Lender) Forget(sandbox string) { l.drop(sandbox, nil) }

// Held are the values that are held for a sandbox at this moment.
func (l *Lender) Held(sandbox string) []task.Secret {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []task.Secret
	for key, e := range l.held {
		if e.value != nil && strings.HasPrefix(key, sandbox+"/") {
			out = append(out, task.NewSecret(string(e.value)))
		}
	}
	return out
}

func (l *Lender) drop(sandbox string, kept map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.held {
		if strings.HasPrefix(key, sandbox+"/") && !kept[key] {
			e.wipe()
			e.dropped = true
			delete(l.held, key)
		}
	}
}

// Close drops everything and waits for the questions under way.
func (l *Lender) Close() {
	l.mu.Lock()
	l.closed = true
	for key, e := range l.held {
		e.wipe()
		e.dropped = true
		delete(l.held, key)
	}
	l.mu.Unlock()
	l.stop()
	l.asking.Wait()
	l.plane.Close()
}

func refusal(err error) bool { return task.ReasonOf(err).Class() == "policy" }

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/task"
)

// RegistryOptions says how a Registry admits workers. Authenticate, Boot and Log are
// required.
type RegistryOptions struct {
	// Authenticate says who the request speaks for, or fails. A worker's id stays
	// bound to the subject that first used it.
	Authenticate func(*http.Request) (subject string, err error)
	Boot         string // cofferdamd's boot id
	Version      string
	Tuning       link.Tuning   // zero: production's
	Heartbeat    time.Duration // between two hellos; 0: 5 s
	Log          *slog.Logger
}

// Registry is the http.Handler that workers connect to, and knows which are
// connected.
type Registry struct {
	opts RegistryOptions

	mu      sync.Mutex
	members map[string]*member
	marks   map[string]task.WorkerMark
	changed chan struct{} // closed at each change, then replaced
	closed  bool
	running sync.WaitGroup
}

// member is a worker that is or was connected.
type member struct {
	id          string
	subject     string
	conn        *conn // nil: away
	hello       link.Hello
	connectedAt time.Time
	seenAt      time.Time
	pending     int64 // bytes of memory of sandboxes that are being made
	recent      int64 // bytes of memory of sandboxes made since the last hello, which does not count them
}

// maxWorkers bounds what the registry remembers.
const maxWorkers = 1000

var workerPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// NewRegistry returns a registry without workers.
func NewRegistry(opts RegistryOptions) *Registry {
	if opts.Heartbeat <= 0 {
		opts.Heartbeat = 5 * time.Second
	}
	return &Registry{opts: opts, members: map[string]*member{}, marks: map[string]task.WorkerMark{}, changed: make(chan struct{})}
}

// ServeHTTP takes a worker's connection and returns when it has ended.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	subject, err := r.opts.Authenticate(req)
	if err != nil {
		r.opts.Log.Warn("worker refused", "from", req.RemoteAddr, "error", err)
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "no valid worker token", http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		http.Error(w, "the control plane is stopping", http.StatusServiceUnavailable)
		return
	}
	r.running.Add(1)
	r.mu.Unlock()
	defer r.running.Done()

	session, err := link.Accept(w, req, r.opts.Tuning, r.opts.Log)
	if err != nil {
		r.opts.Log.Warn("worker connection failed", "from", req.RemoteAddr, "error", err)
		return
	}
	defer session.Close()
	if err := r.attend(session, subject); err != nil {
		r.opts.Log.Warn("worker connection ended", "from", req.RemoteAddr, "subject", subject, "error", err)
	}
}

// attend keeps one session until it ends.
func (r *Registry) attend(session *link.Session, subject string) error {
	c := &conn{session: session, client: session.Client()}
	defer c.client.CloseIdleConnections()
	hello, err := r.greet(c)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	c.worker = hello.ID
	if err := r.join(c, subject, hello); err != nil {
		return fmt.Errorf("worker %q: %w", hello.ID, err)
	}
	defer r.leave(c)
	r.opts.Log.Info("worker connected", "worker", hello.ID, "boot", hello.Boot, "version", hello.Version)
	tick := time.NewTicker(r.opts.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-session.Done():
			return fmt.Errorf("worker %q: %w", hello.ID, errEnded)
		case <-tick.C:
		}
		next, err := r.greet(c)
		if err != nil {
			// A tunnel that is dead is found by its probes; a door that is slow
			// is only noted.
			r.opts.Log.Warn("worker does not say hello", "worker", hello.ID, "error", err)
			continue
		}
		if next.ID != hello.ID || next.Boot != hello.Boot {
			return fmt.Errorf("worker %q became %q within one connection: %w", hello.ID, next.ID, link.ErrProtocol)
		}
		r.saw(c, next)
	}
}

var (
	errEnded  = errors.New("connection ended")
	errClosed = errors.New("registry closed")
	// errForgotten stands in the log of who runs the control plane.
	errForgotten = errors.New("it was forgotten; wipe the machine, and release it with: cofferdam worker release")
)

func (r *Registry) greet(c *conn) (link.Hello, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var hello link.Hello
	err := c.exchange(ctx, http.MethodPost, "/hello", link.Welcome{Boot: r.opts.Boot, Version: r.opts.Version}, &hello)
	if err != nil {
		return hello, err
	}
	switch {
	case !workerPattern.MatchString(hello.ID):
		return hello, fmt.Errorf("id %q: %w", hello.ID, link.ErrProtocol)
	case !workerPattern.MatchString(hello.Boot):
		return hello, fmt.Errorf("boot id %q: %w", hello.Boot, link.ErrProtocol)
	case len(hello.Version) > 128 || len(hello.Gateway) > 128:
		return hello, fmt.Errorf("version or gateway too long: %w", link.ErrProtocol)
	case len(hello.Sandboxes) > link.MaxSandboxes:
		return hello, fmt.Errorf("%d sandboxes: %w", len(hello.Sandboxes), link.ErrProtocol)
	}
	return hello, nil
}

// join makes c the worker's connection and fences the one before.
func (r *Registry) join(c *conn, subject string, hello link.Hello) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	if r.marks[c.worker].State == task.WorkerForgotten {
		return errForgotten
	}
	m := r.members[c.worker]
	if m == nil {
		if len(r.members) >= maxWorkers {
			return fmt.Errorf("more than %d workers", maxWorkers)
		}
		m = &member{id: c.worker, subject: subject}
		r.members[c.worker] = m
	}
	if m.subject != subject {
		return fmt.Errorf("belongs to %q, not to %q", m.subject, subject)
	}
	if old := m.conn; old != nil {
		r.opts.Log.Warn("worker connected again; the older connection is fenced", "worker", c.worker)
		go old.session.Close() // Waits for its own goroutines; what counts is that no one finds it any more.
	}
	now := time.Now()
	m.conn, m.hello, m.recent, m.connectedAt, m.seenAt = c, hello, 0, now, now
	r.signal()
	return nil
}

func (r *Registry) leave(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[c.worker]; m != nil && m.conn == c {
		m.conn = nil
		r.signal()
	}
}

func (r *Registry) saw(c *conn, hello link.Hello) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[c.worker]; m != nil && m.conn == c {
		m.hello, m.recent, m.seenAt = hello, 0, time.Now()
	}
}

// signal wakes who waits for a change. r.mu is held.
func (r *Registry) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Close ends every connection and refuses new ones.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	var sessions []*link.Session
	for _, m := range r.members {
		if m.conn != nil {
			sessions = append(sessions, m.conn.session)
		}
	}
	r.signal()
	r.mu.Unlock()
	for _, s := range sessions {
		s.Close()
	}
	r.running.Wait()
}

// wait looks with pick until it finds something or ctx ends. pick is called
// with r.mu held.
func (r *Registry) wait(ctx context.Context, pick func() bool) error {
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return errClosed
		}
		if pick() {
			r.mu.Unlock()
			return nil
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connection returns the worker's connection, waiting for one until ctx ends.
func (r *Registry) connection(ctx context.Context, worker string) (*conn, error) {
	var found *conn
	err := r.wait(ctx, func() bool {
		if m := r.members[worker]; m != nil && m.conn != nil && !m.conn.session.IsClosed() {
			found = m.conn
		}
		return found != nil
	})
	return found, err
}

// connected returns the connections there are, by worker id, and whether a
// worker is away that was here before.
func (r *Registry) connected() (conns []*conn, away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		if m.conn == nil {
			away = true
			continue
		}
		conns = append(conns, m.conn)
	}
	slices.SortFunc(conns, func(a, b *conn) int {
		if a.worker < b.worker {
			return -1
		}
		return 1
	})
	return conns, away
}

// The states of a worker.
const (
	Connected = "connected"
	Lost      = "lost"
)

// Worker describes one machine.
type Worker struct {
	ID          string
	State       string // Connected or Lost
	Boot        string
	Version     string
	Gateway     string // the gateway's epoch; empty: none answers
	Machine     link.Machine
	Sandboxes   int
	Ledger      []link.OpenRecord // objects that its clean-up ledger holds open
	ConnectedAt time.Time         // the latest connection
	SeenAt      time.Time         // the latest answer
	Mark        task.WorkerMark   // how it is set apart
}

// Workers returns the workers that are or were connected since the start, by id.
func (r *Registry) Workers() []Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	workers := make([]Worker, 0, len(r.members))
	for _, m := range r.members {
		w := Worker{
			ID: m.id, State: Lost, Boot: m.hello.Boot, Version: m.hello.Version, Gateway: m.hello.Gateway,
			Machine: m.hello.Machine, Sandboxes: len(m.hello.Sandboxes), Ledger: m.hello.Ledger,
			ConnectedAt: m.connectedAt, SeenAt: m.seenAt, Mark: r.marks[m.id],
		}
		if m.conn != nil {
			w.State = Connected
		}
		workers = append(workers, w)
	}
	workers = append(workers, r.absent()...)
	slices.SortFunc(workers, func(a, b Worker) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return workers
}

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/frozen"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Egress is the way out of this machine's sandboxes. Implemented by
// egress/keeper.
type Egress interface {
	SetGrant(ctx context.Context, grant task.Grant) error
	// Epoch is the gateway's boot id; empty when none answers.
	Epoch() string
	// Records returns records with a sequence number above after, in order; it may
	// return fewer than there are, but none only when there are none.
	Records(ctx context.Context, sandbox string, after int64) ([]task.EgressRecord, error)
}

// Options is what a Door works with. ID, Boot, Driver, Egress, EpochDir,
// Machine and Log are required.
type Options struct {
	ID       string // of the machine
	Boot     string // of this process
	Version  string
	Driver   sandbox.Driver
	Egress   Egress
	EpochDir string                             // an existing folder, for the gateway's epochs at commands' starts
	Machine  func() link.Machine                // what the machine has; Committed is filled in by the door
	Ledger   func() []link.OpenRecord           // open entries of the clean-up ledger; may be nil
	Checks   func(context.Context) []link.Check // what doctor looks at beside the door's own; may be nil
	Agents   Agents                             // nil: the machine keeps none
	Frozen   *frozen.Set                        // nil: none can be kept as evidence
	Log      *slog.Logger
}

// Door is the http.Handler that is served through the tunnel.
type Door struct {
	opts    Options
	mux     *http.ServeMux
	turns   link.Turns
	effects sync.WaitGroup
	epochs  *epochs

	mu      sync.Mutex
	network map[string]bool // whether a sandbox has a network
	ends    ends
}

// effectLimit bounds one effect.
const effectLimit = 3 * time.Minute

// New returns a door.
func New(opts Options) *Door {
	d := &Door{opts: opts, mux: http.NewServeMux(), epochs: newEpochs(opts.EpochDir), network: map[string]bool{}}
	for pattern, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /hello":                                    d.hello,
		"POST /agents":                                   d.installAgent,
		"GET /agents":                                    d.listAgents,
		"DELETE /agents/{name}/{version}":                d.removeAgent,
		"GET /doctor":                                    d.doctor,
		"POST /sandboxes/{id}/freeze":                    d.freeze,
		"POST /sandboxes/{id}/release":                   d.release,
		"GET /sandboxes":                                 d.list,
		"PUT /sandboxes/{id}":                            d.create,
		"GET /sandboxes/{id}":                            d.info,
		"DELETE /sandboxes/{id}":                         d.destroy,
		"PUT /sandboxes/{id}/grant":                      d.grant,
		"GET /sandboxes/{id}/egress":                     d.records,
		"PUT /sandboxes/{id}/protect":                    d.protect,
		"GET /sandboxes/{id}/denials":                    d.denials,
		"POST /sandboxes/{id}/put":                       d.put,
		"POST /sandboxes/{id}/get":                       d.get,
		"POST /sandboxes/{id}/files/do":                  d.doFile,
		"POST /sandboxes/{id}/files/read":                d.readFile,
		"POST /sandboxes/{id}/files/write":               d.writeFile,
		"POST /sandboxes/{id}/run":                       d.run,
		"PUT /sandboxes/{id}/commands/{command}":         d.start,
		"GET /sandboxes/{id}/commands/{command}":         d.status,
		"GET /sandboxes/{id}/commands/{command}/output":  d.attach,
		"POST /sandboxes/{id}/commands/{command}/signal": d.signal,
		"GET /sandboxes/{id}/commands":                   d.inspect,
		"GET /sandboxes/{id}/commands/{command}/live":    d.inspect,
		"POST /sandboxes/{id}/commands/{command}/input":  d.input,
		"PUT /sandboxes/{id}/commands/{command}/size":    d.resize,
	} {
		d.mux.HandleFunc(pattern, d.answering(pattern, handle))
	}
	return d
}

// ServeHTTP answers one request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// Wait returns when no effect is under way, or when ctx ends.
func (d *Door) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { d.effects.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// errStreaming says that a handler failed after its answer began: the connection
// is cut, so that the other end does not take half an answer for a whole one.
var errStreaming = errors.New("answer broke off")

// answering checks ids and turns a handler's error into an answer.
func (d *Door) answering(pattern string, handle func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := checkIDs(r)
		if err == nil {
			err = d.thawed(pattern, r.PathValue("id"))
		}
		if err == nil {
			err = handle(w, r)
		}
		if err == nil {
			return
		}
		// A request whose connection has ended failed for that reason, whatever it
		// says; without an answer the other end asks again.
		if r.Context().Err() != nil || errors.Is(err, errStreaming) {
			panic(http.ErrAbortHandler)
		}
		p := link.ProblemOf(err)
		d.opts.Log.Debug("request failed", "method", r.Method, "path", r.URL.Path, "reason", p.Reason, "error", err)
		if err := writeJSON(w, link.Status(p.Reason), p); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

func checkIDs(r *http.Request) error {
	if id := r.PathValue("id"); id != "" && !sandbox.ValidID(id) {
		return task.Fail(task.InputInvalid, fmt.Sprintf("sandbox id %q is not valid", id), nil)
	}
	if c := r.PathValue("command"); c != "" && !sandbox.ValidCommandID(c) {
		return task.Fail(task.InputInvalid, fmt.Sprintf("command id %q is not valid", c), nil)
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(text)
	return err
}

// read decodes a request's body.
func read(r *http.Request, v any) error {
	if err := link.DecodeJSON(r.Body, v); err != nil {
		return task.Fail(task.InputInvalid, "the request's body can't be read", err)
	}
	return nil
}

// effect does something to a sandbox in its turn. The context it gives lives
// longer than the request.
func (d *Door) effect(r *http.Request, do func(ctx context.Context) error) error {
	d.effects.Add(1)
	defer d.effects.Done()
	done, err := d.turns.Take(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	defer done()
	if err := r.Context().Err(); err != nil {
		return err // Its connection ended; a newer request may have acted already.
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), effectLimit)
	defer cancel()
	return do(ctx)
}

func (d *Door) create(w http.ResponseWriter, r *http.Request) error {
	var spec sandbox.Spec
	if err := read(r, &spec); err != nil {
		return err
	}
	if spec.ID != r.PathValue("id") {
		return task.Fail(task.InputInvalid, "the sandbox's id differs between path and body", nil)
	}
	order, err := orderOf(r)
	if err != nil {
		return err
	}
	var info sandbox.Info
	err = d.effect(r, func(ctx context.Context) (err error) {
		if err := d.ends.check(spec.ID, order); err != nil {
			return err
		}
		if info, err = d.opts.Driver.Create(ctx, spec); err != nil {
			return err
		}
		// The end may have come between the check and the making.
		if err := d.ends.check(spec.ID, order); err != nil {
			return errors.Join(err, d.opts.Driver.Destroy(ctx, spec.ID))
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.setNetwork(spec.ID, info.Network)
	return writeJSON(w, http.StatusOK, trim(info, maxCommands))
}

// destroy takes no turn: the driver itself ends a creation that is under way,
// and what is destroyed needs no grant.
func (d *Door) destroy(w http.ResponseWriter, r *http.Request) error {
	d.effects.Add(1)
	defer d.effects.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), effectLimit)
	defer cancel()
	id := r.PathValue("id")
	order, err := orderOf(r)
	if err != nil {
		return err
	}
	d.ends.note(id, order, time.Now())
	if err := d.opts.Driver.Destroy(ctx, id); err != nil {
		return err
	}
	d.forget(id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *Door) grant(w http.ResponseWriter, r *http.Request) error {
	var grant task.Grant
	if err := read(r, &grant); err != nil {
		return err
	}
	id := r.PathValue("id")
	if grant.Sandbox != id {
		return task.Fail(task.InputInvalid, "the sandbox's id differs between path and body", nil)
	}
	has, err := d.hasNetwork(r.Context(), id)
	if err != nil {
		return err
	}
	if has && d.opts.Frozen.Has(id) {
		if len(grant.Rules) > 0 {
			return kept(id)
		}
		has = false // It reaches nothing already.
	}
	if has { // Without a device there is nothing that a grant could change.
		err = d.effect(r, func(ctx context.Context) error { return d.opts.Egress.SetGrant(ctx, grant) })
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *Door) setNetwork(id string, has bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.network[id] = has
}

// hasNetwork says whether the sandbox has a network; an unknown sandbox is
// input.not_found.
func (d *Door) hasNetwork(ctx context.Context, id string) (bool, error) {
	d.mu.Lock()
	has, known := d.network[id]
	d.mu.Unlock()
	if known {
		return has, nil
	}
	info, err := d.find(ctx, id)
	if err != nil {
		return false, err
	}
	d.setNetwork(id, info.Network)
	return info.Network, nil
}

// forget drops what the door remembers of a sandbox that is gone.
func (d *Door) forget(id string) {
	d.mu.Lock()
	delete(d.network, id)
	d.mu.Unlock()
	if err := d.epochs.forget(id); err != nil {
		d.opts.Log.Warn("epochs of a destroyed sandbox stay", "sandbox", id, "error", err)
	}
}

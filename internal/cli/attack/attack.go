// Package attack runs the attack suite against the installation of this machine:
// it makes sandboxes by the ordinary API, tries from inside of them what must not
// work, and counts what reached the machine.
//
// A check is said to have held only when it was tried; what could not be tried is
// said to be untried, and then not all is well. So is what was not reached when the
// time was used up: it never reads as held. What needs servers outside is tried on
// a platform apart; see package apart.
package attack

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/attack"
)

// Options say what is tried.
type Options struct {
	Only     string // the beginning of the ids; empty: all
	Port     int    // of the listeners on this machine; 0: a free one
	Upstream string // NAME:PORT of a server with TLS outside; empty: none
	URL      string // of the API
	Bin      string // folder of the programs of the platform apart; empty: that of this one
	// Within is when checks are not begun any more, and those that are under way
	// count as untried; 0: two minutes, with what is removed afterwards.
	Within   time.Duration
	Progress io.Writer
}

// usual is how long checks are tried, so that with what they leave to be removed it
// is two minutes.
const usual = 105 * time.Second

// errCut is why checks are untried that were not reached in time.
var errCut = errors.New("not tried: the time for the whole run was used up before (--within)")

type options struct{ upstream, only, url, bin string }

// assault is one run.
type assault struct {
	o       options
	plan    attack.Plan
	program []byte
	can     *canaries
	out     io.Writer

	mu   sync.Mutex
	made []string // sandboxes of the installation
	got  map[string]attack.Result
	over func() bool // the time is used up
}

// Run tries the checks and returns what came of them. Everything it made is gone
// when it returns, or the error names it.
func Run(ctx context.Context, c *client.Client, o Options) (rep attack.Report, err error) {
	checks := attack.Select(o.Only, o.Upstream != "")
	if len(checks) == 0 {
		return rep, fmt.Errorf("--only %s: no check begins like that", o.Only)
	}
	if o.Upstream != "" {
		if _, port, err := net.SplitHostPort(o.Upstream); err != nil || port == "" {
			return rep, fmt.Errorf("--upstream %s: must be NAME:PORT of a server with TLS", o.Upstream)
		}
	}
	api, err := here(o.URL)
	if err != nil {
		return rep, err
	}
	a := &assault{o: options{o.Upstream, o.Only, o.URL, o.Bin}, out: o.Progress, got: map[string]attack.Result{}, over: func() bool { return false }}
	if a.program, a.o.bin, err = own(o.Bin); err != nil {
		return rep, err
	}
	if a.can, err = newCanaries(o.Port); err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, a.can.close()) }()
	a.plan = attack.Plan{
		Nonce: a.can.nonce, Hosts: a.can.hosts, TCP: a.can.tcp, UDP: a.can.udp, API: api, Socket: a.can.socket, Abstract: a.can.abstract,
		Files: a.can.files, Next: next, Process: os.Getpid(), Allowed: allowed, Upstream: o.Upstream,
	}
	began := time.Now()
	defer func() { err = errors.Join(err, a.clear(ctx, c)) }()
	within, cancel := context.WithTimeoutCause(ctx, cmp.Or(o.Within, usual), errCut)
	defer cancel()
	gone := a.timed(within, checks, func(ctx context.Context) error { return a.all(ctx, c, checks) })
	if err := ctx.Err(); err != nil {
		return rep, errors.Join(err, gone)
	}
	rep = a.report(checks)
	rep.Seconds = time.Since(began).Seconds()
	return rep, gone
}

// report puts together what was said, and what reached the machine.
func (a *assault) report(checks []attack.Check) attack.Report {
	results := make([]attack.Result, 0, len(checks))
	cut := false
	for _, k := range checks {
		r, ok := a.got[k.ID]
		if !ok {
			r = attack.Result{Outcome: attack.Untried, Happened: "nothing was said about it"}
		}
		cut = cut || r.Happened == errCut.Error()
		r.ID, r.Tried = k.ID, k.Tried
		a.can.correct(&r)
		results = append(results, r)
	}
	rep := attack.Sum(results)
	rep.Cut = cut
	return rep
}

// timed tries the checks until ctx ends for errCut. What is said after that is not
// believed, since a request that is cut looks like one that was refused; what
// reached a canary or a server is.
func (a *assault) timed(ctx context.Context, checks []attack.Check, tries func(context.Context) error) error {
	a.over = func() bool { return errors.Is(context.Cause(ctx), errCut) }
	err := tries(ctx)
	if a.over() {
		a.untried(idsOf(checks), errCut)
	}
	return err
}

// here says which port the API has on this machine, on which the listeners are,
// too: a server elsewhere would be attacked past them.
func here(address string) (int, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return 0, fmt.Errorf("the server's URL %q can't be read", address)
	}
	port, _ := strconv.Atoi(u.Port())
	ips, err := net.LookupIP(u.Hostname())
	if err != nil {
		return 0, fmt.Errorf("the server's URL: %w", err)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return 0, err
	}
	for _, ip := range ips {
		if ip.IsLoopback() || slices.ContainsFunc(addrs, func(a net.Addr) bool { n, ok := a.(*net.IPNet); return ok && n.IP.Equal(ip) }) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("%s is another machine: run this on the machine whose sandboxes are to be tried, since what they must not reach is on it", u.Host)
}

// of returns the ids of a box's checks.
func of(checks []attack.Check, box string) []string {
	var ids []string
	for _, k := range checks {
		if k.Box == box {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// all tries every box's checks. What fails makes its checks untried. The error is
// what could not be removed.
func (a *assault) all(ctx context.Context, c *client.Client, checks []attack.Check) error {
	// The platform apart is begun while the installation is tried, and floods come
	// when nothing else is measured.
	gone := make(chan error, 1)
	go func() { gone <- a.apart(ctx, checks) }()
	neighbour, err := a.here(ctx, c, checks)
	left := <-gone
	if err == nil {
		a.floods(ctx, c, neighbour, checks)
	}
	return left
}

// here tries the installation's own boxes but the floods.
func (a *assault) here(ctx context.Context, c *client.Client, checks []attack.Check) (string, error) {
	checks = slices.DeleteFunc(slices.Clone(checks), func(k attack.Check) bool { return slices.Contains(elsewhere(checks), k.ID) })
	if len(checks) == 0 {
		return "", errNone
	}
	neighbour, err := a.neighbour(ctx, c)
	if err != nil {
		a.untried(idsOf(checks), err)
		return "", err
	}
	for _, box := range []string{attack.Closed, attack.Named, attack.Through} {
		ids := of(checks, box)
		outside := box == attack.Closed && len(of(checks, attack.Outside)) > 0
		if len(ids) == 0 && !outside {
			continue
		}
		id, err := a.box(ctx, c, box, ids)
		if err == nil && len(ids) > 0 {
			err = a.inside(ctx, c, id, ids)
		}
		a.untried(ids, err)
		if outside {
			a.exports(ctx, c, id, err)
		}
	}
	return neighbour, nil
}

// errNone says that nothing of the installation is tried.
var errNone = errors.New("no check is about the installation itself")

func idsOf(checks []attack.Check) []string {
	ids := make([]string, 0, len(checks))
	for _, k := range checks {
		ids = append(ids, k.ID)
	}
	return ids
}

// neighbour makes the sandbox that is to live on, and waits until it listens.
func (a *assault) neighbour(ctx context.Context, c *client.Client) (string, error) {
	id, err := a.box(ctx, c, attack.Neighbour, nil)
	if err != nil {
		return "", err
	}
	if _, err := c.Exec(ctx, id, api.ExecRequest{Argv: []string{program, planned, "listen"}}); err != nil {
		return "", err
	}
	var said limited
	said.most = 500
	st, err := c.Run(ctx, id, api.ExecRequest{Argv: []string{program, planned, "await"}, TimeoutSeconds: 60}, &said, &said)
	if err == nil && (st.ExitCode != 0 || st.Error != "") {
		err = fmt.Errorf("the neighbour does not listen: %s %s", st.Error, said.buf.String())
	}
	return id, err
}

// inside runs the program in a sandbox and takes what it says.
func (a *assault) inside(ctx context.Context, c *client.Client, id string, ids []string) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 64<<10)
		var bad error
		for lines.Scan() {
			s, err := attack.ReadSaying(lines.Text(), ids)
			if err != nil {
				bad = errors.Join(bad, err)
				continue
			}
			a.say(s.ID, s.Outcome, "%s", s.Happened)
		}
		_, _ = io.Copy(io.Discard, r)
		done <- errors.Join(bad, lines.Err())
	}()
	var complaint limited
	complaint.most = 500
	st, err := c.Run(ctx, id, api.ExecRequest{Argv: []string{program, planned}, TimeoutSeconds: 300}, w, &complaint)
	w.Close()
	err = errors.Join(err, <-done)
	if err == nil && st.ExitCode != 0 {
		err = fmt.Errorf("the program inside ended with %d: %s %s", st.ExitCode, st.Error, complaint.buf.String())
	}
	return err
}

// say keeps an outcome. One that fell stays so, and nothing holds once the time is
// used up.
func (a *assault) say(id, outcome, format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.got[id].Outcome == attack.Fell {
		return
	}
	happened := attack.Brief(fmt.Sprintf(format, args...))
	if a.over() {
		if a.got[id].Outcome != "" {
			return
		}
		outcome, happened = attack.Untried, errCut.Error()
	}
	a.got[id] = attack.Result{ID: id, Outcome: outcome, Happened: happened}
	if a.out != nil {
		fmt.Fprintf(a.out, "%-7s %s\n", outcome, id)
	}
}

// struck keeps that a check fell, whatever was said and whenever.
func (a *assault) struck(id, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got[id] = attack.Result{ID: id, Outcome: attack.Fell, Happened: what}
}

// doubt takes back that a check held.
func (a *assault) doubt(id, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.got[id].Outcome == attack.Held {
		a.got[id] = attack.Result{ID: id, Outcome: attack.Untried, Happened: why}
	}
}

// untried says of checks that were not said anything about why not.
func (a *assault) untried(ids []string, err error) {
	if err == nil {
		return
	}
	for _, id := range ids {
		a.mu.Lock()
		_, ok := a.got[id]
		a.mu.Unlock()
		if !ok {
			a.say(id, attack.Untried, "%v", err)
		}
	}
}

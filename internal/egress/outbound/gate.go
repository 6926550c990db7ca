package outbound

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

const lendWait = 30 * time.Second // for a value to be lent

// Gate decides the requests to one name and port. Its zero value denies.
type Gate struct {
	Grant   task.Grant
	Use     decide.Use
	Rules   *decide.Index // of Grant
	Inspect bool          // the connection's decision says that each request is decided by itself
	Secure  bool          // requests go over TLS that is verified for the name of Use
	Bodies  *Bodies       // bounds what is held of bodies; nil: each body alone is bounded
}

// Pass is the answer to one request. Its zero value denies.
type Pass struct {
	Decision task.Decision
	lease    *task.Lease
	signed   *signed // how the request was signed inside, where that is carried
	strict   bool    // the rule looked at headers or the body
	why      string
	release  func()
	model    modelUse
}

// Release gives back what was held to decide the request. It must be called when
// the request is done with, and may be called again.
func (p Pass) Release() {
	if p.release != nil {
		p.release()
	}
}

// Trailers says whether what comes after the body may go out too: not beside what
// is lent, since some servers take a trailer for a header, so for another key,
// and not where a rule looked at headers.
func (p Pass) Trailers() bool { return p.lease == nil && !p.strict }

// Why says more than the reason does, for the program inside; mostly empty.
func (p Pass) Why() string { return p.why }

// Allowed says whether the request may go.
func (p Pass) Allowed() bool { return p.Decision.Verdict == task.Allowed }

// Lease is the id of the lease that is lent to the request; empty: none.
func (p Pass) Lease() string {
	if p.lease == nil {
		return ""
	}
	return p.lease.ID
}

// SentPath is the path of a request as a transport sends it: escaped, without
// the query.
func SentPath(u *url.URL) string {
	if p := u.EscapedPath(); p != "" {
		return p
	}
	return "/"
}

// Judge decides one request. r has the header that the client sent, before
// anything was taken off it. Where a rule is about bodies it reads the body, and
// leaves it in r.
func (g *Gate) Judge(r *http.Request) Pass {
	q := decide.Request{Method: r.Method, Path: SentPath(r.URL), Query: r.URL.RawQuery, Header: r.Header}
	var held int64
	p := g.judge(r, q, &held)
	p.model = g.asksModel(r, p)
	if !p.Allowed() {
		g.Bodies.give(held)
	} else if held > 0 {
		p.release = sync.OnceFunc(func() { g.Bodies.give(held) })
	}
	return p
}

func (g *Gate) judge(r *http.Request, q decide.Request, held *int64) Pass {
	p := Pass{Decision: task.Decision{Verdict: task.Allowed}}
	if g.Inspect {
		if g.Rules == nil {
			return Pass{Decision: task.Decision{Reason: task.PolicyDenied}}
		}
		use := g.Use
		use.At = time.Now() // the connection may be older than a rule's end
		if p.Decision = g.Rules.DecideRequest(use, q); p.Decision.Body {
			q.Body, *held = g.Bodies.read(r)
			p.Decision = g.Rules.DecideRequest(use, q)
		}
		if !p.Allowed() {
			if p.Decision.Reason == task.ReasonNone {
				p.Decision.Reason = task.PolicyDenied
			}
			return p
		}
	}
	if g.Inspect {
		rule := g.Rules.Rule(p.Decision.Rule)
		if overrides(r.Header) && rule.Narrow() {
			return Pass{Decision: task.Decision{Reason: task.PolicyProtocol, Rule: p.Decision.Rule}}
		}
		p.strict = len(rule.Headers) > 0 || rule.Body != nil
	}
	refused := Pass{Decision: task.Decision{Reason: task.PolicyCredential, Rule: p.Decision.Rule}}
	if name := p.Decision.Credential; name != "" {
		if p.lease = g.bound(name, q); p.lease == nil || !g.Secure {
			return refused
		}
	}
	var ok bool
	if p.signed, refused.why, ok = g.placed(r, p.lease, held); !ok {
		return refused
	}
	return p
}

// overrides says whether a header asks a server to take another method or path
// than those that are decided, as many frameworks do.
func overrides(h http.Header) bool {
	for name := range h {
		switch likeServers(name) {
		case "x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url", "x-original-uri":
			return true
		}
	}
	return false
}

// likeServers is a field's name as those read it that make no difference between
// dashes and underscores, such as CGI (RFC 3875 §4.1.18).
func likeServers(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// bound finds the lease of the credential whose own binding allows the request.
// The binding is read as rules are, by the same code.
func (g *Gate) bound(credential string, q decide.Request) *task.Lease {
	for i := range g.Grant.Leases {
		l := &g.Grant.Leases[i]
		if c, ok := carriers()[kindOf(l)]; l.Credential != credential || !ok || !c.knows(l) || l.Over(time.Now()) {
			continue
		}
		var rules []task.Rule
		for _, host := range l.Hosts {
			rules = append(rules, task.Rule{ID: l.ID, Host: host, Ports: l.Ports, Methods: l.Methods, Paths: l.Paths, Credential: credential})
		}
		d := decide.DecideRequest(task.Grant{Rules: rules}, g.Use, q)
		if d.Verdict == task.Allowed && d.Credential == credential {
			return l
		}
	}
	return nil
}

// placed says whether placeholders stand only where the lent value goes, and
// nothing else stands there; why says more of it.
func (g *Gate) placed(r *http.Request, lent *task.Lease, held *int64) (s *signed, why string, ok bool) {
	rest := rest(r)
	if lent != nil {
		carrier := carriers()[kindOf(lent)]
		if signer, signs := carrier.(signer); signs {
			var err error
			s, err = signer.read(lent, r, &rest, func() ([]byte, bool) {
				body, whole, n := g.Bodies.hold(r, maxHashed)
				*held += n
				return body, whole
			})
			if err != nil {
				return nil, err.Error(), false
			}
		} else if !carrier.take(lent, &rest) {
			return nil, "", false
		}
	}
	for i := range g.Grant.Leases {
		if slices.ContainsFunc(standIns(&g.Grant.Leases[i]), rest.holds) {
			return nil, "", false
		}
	}
	return s, "", true
}

// basic decodes what may be Basic credentials (RFC 7617).
func basic(v string) string {
	scheme, text, ok := strings.Cut(v, " ")
	if !ok || !strings.EqualFold(scheme, "Basic") {
		return ""
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return ""
	}
	return string(plain)
}

// Lend gets the value for a request that passed. Without a lease it lends
// nothing. A reason other than ReasonNone means that the request must not go.
func (g *Gate) Lend(ctx context.Context, lender Lender, p Pass) (Loan, task.Reason) {
	if !p.Allowed() {
		return Loan{}, task.PolicyDenied
	}
	if p.lease == nil {
		return Loan{}, task.ReasonNone
	}
	if lender == nil || !g.Secure {
		return Loan{}, task.InfraControlAway
	}
	ctx, cancel := context.WithTimeout(ctx, lendWait)
	defer cancel()
	value, err := lender.Value(ctx, g.Grant.Sandbox, *p.lease)
	if err != nil {
		var f *task.Failure
		switch {
		case errors.As(err, &f) && f.Reason.Class() == "policy":
			return Loan{why: f.Inside}, task.PolicyCredential
		case f != nil && f.Reason == task.InfraCredential:
			return Loan{why: f.Inside}, task.InfraCredential
		}
		return Loan{}, task.InfraControlAway
	}
	if value.Empty() || slices.ContainsFunc(g.Grant.Leases, func(l task.Lease) bool { return l.Placeholder == value.Reveal() }) {
		return Loan{}, task.PolicyCredential
	}
	loan := Loan{lease: p.lease, carrier: carriers()[kindOf(p.lease)], signed: p.signed, value: value}
	if !loan.carrier.fits(loan.lease, value) {
		return Loan{}, task.PolicyCredential
	}
	return loan, task.ReasonNone
}

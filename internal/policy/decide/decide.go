package decide

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Use is one connection asked for. Exactly one of Name and Address is set.
type Use struct {
	Name    string // the name, as the sandbox asked for it
	Address string // the literal IP address, when no name was asked for
	Port    uint16
	// At is the moment of the use; zero: a rule that ends by itself does not count.
	At time.Time
}

// Decide answers one connection asked for under a grant. It is allowed only
// when a rule's host or host pattern and ports stand for it; everything else,
// the zero grant and a use that names both or neither of name and address
// included, is denied. Where any such rule is about requests, Inspect says that
// each request must be decided by DecideRequest. A rule for PostgreSQL decides
// alone.
func Decide(grant task.Grant, use Use) task.Decision {
	return decide(candidates(grant.Rules, use))
}

// DecideRequest answers one HTTP request on a connection: rules that lend a
// credential come first, then the others, each in the order of the file. Where
// any rule for the connection names paths, a path that could be read in two
// ways is denied, whatever the rules. Where what a rule says of bodies matters and
// the body was not read yet, the answer is a denial with Body set.
func DecideRequest(grant task.Grant, use Use, q Request) task.Decision {
	return decideRequest(candidates(grant.Rules, use), q)
}

// held is a rule with what was compiled of it.
type held struct {
	*task.Rule
	fields *match.Fields // nil: nothing was compiled
}

// candidates are the rules that stand for the use, in their order.
func candidates(rules []task.Rule, use Use) iter.Seq[held] {
	return func(yield func(held) bool) {
		text, ok := use.host()
		if !ok || use.Port == 0 {
			return
		}
		h := match.NewHost(text)
		for i := range rules {
			if slices.Contains(rules[i].Ports, use.Port) && !rules[i].Over(use.At) && match.HostFits(match.HostFor(rules[i].Host, h), h) && !yield(held{Rule: &rules[i]}) {
				return
			}
		}
	}
}

func decide(rules iter.Seq[held]) task.Decision {
	d := task.Decision{Verdict: task.Denied, Reason: task.PolicyDenied}
	anyProtocol := false
	var login *task.Rule
	for rule := range rules {
		if login == nil && rule.Protocol == task.ProtocolPostgres {
			login = rule.Rule
		}
		if d.Verdict != task.Allowed {
			d = task.Decision{Verdict: task.Allowed, Rule: rule.ID}
		}
		d.Private = d.Private || rule.Private
		d.Inspect = d.Inspect || rule.Requests()
		switch {
		case Spoken(rule.Rule) == "":
			anyProtocol = true
		case !slices.Contains(d.Protocols, Spoken(rule.Rule)):
			d.Protocols = append(d.Protocols, Spoken(rule.Rule))
		}
	}
	if login != nil {
		// Beside a login of ours no other bytes may reach the server.
		return task.Decision{
			Verdict: task.Allowed, Rule: login.ID, Private: d.Private,
			Protocols: []string{task.ProtocolPostgres}, Credential: login.Credential,
		}
	}
	if anyProtocol {
		d.Protocols = nil
	}
	slices.Sort(d.Protocols)
	return d
}

// Spoken is the protocol that a rule allows: one about requests allows HTTP
// only, also where it doesn't say so.
func Spoken(rule *task.Rule) string {
	if rule.Protocol == "" && rule.Requests() {
		return task.ProtocolHTTP
	}
	return rule.Protocol
}

func decideRequest(rules iter.Seq[held], q Request) task.Decision {
	denied := task.Decision{Verdict: task.Denied, Reason: task.PolicyDenied}
	if !q.valid() {
		return denied
	}
	var found *task.Rule
	private, paths, unread := false, false, false
	for rule := range rules {
		private, paths = private || rule.Private, paths || len(rule.Paths) > 0
		switch rule.fits(q) {
		case yes:
			if found == nil || found.Credential == "" && rule.Credential != "" {
				found = rule.Rule
			}
		case unseen:
			unread = true
		case model:
			denied.Reason = task.PolicyModel
		case no:
		}
	}
	switch {
	case paths && !match.CleanPath(q.Path):
		return task.Decision{Verdict: task.Denied, Reason: task.PolicyDenied}
	case unread:
		return task.Decision{Verdict: task.Denied, Reason: task.PolicyDenied, Body: true}
	case found == nil:
		return denied
	}
	return task.Decision{
		Verdict: task.Allowed, Rule: found.ID, Private: private, Inspect: true,
		Protocols: []string{task.ProtocolHTTP}, Credential: found.Credential,
	}
}

// host is the canonical form of what the use names.
func (u Use) host() (string, bool) {
	switch {
	case u.Name != "" && u.Address == "":
		return match.CanonicalName(u.Name), true
	case u.Address != "" && u.Name == "":
		addr, err := netip.ParseAddr(u.Address)
		if err != nil || addr.Zone() != "" {
			return "", false
		}
		return addr.Unmap().String(), true
	}
	return "", false
}

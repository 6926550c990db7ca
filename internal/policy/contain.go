package policy

import (
	"fmt"
	"slices"

	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/task"
)

// within says whether the rules bound all of rule: every port, method and path
// of it is allowed by one of them. The first port that isn't is returned.
func within(rule task.Rule, bounds []lined) (port uint16, ok bool) {
	for _, port := range rule.Ports {
		for _, part := range parts(rule, port) {
			if !slices.ContainsFunc(bounds, func(b lined) bool { return part.within(b.Rule) }) {
				return port, false
			}
		}
	}
	return 0, true
}

// part is one port, method and path of a rule; "" for any.
type part struct {
	rule         task.Rule
	port         uint16
	method, path string
}

func parts(rule task.Rule, port uint16) []part {
	methods, paths := rule.Methods, rule.Paths
	if len(methods) == 0 {
		methods = []string{""}
	}
	if len(paths) == 0 {
		paths = []string{""}
	}
	var all []part
	for _, m := range methods {
		for _, p := range paths {
			all = append(all, part{rule, port, m, p})
		}
	}
	return all
}

func (p part) within(b task.Rule) bool {
	switch {
	case !match.HostWithin(p.rule.Host, b.Host) || !slices.Contains(b.Ports, p.port):
		return false
	case spoken(&b) != "" && spoken(&p.rule) != spoken(&b):
		return false
	case len(b.Methods) > 0 && !slices.Contains(b.Methods, p.method):
		return false
	}
	return len(b.Paths) == 0 || p.path != "" && slices.ContainsFunc(b.Paths, func(outer string) bool { return match.PathWithin(p.path, outer) })
}

// overlap says whether some request falls under both rules.
func overlap(a, b *task.Rule) bool {
	return match.HostsOverlap(a.Host, b.Host) && shared(a.Ports, b.Ports) &&
		(len(a.Methods) == 0 || len(b.Methods) == 0 || shared(a.Methods, b.Methods)) &&
		(len(a.Paths) == 0 || len(b.Paths) == 0 || slices.ContainsFunc(a.Paths, func(p string) bool {
			return slices.ContainsFunc(b.Paths, func(q string) bool { return match.PathsOverlap(p, q) })
		}))
}

func shared[T comparable](a, b []T) bool {
	return slices.ContainsFunc(a, func(v T) bool { return slices.Contains(b, v) })
}

// conflicts reports rules of one stage that can't both hold.
func (r *reader) conflicts(rules []lined) {
	for _, rule := range rules {
		if rule.Protocol == task.ProtocolPostgres && rule.Credential == "" {
			r.add(at(r.name, rule.line, join(rule.ID, "credential"), "is missing: with protocol postgres the gateway logs in; name the credential, or write protocol: tcp for connections that nobody looks into"))
		}
	}
	for _, c := range conflicts(rules) {
		r.add(at(r.name, c.b.line, c.b.ID, c.text))
	}
}

type conflict struct {
	a, b lined
	text string
}

// conflicts finds pairs of rules that clash: the first ones, since there may be
// as many as pairs.
func conflicts(rules []lined) []conflict {
	var found []conflict
	var lending, splicing, seeing, logins []lined
	for _, rule := range rules {
		if rule.Credential != "" {
			lending = append(lending, rule)
		}
		if rule.Protocol == task.ProtocolPostgres {
			logins = append(logins, rule)
		} else if rule.Requests() {
			seeing = append(seeing, rule)
		} else if rule.Protocol != "" {
			splicing = append(splicing, rule)
		}
	}
	for i, b := range lending {
		for _, a := range lending[:i] {
			if (a.Protocol == task.ProtocolPostgres) != (b.Protocol == task.ProtocolPostgres) {
				continue // below
			}
			if text := clash(a, b); text != "" {
				if found = append(found, conflict{a, b, text}); len(found) == maxErrors {
					return found
				}
			}
		}
	}
	for _, b := range logins {
		for _, a := range slices.Concat(splicing, seeing) {
			if text := clash(a, b); text != "" {
				if found = append(found, conflict{a, b, text}); len(found) == maxErrors {
					return found
				}
			}
		}
	}
	for _, b := range splicing {
		for _, a := range seeing {
			if text := clash(a, b); text != "" {
				if found = append(found, conflict{a, b, text}); len(found) == maxErrors {
					return found
				}
			}
		}
	}
	return found
}

// clash says why two rules of one stage can't both hold: they lend different
// credentials to the same request or server, b wants that nobody sees the requests
// that a is about, or only one of them logs in. "" when they can.
func clash(a, b lined) string {
	switch logins := a.Protocol == task.ProtocolPostgres; {
	case logins != (b.Protocol == task.ProtocolPostgres):
		if spoken(&a.Rule) != "" && spoken(&b.Rule) != "" && match.HostsOverlap(a.Host, b.Host) && shared(a.Ports, b.Ports) {
			return fmt.Sprintf("wants protocol %s where %s wants %s; nothing passes beside a login of PostgreSQL: leave one of them out", spoken(&b.Rule), a.stands(), spoken(&a.Rule))
		}
	case logins:
		if a.Credential != b.Credential && overlap(&a.Rule, &b.Rule) {
			return fmt.Sprintf("lends %q where %s lends %q; a stage logs in to a server with one credential", b.Credential, a.stands(), a.Credential)
		}
	case a.Credential != "" && b.Credential != "":
		if a.Credential != b.Credential && overlap(&a.Rule, &b.Rule) {
			return fmt.Sprintf("lends %q to requests to which %s lends %q; tell them apart by methods or paths, or use one credential", b.Credential, a.stands(), a.Credential)
		}
	case a.Requests() && !b.Requests() && b.Protocol != "":
		if match.HostsOverlap(a.Host, b.Host) && shared(a.Ports, b.Ports) {
			return fmt.Sprintf("wants protocol %s, whose requests nobody sees, where %s is about requests; leave one of them out", b.Protocol, a.stands())
		}
	}
	return ""
}

// stands says where a rule stands.
func (l lined) stands() string {
	if l.line == 0 {
		return l.ID
	}
	return fmt.Sprintf("%s (line %d)", l.ID, l.line)
}

// at is a failure's text with its place.
func at(name string, line int, field, text string) string {
	if line == 0 {
		return fmt.Sprintf("%s: %s", field, text)
	}
	return fmt.Sprintf("%s line %d: %s: %s", name, line, field, text)
}

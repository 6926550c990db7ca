package policy

import (
	"fmt"
	"slices"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/task"
)

// within says whether the bounds allow all of a rule, and the first port that
// they don't.
func within(rule task.Rule, bounds []lined) (port uint16, ok bool) {
	list := make([]task.Rule, len(bounds))
	for i, b := range bounds {
		list[i] = b.Rule
	}
	return decide.Within(rule, list)
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
		if decide.Spoken(&a.Rule) != "" && decide.Spoken(&b.Rule) != "" && match.HostsOverlap(a.Host, b.Host) && decide.Shared(a.Ports, b.Ports) {
			return fmt.Sprintf("wants protocol %s where %s wants %s; nothing passes beside a login of PostgreSQL: leave one of them out", decide.Spoken(&b.Rule), a.stands(), decide.Spoken(&a.Rule))
		}
	case logins:
		if a.Credential != b.Credential && decide.Overlap(&a.Rule, &b.Rule) {
			return fmt.Sprintf("lends %q where %s lends %q; a stage logs in to a server with one credential", b.Credential, a.stands(), a.Credential)
		}
	case a.Credential != "" && b.Credential != "":
		if a.Credential != b.Credential && decide.Overlap(&a.Rule, &b.Rule) {
			return fmt.Sprintf("lends %q to requests to which %s lends %q; tell them apart by methods, paths or query, or use one credential", b.Credential, a.stands(), a.Credential)
		}
	case a.Requests() && !b.Requests() && b.Protocol != "":
		if match.HostsOverlap(a.Host, b.Host) && decide.Shared(a.Ports, b.Ports) {
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

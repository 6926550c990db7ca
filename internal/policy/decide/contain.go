package decide

import (
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/policy/models"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Within says whether the rules bound all of rule: every port, method and path
// of it is allowed by one of them. The first port that isn't is returned. What
// isn't certain is no.
func Within(rule task.Rule, bounds []task.Rule) (port uint16, ok bool) {
	for _, port := range rule.Ports {
		for _, part := range parts(rule, port) {
			if !slices.ContainsFunc(bounds, part.within) {
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
	case Spoken(&b) != "" && Spoken(&p.rule) != Spoken(&b):
		return false
	case b.For != 0 && (p.rule.For == 0 || p.rule.For > b.For), b.Until != nil && (p.rule.Until == nil || p.rule.Until.After(*b.Until)):
		return false
	case len(b.Methods) > 0 && !slices.Contains(b.Methods, p.method):
		return false
	case !match.Within(p.rule.Query, b.Query) || !match.Within(p.rule.Headers, b.Headers) || !bodyWithin(p.rule.Body, b.Body):
		return false
	}
	return len(b.Paths) == 0 || p.path != "" && slices.ContainsFunc(b.Paths, func(outer string) bool { return match.PathWithin(p.path, outer) })
}

// bodyWithin says whether all bodies that inner allows, outer does.
func bodyWithin(inner, outer *task.Body) bool {
	switch {
	case outer == nil:
		return true
	case inner == nil:
		return false
	case inner.GraphQL != nil && outer.GraphQL != nil:
		return strings.EqualFold(inner.GraphQL.Repository, outer.GraphQL.Repository) && inner.Models == nil && outer.Models == nil &&
			!slices.ContainsFunc(inner.GraphQL.Mutations, func(m string) bool { return !slices.Contains(outer.GraphQL.Mutations, m) })
	case inner.GraphQL == nil && outer.GraphQL == nil:
		return models.Within(inner.Models, outer.Models)
	}
	return false
}

// Overlap says whether some request may fall under both rules.
func Overlap(a, b *task.Rule) bool {
	return match.HostsOverlap(a.Host, b.Host) && Shared(a.Ports, b.Ports) &&
		(len(a.Methods) == 0 || len(b.Methods) == 0 || Shared(a.Methods, b.Methods)) &&
		(len(a.Paths) == 0 || len(b.Paths) == 0 || slices.ContainsFunc(a.Paths, func(p string) bool {
			return slices.ContainsFunc(b.Paths, func(q string) bool { return match.PathsOverlap(p, q) })
		})) &&
		!match.Disjoint(a.Query, b.Query) && !match.Disjoint(a.Headers, b.Headers)
}

// Shared says whether two lists have something in common.
func Shared[T comparable](a, b []T) bool {
	return slices.ContainsFunc(a, func(v T) bool { return slices.Contains(b, v) })
}

package policy

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxIdentities bounds the audiences of one list.
const maxIdentities = 16

// identity is an audience that a layer names, with its line.
type identity struct {
	task.Identity
	line int
}

// identities reads the audiences for which a stage has tokens of its run's
// identity, or for which it may have them.
func (r *reader) identities(n *yaml.Node, path string) []identity {
	list := []identity{}
	r.list(n, path, func(n *yaml.Node, p string) {
		before := r.wrong
		one := identity{line: n.Line}
		r.fields(n, p, fieldReaders{
			"audience": func(n *yaml.Node, p string) {
				one.Audience = r.text(n, p, task.MaxAudience)
				if text := task.AudienceFault(one.Audience); text != "" && one.Audience != "" {
					r.errorf(n, p, "%s", text)
				}
			},
			"visible": func(n *yaml.Node, p string) { one.Visible = r.flag(n, p) },
		})
		switch {
		case r.wrong > before:
			return
		case one.Audience == "":
			r.errorf(n, join(p, "audience"), "is missing; name who the token is for, such as sts.amazonaws.com")
		case slices.ContainsFunc(list, func(i identity) bool { return i.Audience == one.Audience }):
			r.errorf(n, join(p, "audience"), "%q is named twice; remove one", one.Audience)
		default:
			list = append(list, one)
		}
	})
	if len(list) > maxIdentities {
		r.errorf(n, path, "more than %d audiences", maxIdentities)
	}
	return list
}

// identity is for which audiences a stage has tokens: what the lowest layer says
// that names it. Who a run is says more than what it reaches, so an audience
// that the operator's ceiling does not name is had by nobody, and one that may
// be seen inside only where every ceiling above says so too.
func (s *stack) identity(stage task.StageName) []task.Identity {
	sum, said := s.task.identity[stage]
	f := &s.task
	if !said {
		sum, f = s.project.identity[stage], &s.project
	}
	out := make([]task.Identity, 0, len(sum))
	for _, i := range sum {
		field := string(stage) + ".identity"
		for _, bound := range s.identityBounds(f, stage) {
			if text := i.beyond(bound.list); text != "" {
				s.refuse(f, i.line, field, "%q %s by the %s (%s); leave it out, or ask who keeps that layer", i.Audience, text, bound.by.name, bound.field)
				break
			}
		}
		out = append(out, i.Identity)
	}
	return out
}

type identityBound struct {
	list  []identity
	by    *file
	field string
}

// identityBounds are what a layer's audiences must lie within.
func (s *stack) identityBounds(f *file, stage task.StageName) []identityBound {
	bounds := []identityBound{{s.operator.ceiling.identity, &s.operator, "ceiling.identity"}}
	if f.layer != task.LayerTask {
		return bounds
	}
	if c := s.project.ceiling.identity; c != nil {
		return append(bounds, identityBound{c, &s.project, "ceiling.identity"})
	}
	if names, said := s.project.identity[stage]; said { // what it names binds those below
		bounds = append(bounds, identityBound{names, &s.project, string(stage) + ".identity"})
	}
	return bounds
}

// beyond says in what the audience is more than the list; "" when it isn't.
func (i identity) beyond(list []identity) string {
	at := slices.IndexFunc(list, func(b identity) bool { return b.Audience == i.Audience })
	switch {
	case at < 0:
		return "is not among the audiences allowed"
	case i.Visible && !list[at].Visible:
		return "is not allowed to be visible"
	}
	return ""
}

// addIdentity puts every stage's audiences into the plan.
func (s *stack) addIdentity(plan *Plan) {
	for _, stage := range stages() {
		if list := s.identity(stage); len(list) > 0 {
			if plan.Identity == nil {
				plan.Identity = map[task.StageName][]task.Identity{}
			}
			plan.Identity[stage] = list
		}
	}
}

// explainIdentity tells for whom a stage has tokens that say who its run is.
func (s *stack) explainIdentity(plan Plan, stage task.StageName) []Line {
	var lines []Line
	for _, i := range plan.Identity[stage] {
		l := Line{Stage: stage, Field: "identity", Text: "token for " + i.Audience, Layer: task.LayerProject}
		f := &s.project
		if _, said := s.task.identity[stage]; said {
			l.Layer, f = task.LayerTask, &s.task
		}
		for _, one := range f.identity[stage] {
			if one.Audience == i.Audience {
				l.Line = one.line
			}
		}
		l.Note = "not visible: a stage that asks is refused"
		if i.Visible {
			l.Note = "visible: programs inside may ask for it and see it; whoever has it is this run to that audience, for ten minutes"
		}
		lines = append(lines, l)
	}
	return lines
}

// explainIdentityCeiling tells what a layer lets those below ask for.
func explainIdentityCeiling(c *ceiling) (texts []string, line int) {
	for _, i := range c.identity {
		text := i.Audience
		if i.Visible {
			text += " (visible)"
		}
		texts = append(texts, text)
	}
	if c.identity != nil && len(texts) == 0 {
		texts = []string{"nothing"}
	}
	return texts, c.line
}

// reservedFault says why a name of ours can't stand in a rule; empty: it is none
// of ours.
func reservedFault(host string) string {
	name, _, _ := match.CutPattern(host)
	if name == "" {
		name = host
	}
	if task.IsReserved(name) {
		return fmt.Sprintf("%s is the gateway's own: it answers there itself, and no rule is needed", task.Reserved)
	}
	return ""
}

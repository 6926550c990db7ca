package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/policy/access"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/task"
)

// rules are what a stage may reach: what the lowest layer says that names the
// stage's network, else what the repository is given as well; and what the
// request itself makes necessary. All within the ceilings.
func (s *stack) rules(stage task.StageName) ([]lined, error) {
	sum, said := s.task.network[stage]
	if !said {
		sum = s.project.network[stage]
	}
	sum = slices.Clone(sum)
	s.limitModels(sum)
	for _, rule := range sum {
		s.bound(rule, stage)
	}
	needed, err := s.needed(stage)
	if err != nil {
		return nil, err
	}
	s.limitModels(needed)
	for _, rule := range needed {
		s.ceilings(rule, stage)
	}
	sum = slices.Concat(sum, needed)
	for i := range sum {
		sum[i].Rule = s.unspliced(sum[i])
	}
	if found := conflicts(sum); len(found) > 0 && len(s.problems) == 0 {
		c := found[0]
		return nil, task.Fail(task.InputPolicy, at(s.fileOf(c.b.Layer).name, c.b.line, c.b.ID, c.text), nil)
	}
	for _, rule := range s.repository.network[stage] {
		if said {
			s.narrow(rule.line, rule.ID, "%s: the task's policy says itself what the stage may reach", rule.Host)
		} else if s.mayHave(rule, stage, sum) {
			var why string
			rule.Rule = s.unspliced(rule)
			if rule.Rule, why = s.modelled(rule); why != "" {
				s.narrow(rule.line, rule.ID, "%s", why)
				continue
			}
			sum = append(sum, rule)
		}
	}
	return sum, nil
}

// needed are the rules that follow from the request: the repository's host,
// and the agent's models.
func (s *stack) needed(stage task.StageName) ([]lined, error) {
	switch stage {
	case task.Checkout:
		if s.spec.Repo.URL != "" {
			rule, err := access.RepoRule(s.spec.Repo.URL, cmp.Or(s.spec.Repo.Credential, s.task.checkout, s.project.checkout))
			return []lined{{Rule: rule}}, err
		}
	case task.Agent:
		agent := s.spec.Agent
		if agent.Name == "" {
			agent = s.ask.Agent
		}
		if rule, ok, err := access.ModelRule(agent); ok || err != nil {
			return []lined{{Rule: rule}}, err
		}
	}
	return nil, nil
}

func (s *stack) fileOf(layer string) *file {
	switch layer {
	case task.LayerOperator:
		return &s.operator
	case task.LayerProject:
		return &s.project
	case task.LayerRepository:
		return &s.repository
	}
	return &s.task
}

// bound refuses a rule that is more than the layers above allow.
func (s *stack) bound(rule lined, stage task.StageName) {
	s.ceilings(rule, stage)
	if names, said := s.bindsBy(stage); said && rule.Layer == task.LayerTask {
		if text := outside(rule, &s.project, names, string(stage)+".network.allow"); text != "" {
			s.refuse(&s.task, rule.line, rule.ID, "%s", text)
		}
	}
}

// ceilings refuses a rule that is more than a ceiling above it allows.
func (s *stack) ceilings(rule lined, stage task.StageName) {
	f := s.fileOf(rule.Layer)
	for _, text := range s.over(rule, stage) {
		s.refuse(f, rule.line, rule.ID, "%s", text)
	}
}

// over says in what a rule is more than the ceilings of the layers above it.
func (s *stack) over(rule lined, stage task.StageName) []string {
	var texts []string
	for _, upper := range s.above(s.fileOf(rule.Layer)) {
		c := &upper.ceiling
		for _, b := range []struct {
			rules []lined
			field string
		}{{c.all, "ceiling.network"}, {c.stages[stage], "ceiling." + string(stage) + ".network"}} {
			if b.rules == nil {
				continue
			}
			if text := outside(rule, upper, b.rules, b.field); text != "" {
				texts = append(texts, text)
			}
		}
		if rule.Credential != "" && c.credentials != nil && !slices.Contains(c.credentials, rule.Credential) {
			texts = append(texts, fmt.Sprintf("the credential %q is none that the %s lets tasks use (ceiling.credentials)", rule.Credential, upper.name))
		}
		if c.noSplice && (rule.Protocol == task.ProtocolTLS || rule.Protocol == task.ProtocolTCP) {
			texts = append(texts, fmt.Sprintf("protocol %s is not looked into, and the %s forbids that (ceiling.splice); write protocol: http", rule.Protocol, upper.name))
		}
	}
	return texts
}

// outside says in what a rule is more than the bounds; "" when it isn't.
func outside(rule lined, upper *file, bounds []lined, field string) string {
	port, ok := within(rule.Rule, bounds)
	if ok {
		return ""
	}
	what := fmt.Sprintf("%s port %d", rule.Host, port)
	if p := decide.Spoken(&rule.Rule); p != "" {
		what += " by " + p
	} else if slices.ContainsFunc(bounds, func(b lined) bool { return decide.Spoken(&b.Rule) != "" && match.HostWithin(rule.Host, b.Host) }) {
		what += " by any protocol"
	}
	var lines []string
	for _, b := range bounds {
		if match.HostsOverlap(rule.Host, b.Host) && len(lines) < 3 {
			lines = append(lines, fmt.Sprint(b.line))
		}
	}
	where := field
	if len(lines) > 0 {
		where += ", line " + strings.Join(lines, ", ")
	}
	return fmt.Sprintf("%s is more than the %s allows (%s); ask for less, or ask who keeps that layer", what, upper.name, where)
}

// mayHave says whether the repository is given a rule that it asks for: a
// higher layer lets it ask for that, no layer above stands against it, and it
// agrees with the rules that there are.
func (s *stack) mayHave(rule lined, stage task.StageName, have []lined) bool {
	if !s.offered(rule, stage) {
		s.narrow(rule.line, rule.ID, "%s: no higher layer says that repositories may ask for it (repository.network)", rule.Host)
		return false
	}
	if over := s.over(rule, stage); len(over) > 0 {
		s.narrow(rule.line, rule.ID, "%s", over[0])
		return false
	}
	asIs := lined{Rule: s.unspliced(rule), line: rule.line}
	for _, other := range have {
		if text := clash(other, asIs) + clash(asIs, other); text != "" {
			s.narrow(rule.line, rule.ID, "%s: doesn't go with %s", rule.Host, other.stands())
			return false
		}
	}
	return true
}

// offered says whether the project lets repositories ask for the rule, or the
// operator does and the project has nothing against it.
func (s *stack) offered(rule lined, stage task.StageName) bool {
	offers := func(f *file) bool {
		if f.ask == nil {
			return false
		}
		var list []lined
		for _, o := range f.ask.network {
			if rule.Credential == "" || o.Credential == rule.Credential {
				list = append(list, o)
			}
		}
		_, ok := within(rule.Rule, list)
		return ok
	}
	if offers(&s.project) {
		return true
	}
	if names, said := s.bindsBy(stage); said {
		if _, ok := within(rule.Rule, names); !ok {
			return false
		}
	}
	return offers(&s.operator)
}

// bindsBy are the project's rules for a stage where they bind the layers below:
// a layer that names a stage's network and no ceiling for it binds them by what
// it names.
func (s *stack) bindsBy(stage task.StageName) (names []lined, said bool) {
	p := &s.project
	names, said = p.network[stage]
	return names, said && p.ceiling.all == nil && p.ceiling.stages[stage] == nil
}

// unspliced is the rule under a layer that forbids splicing: what was open for
// anything is for HTTP, whose requests are seen.
func (s *stack) unspliced(rule lined) task.Rule {
	for _, upper := range s.above(s.fileOf(rule.Layer)) {
		if upper.ceiling.noSplice && rule.Protocol == "" {
			rule.Protocol = task.ProtocolHTTP
		}
	}
	return rule.Rule
}

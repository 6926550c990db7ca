package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/policy/access"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/policy/models"
	"github.com/cofferdam/cofferdam/internal/task"
)

// modelList is a list of models that a layer says; nil names: it says none.
type modelList struct {
	names []string
	line  int
}

// modelsAllowed are the models that a task may ask: what the lowest layer says,
// within what the layers above do. Nil: any.
func (s *stack) modelsAllowed() []string {
	type said struct {
		modelList
		file  *file
		field string
	}
	var above []said
	allowed := said{}
	for _, l := range []said{
		{s.operator.ceiling.models, &s.operator, "ceiling.models"},
		{s.project.ceiling.models, &s.project, "ceiling.models"},
		{s.project.models, &s.project, "agent.models"},
		{s.task.models, &s.task, "agent.models"},
	} {
		if l.names == nil {
			continue
		}
		for _, a := range above {
			if !models.Within(l.names, a.names) {
				s.refuse(l.file, l.line, l.field, "%s is more than the %s allows (%s, line %d); ask for less", strings.Join(l.names, ", "), a.file.name, a.field, a.line)
			}
		}
		s.origins["agent.models"] = origin{l.file.layer, l.line}
		// What a project asks for binds its tasks unless its ceiling says otherwise.
		if l.field == "ceiling.models" || s.project.ceiling.models.names == nil {
			above = append(above, l)
		}
		allowed = l
	}
	return allowed.names
}

// askedModels sees to it that the agent is not started with a model that it may
// not ask. A repository's wish is left out; the request's fails.
func (s *stack) askedModels(allowed []string) error {
	if allowed == nil {
		return nil
	}
	if m := s.ask.Agent.Model; m != "" && !models.Match(allowed, m) {
		s.narrow(max(s.repository.work.line, 1), "agent.model", "%s is none of the models that the task may ask", m)
		s.ask.Agent.Model = ""
	}
	if m := s.spec.Agent.Model; m != "" && !models.Match(allowed, m) {
		return task.Fail(task.PolicyModel, "agent.model: "+brief(m)+" is none of those that the task may ask (agent.models: "+brief(strings.Join(allowed, ", "))+")", nil)
	}
	return nil
}

// modelled is the rule where models are limited: what reaches a vendor of models
// may ask those alone. why says that it can't be.
func (s *stack) modelled(rule lined) (limited task.Rule, why string) {
	if s.allowed == nil || rule.Protocol == task.ProtocolPostgres || !slices.ContainsFunc(s.vendors(), func(v task.Rule) bool { return decide.Overlap(&v, &rule.Rule) }) {
		return rule.Rule, ""
	}
	switch {
	case rule.Protocol == task.ProtocolTLS || rule.Protocol == task.ProtocolTCP:
		return rule.Rule, fmt.Sprintf("protocol %s is not looked into, and the models of %s are limited (agent.models, ceiling.models); write protocol: http", rule.Protocol, rule.Host)
	case rule.Body == nil:
		rule.Body = &task.Body{Models: s.allowed}
	case rule.Body.GraphQL == nil && !models.Within(rule.Body.Models, s.allowed):
		return rule.Rule, fmt.Sprintf("%s is more than the models that the task may ask (agent.models: %s)", bodyText(rule.Body), strings.Join(s.allowed, ", "))
	}
	return rule.Rule, ""
}

// limitModels limits the models of rules, or refuses them.
func (s *stack) limitModels(rules []lined) {
	for i := range rules {
		var why string
		if rules[i].Rule, why = s.modelled(rules[i]); why != "" {
			s.refuse(s.fileOf(rules[i].Layer), rules[i].line, rules[i].ID, "%s", why)
		}
	}
}

// vendors are where models are asked.
func (s *stack) vendors() []task.Rule {
	urls := []string{s.spec.Agent.ModelURL, s.model.URL}
	for _, p := range task.Providers() {
		urls = append(urls, p.URL)
	}
	var rules []task.Rule
	for _, u := range urls {
		if host, port, err := access.Endpoint("agent.modelURL", u); err == nil {
			rules = append(rules, task.Rule{Host: host, Ports: []uint16{port}})
		}
	}
	return rules
}

// resolve says how the agent asks its models.
func (s *stack) resolve() error {
	said, by := access.Sum(s.task.access, s.project.access, s.operator.access)
	if by >= 0 {
		s.origins["agent.access"] = origin{[]string{task.LayerTask, task.LayerProject, task.LayerOperator}[by], said.Line}
	}
	agent := &s.spec.Agent
	if agent.Name == "" {
		agent = &s.ask.Agent
	}
	var err error
	*agent, s.model, err = access.Resolve(*agent, said, s.keys)
	return err
}

// explainModels tells how models are asked, and which may be.
func (s *stack) explainModels() (lines []Line) {
	if s.model != (task.ModelAccess{}) {
		lines = append(lines, s.said("agent.access", access.Text(s.model)))
	}
	if s.allowed == nil {
		return lines
	}
	l := s.said("agent.models", strings.Join(s.allowed, ", "))
	l.Note = "the bodies of requests to vendors of models are looked at; what can't be told is refused"
	return append(lines, l)
}

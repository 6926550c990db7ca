package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/policy/verifying"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Line is one line of an effective policy and the layer that said it. Text
// quotes what files say and is shown escaped.
type Line struct {
	Stage task.StageName // empty: all stages
	Field string         // such as "limits.memory", "network", "files"
	Text  string
	Layer string // a layer of package task, "default", or "request"
	Line  int    // in that layer's file; 0: no file says it
	Note  string // what follows from it, such as what splicing trusts
}

// The layers of lines that no file says.
const (
	layerDefault = "default" // nobody said it
	layerRequest = "request" // it follows from the task's other fields
)

// SplicingTrusts says what a connection that is not looked into may be used
// for.
const SplicingTrusts = "spliced: everything that is served behind this name can be reached, whatever the request says"

// Explain gives the effective policy line by line. With a stage, it gives only
// what is about that stage.
func Explain(spec task.Spec, layers task.Layers, stage task.StageName) (Plan, []Line, error) {
	s, plan, err := compile(spec, layers)
	if err != nil {
		return Plan{}, nil, err
	}
	lines := append(s.explainForms(), append(s.explainLimits(plan), s.explainModels()...)...)
	for _, name := range stages() {
		lines = append(lines, s.explainStage(plan, name)...)
	}
	lines = append(lines, s.explainTools(plan)...)
	lines = append(append(lines, s.explainFiles(plan)...), s.explainFlags(plan)...)
	lines = append(lines, s.explainCeilings()...)
	for _, text := range plan.Narrowed {
		lines = append(lines, Line{Field: "narrowed", Text: text, Layer: task.LayerRepository, Note: "asked for, and not given"})
	}
	if stage != "" {
		lines = slices.DeleteFunc(lines, func(l Line) bool { return l.Stage != "" && l.Stage != stage })
	}
	return plan, lines, nil
}

// said is a line with its origin.
func (s *stack) said(field, text string) Line {
	o, ok := s.origins[field]
	if !ok {
		o.layer = layerDefault
	}
	return Line{Field: field, Text: text, Layer: o.layer, Line: o.line}
}

// explainForms tells which layers were written in another form than ours.
func (s *stack) explainForms() []Line {
	var lines []Line
	for _, f := range []*file{&s.project, &s.task} {
		if f.form != "" {
			lines = append(lines, Line{Field: "form", Text: f.form, Layer: f.layer, Line: 1, Note: "taken for setup and agent, port 443; what matches is allowed and nothing else"})
		}
	}
	return lines
}

func (s *stack) explainLimits(plan Plan) []Line {
	var lines []Line
	for _, l := range limitNames() {
		lines = append(lines, s.said("limits."+l.name, show(l.name, *l.of(&plan.Limits))))
	}
	sudo := s.said("sudo", fmt.Sprint(plan.Sudo))
	if plan.Sudo {
		sudo.Note = "the workload may become root inside its sandbox"
	}
	return append(lines, sudo)
}

func (s *stack) explainStage(plan Plan, name task.StageName) []Line {
	var lines []Line
	if t, ok := plan.Timeout[name]; ok {
		l := s.said(string(name)+".time", t.String())
		l.Stage = name
		lines = append(lines, l)
	}
	for _, f := range verifying.Fields() {
		if text := *f.Of(&plan.Verifying); text != "" && name == task.Verify {
			l := s.said("verify."+f.Name, text)
			l.Stage = name
			lines = append(lines, l)
		}
	}
	grant := plan.Grant("", name, "")
	for _, rule := range grant.Rules {
		l := Line{Stage: name, Field: "network", Text: ruleText(rule), Layer: rule.Layer, Line: s.ruleOf(rule).line}
		if rule.Layer == task.LayerTask && l.Line == 0 {
			l.Layer = layerRequest
		}
		l.Note = ruleNote(grant, rule)
		if from := s.ruleOf(rule).from(); from != "" {
			l.Note = from + "; " + l.Note
		}
		lines = append(lines, l)
	}
	lines = append(lines, s.explainIdentity(plan, name)...)
	if l, ok := s.explainUnknown(plan, name); ok {
		lines = append(lines, l)
	} else if len(grant.Rules) == 0 {
		lines = append(lines, Line{Stage: name, Field: "network", Text: "nothing", Layer: layerDefault})
	}
	return lines
}

// ruleOf finds a rule as it stands, by its id.
func (s *stack) ruleOf(rule task.Rule) lined {
	f := s.fileOf(rule.Layer)
	for _, stage := range stages() {
		for _, l := range f.network[stage] {
			if l.ID == rule.ID {
				return l
			}
		}
	}
	return lined{}
}

func ruleText(rule task.Rule) string {
	ports := make([]string, len(rule.Ports))
	for i, p := range rule.Ports {
		ports[i] = fmt.Sprint(p)
	}
	text := "allow " + rule.Host + ":" + strings.Join(ports, ",")
	for _, part := range []struct{ word, value string }{
		{" protocol ", decide.Spoken(&rule)},
		{" methods ", strings.Join(rule.Methods, ",")},
		{" paths ", strings.Join(rule.Paths, ",")},
		{" query ", match.Text(rule.Query)},
		{" headers ", match.Text(rule.Headers)},
		{" body ", bodyText(rule.Body)},
		{" credential ", rule.Credential},
		{" until ", rule.Ending()},
	} {
		if part.value != "" {
			text += part.word + part.value
		}
	}
	return text
}

// ruleNote says what a rule means for who looks into its connections.
func ruleNote(grant task.Grant, rule task.Rule) string {
	var notes []string
	inspected := slices.ContainsFunc(grant.Rules, func(r task.Rule) bool {
		return r.Requests() && match.HostsOverlap(r.Host, rule.Host) && decide.Shared(r.Ports, rule.Ports)
	})
	switch {
	case rule.Protocol == task.ProtocolPostgres:
		notes = append(notes, "TLS ends at the gateway, which logs in with the credential; statements are not looked into")
	case rule.Requests():
		notes = append(notes, "inspected: TLS ends at the gateway, and each request is decided")
	case inspected:
		notes = append(notes, "inspected where another rule is about requests; "+SplicingTrusts)
	case rule.Protocol == task.ProtocolTCP:
		notes = append(notes, "any bytes pass, and nobody looks at them")
	default:
		notes = append(notes, SplicingTrusts)
	}
	if rule.Private {
		notes = append(notes, "opened to private addresses by the operator")
	}
	return strings.Join(notes, "; ")
}

// explainFiles tells the default protections and what changes them.
func (s *stack) explainFiles(plan Plan) []Line {
	var lines []Line
	for _, p := range task.ProtectedFiles() {
		l := Line{Stage: task.Agent, Field: "files.protected", Text: p, Layer: layerDefault}
		if access := plan.Files.Access(p); access != task.AccessReadOnly {
			l.Note = "is " + string(access) + " here"
		}
		lines = append(lines, l)
	}
	for _, list := range []struct {
		field string
		paths []string
	}{{"files.writable", plan.Files.Writable}, {"files.readonly", plan.Files.ReadOnly}, {"files.hidden", plan.Files.Hidden}} {
		for _, p := range list.paths {
			l := Line{Stage: task.Agent, Field: list.field, Text: p}
			for _, f := range []*file{&s.repository, &s.project, &s.task} {
				if line, ok := f.files.lines[p]; ok {
					l.Layer, l.Line = f.layer, line
				}
			}
			if list.field == "files.writable" && len((task.FileRules{Writable: []string{p}}).Widened()) > 0 {
				l.Note = "a protection is taken away; the receipt says so"
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// explainCeilings tells what the layers above let tasks ask for at most.
func (s *stack) explainCeilings() []Line {
	var lines []Line
	add := func(f *file, stage task.StageName, field, text string, line int) {
		lines = append(lines, Line{Stage: stage, Field: field, Text: text, Layer: f.layer, Line: line})
	}
	for _, f := range []*file{&s.operator, &s.project} {
		c := &f.ceiling
		for _, l := range limitNames() {
			if v := *l.of(&c.limits.Limits); v > 0 {
				add(f, "", "ceiling.limits."+l.name, show(l.name, v), c.limits.lines[l.name])
			}
		}
		bounds := func(stage task.StageName, field string, rules []lined) {
			if rules != nil && len(rules) == 0 {
				add(f, stage, field, "nothing", c.line)
			}
			for _, rule := range rules {
				add(f, stage, field, ruleText(rule.Rule), rule.line)
			}
		}
		bounds("", "ceiling.network", c.all)
		for _, stage := range sortedStages(c.stages) {
			bounds(stage, "ceiling."+string(stage)+".network", c.stages[stage])
		}
		if texts, line := explainIdentityCeiling(c); len(texts) > 0 {
			add(f, "", "ceiling.identity", strings.Join(texts, ", "), line)
		}
		if c.credentials != nil {
			add(f, "", "ceiling.credentials", strings.Join(c.credentials, ", "), c.line)
		}
		if c.models.names != nil {
			add(f, "", "ceiling.models", strings.Join(c.models.names, ", "), c.models.line)
		}
		if c.widen != nil {
			add(f, task.Agent, "ceiling.files.widen", strings.Join(c.widen, ", "), c.line)
		}
		if c.unknown != nil {
			add(f, "", "ceiling.unknown", c.unknown.word(), c.unknown.line)
		}
		if c.adminsOnly {
			add(f, "", "ceiling.answer", "admins", c.line)
		}
		if c.noSplice {
			add(f, "", "ceiling.splice", "forbid", c.line)
		}
		if c.noSudo {
			add(f, "", "ceiling.sudo", "forbid", c.line)
		}
	}
	return lines
}

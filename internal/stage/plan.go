package stage

import (
	"slices"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Credentials are the names of the credentials that the stage's rules lend,
// sorted, each once.
func (p Plan) Credentials(name task.StageName) []string {
	var names []string
	for _, rule := range p.Rules[name] {
		if rule.Credential != "" {
			names = append(names, rule.Credential)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Effective is the request with what it leaves out filled from the
// repository's layer, where that is allowed to say it.
func (p Plan) Effective(spec task.Spec) task.Spec {
	ask := p.Repository
	if !ask.Allowed {
		return p.asking(spec)
	}
	for _, f := range []struct{ to, from *string }{{&spec.Setup, &ask.Setup}, {&spec.Verify, &ask.Verify}, {&spec.Report, &ask.Report}} {
		if *f.to == "" {
			*f.to = *f.from
		}
	}
	if len(spec.Files) == 0 {
		spec.Files = ask.Files
	}
	if spec.Agent.Name == "" {
		spec.Agent = ask.Agent
	}
	return p.asking(spec)
}

// asking is the request with how its agent asks its models, where that is not as
// the agent's provider has it.
func (p Plan) asking(spec task.Spec) task.Spec {
	m := p.Model
	if m.Mode == task.ModelGateway || m.Kind != "" {
		spec.Agent.Mode, spec.Agent.Credential, spec.Agent.ModelURL = m.Mode, m.Credential, m.URL
	}
	return spec
}

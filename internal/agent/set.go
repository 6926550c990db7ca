package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// New makes the harness of a spec.
type New func(spec task.AgentSpec) (stage.Harness, error)

// Set is the harnesses that there are, by name. It implements stage.Harnesses.
type Set map[string]New

// Find implements stage.Harnesses.
func (s Set) Find(spec task.AgentSpec) (stage.Harness, error) {
	make, ok := s[spec.Name]
	if !ok {
		names := []string{}
		for name := range s {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil, Invalid("name", "%q is not known; there are command, loop, %s", spec.Name, strings.Join(names, ", "))
	}
	return make(spec)
}

// Invalid refuses a field of the agent's spec.
func Invalid(field, format string, args ...any) *task.Failure {
	return task.Fail(task.InputInvalid, "agent."+field+": "+fmt.Sprintf(format, args...), nil)
}

// packageOf is the catalog's name and version for spec.
func packageOf(spec task.AgentSpec) (string, error) {
	name := spec.Name
	if spec.Version != "" {
		name += "@" + spec.Version
	}
	h, version, err := catalog.Parse(name)
	if err != nil {
		return "", Invalid("version", "%v", err)
	}
	return h.Name + "@" + version, nil
}

// providerOf is the provider of spec when it is one of names.
func providerOf(spec task.AgentSpec, names ...string) (task.Provider, error) {
	p, ok := spec.ProviderOf()
	if !ok || !slices.Contains(names, p.Name) {
		return p, Invalid("provider", "%s asks models of %s only, not of %q", spec.Name, strings.Join(names, " and "), spec.Provider)
	}
	return p, nil
}

// noArgv refuses a command line given to a harness that has its own.
func noArgv(spec task.AgentSpec) error {
	if len(spec.Argv) > 0 {
		return Invalid("argv", "%s takes none", spec.Name)
	}
	return nil
}

// Base is what the harnesses of vendors have in common.
type Base struct {
	Spec     task.AgentSpec
	Provider task.Provider // whose models it asks
	pack     string
}

// NewBase checks the spec of a harness that asks models of one of the named
// providers.
func NewBase(spec task.AgentSpec, providers ...string) (Base, error) {
	provider, err := providerOf(spec, providers...)
	if err != nil {
		return Base{}, err
	}
	pack, err := packageOf(spec)
	if err != nil {
		return Base{}, err
	}
	return Base{Spec: spec, Provider: provider, pack: pack}, noArgv(spec)
}

// Package implements stage.Harness.
func (b *Base) Package() string { return b.pack }

// Stand-in for a key where none is lent: harnesses refuse to start without one.
const noKey = "no-key-is-lent-to-this-task"

// Key is what a harness is given as the key of the model's server.
func Key(run stage.HarnessRun) string {
	if run.Placeholder == "" {
		return noKey
	}
	return run.Placeholder
}

// promptFile is where the prompt is, relative to HOME. As an argument it could
// be taken for a flag, and one harness changes its quotes.
const promptFile = ".cofferdam/prompt"

// Prompted is a command that has the run's prompt as its standard input.
func Prompted(run stage.HarnessRun, argv []string, env []string, files ...stage.HarnessFile) stage.HarnessStart {
	prompt := run.Prompt
	if run.Session != "" {
		prompt = GoOn
	}
	return stage.HarnessStart{
		Argv:  append([]string{"/bin/sh", "-c", `exec "$@" <"$HOME/` + promptFile + `"`, "sh"}, argv...),
		Env:   env,
		Files: append([]stage.HarnessFile{{Path: promptFile, Data: []byte(prompt)}}, files...),
	}
}

// GoOn is the prompt of a session that is gone on with.
const GoOn = "The connection to the model broke off for a moment and is back. Go on with the task where you stopped."

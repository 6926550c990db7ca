package gvisor

import (
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// agentBinds are the read-only views of the agents that a sandbox was asked to
// have: nothing inside can change what other sandboxes run.
func (d *Driver) agentBinds(spec sandbox.Spec) ([]specs.Mount, error) {
	var binds []specs.Mount
	for _, pack := range spec.Agents {
		if d.cfg.Agents == nil {
			return nil, task.Fail(task.InputInvalid, "this machine keeps no agents", nil)
		}
		name, version, _ := strings.Cut(pack, "@")
		dir, err := d.cfg.Agents(name, version)
		if err != nil {
			return nil, err
		}
		binds = append(binds, specs.Mount{
			Destination: path.Join(sandbox.AgentsInside, name), Type: "bind", Source: dir,
			Options: []string{"rbind", "ro", "nosuid", "nodev"},
		})
	}
	return binds, nil
}

// UsesAgent says whether a sandbox of this machine, live or dead, has the agent
// "name@version".
func (d *Driver) UsesAgent(pack string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.making) > 0 {
		return true // one of them may be about to
	}
	for _, b := range d.boxes {
		if slices.Contains(b.spec().Agents, pack) {
			return true
		}
	}
	return false
}

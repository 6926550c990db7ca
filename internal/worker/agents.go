package worker

import (
	"net/http"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Agents keeps the agents' programs of this machine. Implemented by
// agent/install through cmd.
type Agents interface {
	// Install begins to install a version, unless it is there or under way, and
	// says where it stands.
	Install(name, version string) (link.Agent, error)
	List() ([]link.Agent, error)
	// Remove takes away one that no sandbox has.
	Remove(name, version string) error
}

func (d *Door) agents() (Agents, error) {
	if d.opts.Agents == nil {
		return nil, task.Fail(task.InputInvalid, "this machine keeps no agents", nil)
	}
	return d.opts.Agents, nil
}

func (d *Door) installAgent(w http.ResponseWriter, r *http.Request) error {
	var req link.AgentRequest
	if err := read(r, &req); err != nil {
		return err
	}
	agents, err := d.agents()
	if err != nil {
		return err
	}
	a, err := agents.Install(req.Name, req.Version)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a)
}

func (d *Door) listAgents(w http.ResponseWriter, _ *http.Request) error {
	list := link.AgentList{Agents: []link.Agent{}}
	if d.opts.Agents != nil {
		all, err := d.opts.Agents.List()
		if err != nil {
			return err
		}
		list.Agents = append(list.Agents, all...)
	}
	return writeJSON(w, http.StatusOK, list)
}

func (d *Door) removeAgent(w http.ResponseWriter, r *http.Request) error {
	agents, err := d.agents()
	if err != nil {
		return err
	}
	if err := agents.Remove(r.PathValue("name"), r.PathValue("version")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

package main

import (
	"github.com/cofferdam/cofferdam/internal/agent/install"
	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor"
)

// agents shows the shelf of agents to the door.
type agents struct {
	shelf  *install.Shelf
	driver *gvisor.Driver
}

// Install implements worker.Agents.
func (a agents) Install(name, version string) (link.Agent, error) {
	p, err := a.shelf.Install(name, version)
	return link.Agent(p), err
}

// List implements worker.Agents.
func (a agents) List() ([]link.Agent, error) {
	all, err := a.shelf.List()
	list := make([]link.Agent, 0, len(all))
	for _, p := range all {
		list = append(list, link.Agent(p))
	}
	return list, err
}

// Remove implements worker.Agents.
func (a agents) Remove(name, version string) error {
	return a.shelf.Remove(name, version, a.driver.UsesAgent)
}

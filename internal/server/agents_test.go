package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (f *machines) InstallAgent(_ context.Context, name, version string) ([]fleet.Agent, []string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != "claude" {
		return nil, nil, task.Fail(task.InputInvalid, "agent \""+name+"\" is not known", nil)
	}
	if version == "" {
		version = "1.0.0"
	}
	f.agent = fleet.Agent{Worker: "w1", Agent: link.Agent{Name: name, Version: version, State: link.AgentInstalling, Done: 1, Total: 2}}
	return []fleet.Agent{f.agent}, []string{"w2"}, nil
}

func (f *machines) Agents(context.Context) ([]fleet.Agent, []string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.agent.Name == "" {
		return nil, nil, nil
	}
	f.agent.State = link.AgentInstalled
	return []fleet.Agent{f.agent}, nil, nil
}

func (f *machines) RemoveAgent(_ context.Context, name, version string) (workers, lost []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.agent.Name != name || f.agent.Version != version {
		return nil, nil, task.Fail(task.InputNotFound, "no worker has it", nil)
	}
	f.agent = fleet.Agent{}
	return []string{"w1"}, nil, nil
}

// noHarnesses knows claude by name, and nothing of it.
type noHarnesses struct{}

func (noHarnesses) Find(spec task.AgentSpec) (stage.Harness, error) {
	if spec.Name == "claude" {
		return nil, nil
	}
	return nil, task.Fail(task.InputInvalid, "agent.name: is not known", nil)
}

func TestAgentsAreInstalledListedAndRemoved(t *testing.T) {
	s := newSite(t)
	admin := s.as(t, "admin")
	list, err := admin.InstallAgent(t.Context(), "claude", "")
	if err != nil || len(list.Agents) != 1 || list.Agents[0].State != api.AgentInstalling || strings.Join(list.Lost, " ") != "w2" {
		t.Fatalf("install: %+v, %v", list, err)
	}
	if list, err = s.as(t, "alice").Agents(t.Context()); err != nil || len(list.Agents) != 1 || list.Agents[0].State != api.AgentInstalled || list.Lost == nil {
		t.Fatalf("list: %+v, %v", list, err)
	}
	var p *api.Problem
	if _, err = admin.InstallAgent(t.Context(), "emacs", ""); !errors.As(err, &p) || p.Code != "input.invalid" || p.Status != 422 {
		t.Errorf("an unknown agent: %v", err)
	}
	if _, err = admin.RemoveAgent(t.Context(), "claude", "9.9.9"); !errors.As(err, &p) || p.Code != "input.not_found" {
		t.Errorf("a version that is not there: %v", err)
	}
	if gone, err := admin.RemoveAgent(t.Context(), "claude", "1.0.0"); err != nil || strings.Join(gone.Workers, " ") != "w1" {
		t.Errorf("remove: %+v, %v", gone, err)
	}
}

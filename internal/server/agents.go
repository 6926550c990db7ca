package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Agents keeps the agents' programs of the fleet. Implemented by fleet. lost
// names workers that did not answer.
type Agents interface {
	InstallAgent(ctx context.Context, name, version string) (agents []fleet.Agent, lost []string, err error)
	Agents(ctx context.Context) (agents []fleet.Agent, lost []string, err error)
	RemoveAgent(ctx context.Context, name, version string) (workers, lost []string, err error)
}

func (s *Server) describeAgents() {
	register(s, operation.Operation{
		ID: "install-agent", Method: http.MethodPost, Path: "/v1/agents", Access: operation.Admins, Status: http.StatusAccepted,
		Summary: "Have the workers install an agent's program; list-agents tells how it goes on",
	}, s.installAgent)
	register(s, operation.Operation{ID: "list-agents", Method: http.MethodGet, Path: "/v1/agents", Access: operation.Users, Summary: "The agents' programs on the workers"}, s.listAgents)
	register(s, operation.Operation{
		ID: "remove-agent", Method: http.MethodDelete, Path: "/v1/agents/{name}/{version}", Access: operation.Admins, Status: http.StatusOK,
		Summary: "Remove an agent's program from the workers",
	}, s.removeAgent)
}

// checkAgent refuses an agent that can't be run, under the field that is wrong.
func (s *Server) checkAgent(a task.AgentSpec) error {
	err := stage.CheckAgent(a, s.need.Harnesses)
	if f, ok := errors.AsType[*task.Failure](err); ok {
		if field, text, ok := strings.Cut(f.Text, ": "); ok {
			return problem.Invalid("body."+field, text)
		}
	}
	return err
}

type installAgentInput struct{ Body api.AgentInstallRequest }

type agentsOutput struct{ Body api.InstalledAgentList }

func agentsAnswer(agents []fleet.Agent, lost []string) *agentsOutput {
	out := &agentsOutput{api.InstalledAgentList{Agents: []api.InstalledAgent{}, Lost: append([]string{}, lost...)}}
	for _, a := range agents {
		out.Body.Agents = append(out.Body.Agents, api.InstalledAgent{
			Worker: a.Worker, Name: a.Name, Version: a.Version, State: a.State, Pinned: a.Pinned, SHA512: a.SHA512,
			Size: a.Size, Done: a.Done, Total: a.Total, Reason: string(a.Reason), Text: a.Text,
		})
	}
	return out
}

func (s *Server) installAgent(ctx context.Context, in *installAgentInput) (*agentsOutput, error) {
	agents, lost, err := s.need.Agents.InstallAgent(ctx, in.Body.Name, in.Body.Version)
	if err != nil {
		return nil, err
	}
	for _, a := range agents {
		// What all sandboxes may run is part of the account: once a program and
		// machine, however often it is asked for.
		facts := map[string]any{"agent": a.Name, "version": a.Version, "worker": a.Worker, "by": who(ctx).User}
		key := "agent.install/" + a.Worker + "/" + a.Name + "@" + a.Version
		if err := s.need.Audit.Record(ctx, "", key, "agent.install", seenBy, facts); err != nil {
			return nil, err
		}
	}
	return agentsAnswer(agents, lost), nil
}

func (s *Server) listAgents(ctx context.Context, _ *struct{}) (*agentsOutput, error) {
	agents, lost, err := s.need.Agents.Agents(ctx)
	if err != nil {
		return nil, err
	}
	return agentsAnswer(agents, lost), nil
}

type agentPath struct {
	Name    string `path:"name" maxLength:"64"`
	Version string `path:"version" maxLength:"64"`
}

type agentRemovalOutput struct{ Body api.AgentRemoval }

func (s *Server) removeAgent(ctx context.Context, in *agentPath) (*agentRemovalOutput, error) {
	workers, lost, err := s.need.Agents.RemoveAgent(ctx, in.Name, in.Version)
	if err != nil {
		return nil, err
	}
	return &agentRemovalOutput{api.AgentRemoval{Workers: append([]string{}, workers...), Lost: append([]string{}, lost...)}}, nil
}

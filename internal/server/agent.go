package server

import (
	"context"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/server/translate"
	"github.com/cofferdam/cofferdam/internal/task"
)

type agentEventsInput struct {
	ID    string `path:"id" maxLength:"64"`
	After int64  `query:"after" minimum:"0" doc:"Only events of the task numbered higher."`
}

type agentEventsOutput struct{ Body api.AgentEventList }

// listAgentEvents gives what the agent said and did, a page at a time.
func (s *Server) listAgentEvents(ctx context.Context, in *agentEventsInput) (*agentEventsOutput, error) {
	t, err := s.task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	events, err := s.need.Events.Events(ctx, t.ID, in.After, eventBatch)
	if err != nil {
		return nil, err
	}
	out := &agentEventsOutput{api.AgentEventList{Events: []api.AgentEvent{}, Next: in.After, More: len(events) == eventBatch}}
	for _, e := range events {
		out.Body.Next = e.Seq
		if a, ok := e.Data.(task.AgentEvent); ok {
			out.Body.Events = append(out.Body.Events, translate.AgentEvent(a))
		}
	}
	return out, nil
}

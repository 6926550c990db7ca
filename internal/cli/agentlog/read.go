package agentlog

import (
	"context"
	"encoding/json"

	"github.com/cofferdam/cofferdam/api"
)

// Source is a server that knows what agents said and did.
type Source interface {
	AgentEvents(ctx context.Context, id string, after int64) (api.AgentEventList, error)
	WatchTask(ctx context.Context, id string, after int64, fn func(api.Event) error) error
}

// Read gives the agent's events so far to each, in order, and those to come as
// well when follow is set, until the task has ended.
func Read(ctx context.Context, s Source, id string, follow bool, each func(api.AgentEvent) error) error {
	after := int64(0)
	for !follow {
		page, err := s.AgentEvents(ctx, id, after)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if err := each(e); err != nil {
				return err
			}
		}
		if after = page.Next; !page.More {
			return nil
		}
	}
	return s.WatchTask(ctx, id, after, func(ev api.Event) error {
		var e api.AgentEvent
		if ev.Type != "agent" || json.Unmarshal(ev.Data, &e) != nil {
			return nil
		}
		return each(e)
	})
}

// Any says whether the agent has said or done anything yet. A server that knows
// no agents' events has none.
func Any(ctx context.Context, s Source, id string) bool {
	for after := int64(0); ; {
		page, err := s.AgentEvents(ctx, id, after)
		if err != nil || len(page.Events) > 0 {
			return err == nil
		}
		if after = page.Next; !page.More {
			return false
		}
	}
}

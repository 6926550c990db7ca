package loop

import (
	"context"
	"fmt"
	"strings"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// tell adds an event, once in an attempt.
func (r *run) tell(ctx context.Context, key string, e task.AgentEvent) error {
	e.Time = r.Now()
	return r.Facts.AddAgentEvent(ctx, r.job.Task, fmt.Sprintf("%d/%s", r.job.Attempt, key), e)
}

// logf writes to the stage's log. A log that can't be written fails the stage
// where it is stored.
func (r *run) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(r.job.Log, format, args...)
}

// tellAnswer tells what the model said.
func (r *run) tellAnswer(ctx context.Context, turn int, a Answer) error {
	r.usage.Requests += a.Usage.Requests
	r.usage.Input += a.Usage.Input
	r.usage.Output += a.Usage.Output
	r.usage.Cached += a.Usage.Cached
	usage := a.Usage
	events := []task.AgentEvent{{Type: "usage", Usage: &usage}}
	keys := []string{fmt.Sprintf("%d/usage", turn)}
	if a.Text != "" {
		r.logf("%s\n", strings.TrimRight(clean(a.Text), "\n"))
		events, keys = append(events, task.AgentEvent{Type: "text", Text: a.Text}), append(keys, fmt.Sprintf("%d/text", turn))
	}
	for i, key := range keys {
		if err := r.tell(ctx, key, events[i]); err != nil {
			return err
		}
	}
	return nil
}

// tellCall tells of a call before it is carried out.
func (r *run) tellCall(ctx context.Context, turn int, c stage.Call) error {
	id := fmt.Sprintf("%d/%d", turn, c.Number)
	r.logf("> %s %s\n", short(c.Tool, 60), short(c.Input, 2000))
	return r.tell(ctx, id+"/call", task.AgentEvent{Type: "call", Call: id, Tool: c.Tool, Input: c.Input})
}

// tellResult tells what a call came to.
func (r *run) tellResult(ctx context.Context, turn int, c stage.Call) error {
	id := fmt.Sprintf("%d/%d", turn, c.Number)
	mark := "  "
	if c.Failed {
		mark = "! "
	}
	for line := range strings.Lines(strings.TrimRight(clean(c.Result), "\n") + "\n") {
		r.logf("%s%s", mark, line)
	}
	return r.tell(ctx, id+"/result", task.AgentEvent{Type: "result", Call: id, Text: c.Result, Failed: c.Failed})
}

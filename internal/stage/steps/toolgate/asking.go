package toolgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxOpen is how many questions of one command are put at one time; those beyond
// wait for their turn.
const maxOpen = 64

// again is how long after a fault a question is put again.
const again = time.Second

// Asking is a harness's reader whose questions are put to a gate. It implements
// stage.HarnessSpeaker, and unlike its reader it is safe for concurrent use.
type Asking struct {
	reader stage.HarnessAsker
	gate   stage.ToolGate
	key    string
	tell   func(key string, e task.AgentEvent) error
	wake   func() // there may be something to say

	ctx   context.Context //nolint:containedctx // of the one command that asks
	stop  context.CancelFunc
	busy  sync.WaitGroup
	turns chan struct{}

	mu   sync.Mutex
	open int
}

var _ stage.HarnessSpeaker = (*Asking)(nil)

// Ask puts the questions of a reader, if it has any, to a gate. key names the
// command in its attempt. tell keeps an event, once a key. wake is called after
// each answer. stop ends the waiting for answers.
func Ask(ctx context.Context, reader stage.HarnessReader, gate stage.ToolGate, key string, tell func(string, task.AgentEvent) error, wake func()) (asking stage.HarnessReader, stop func(), err error) {
	asker, ok := reader.(stage.HarnessAsker)
	switch {
	case gate == nil:
		return reader, func() {}, nil
	case !ok:
		return nil, nil, task.Fail(task.InputPolicy, "agent.tools: this agent does not ask before it uses tools; leave tools out, or use another agent", nil)
	}
	a := &Asking{reader: asker, gate: gate, key: key, tell: tell, wake: wake, turns: make(chan struct{}, maxOpen)}
	a.ctx, a.stop = context.WithCancel(ctx)
	return a, a.end, nil
}

// Waiting says whether a reader's command waits for an answer: then it is silent
// for a good reason.
func Waiting(reader stage.HarnessReader) bool {
	a, ok := reader.(*Asking)
	if !ok {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open > 0
}

// Output implements stage.HarnessReader.
func (a *Asking) Output(fd int, b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reader.Output(fd, b)
	for _, ask := range a.reader.Asks() {
		a.open++
		a.busy.Go(func() { a.put(ask) })
	}
}

// put puts one question until it is answered or the command has ended.
func (a *Asking) put(ask stage.HarnessAsk) {
	select {
	case a.turns <- struct{}{}:
		defer func() { <-a.turns }()
	case <-a.ctx.Done():
		return
	}
	for a.ctx.Err() == nil {
		answer, err := a.gate.May(a.ctx, fmt.Sprintf("%s/%d", a.key, ask.Number), ask.Use)
		if f, ok := errors.AsType[*task.Failure](err); ok && f.Reason.Class() == "input" {
			// It can't be asked, now or later.
			answer, err = task.ToolAnswer{Reason: task.ApprovalDenied, Text: "it can't be asked: " + f.Text}, nil
		}
		// What became of it is told first, and only then the command knows.
		if err == nil {
			err = a.tell(fmt.Sprintf("%s/asked/%d", a.key, ask.Number), Event(ask.Call, ask.Use.Tool, answer))
		}
		if err == nil {
			a.answer(ask, answer)
			return
		}
		timer := time.NewTimer(again)
		select {
		case <-timer.C:
		case <-a.ctx.Done():
			timer.Stop()
		}
	}
}

func (a *Asking) answer(ask stage.HarnessAsk, answer task.ToolAnswer) {
	a.mu.Lock()
	a.open--
	a.reader.Answer(ask.Number, answer)
	a.mu.Unlock()
	a.wake()
}

// Event is what became of a use of a tool, for the task's events.
func Event(call, tool string, answer task.ToolAnswer) task.AgentEvent {
	text := answer.Text
	if answer.Approval != "" {
		text += "; approval " + answer.Approval
	}
	return task.AgentEvent{Type: "permission", Call: call, Tool: tool, Text: text, Failed: !answer.Allow}
}

// Hopeless implements stage.HarnessReader.
func (a *Asking) Hopeless() *task.Failure {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reader.Hopeless()
}

// Say implements stage.HarnessSpeaker.
func (a *Asking) Say() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reader.Say()
}

// Done implements stage.HarnessSpeaker.
func (a *Asking) Done() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reader.Done()
}

// End implements stage.HarnessReader. Nobody waits for an answer any longer.
func (a *Asking) End(exit int) stage.HarnessEnd {
	a.end()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reader.End(exit)
}

func (a *Asking) end() {
	a.stop()
	a.busy.Wait()
}

// Package loop is the agent of our own: it asks a model what to do next and does
// it with a few tools in the task's sandbox, until the model has no more to do.
//
// Words. A turn is one question to the model and its whole answer; a call is one
// use of a tool that an answer asks for. The journal keeps both. A call's command
// has a fixed id, so that whoever comes back after a crash attaches to it: a
// command is started once, whatever happens here. Trouble is a request to the
// model that came to nothing.
//
// The loop decides and the sandbox acts: the loop runs in the control plane and
// holds no key. Its requests carry a placeholder, and the transport that it is
// given puts the key in where the task's grant allows it.
//
// Not promised: that a request whose answer was lost is not sent again (it is,
// and it is counted); that what the model asks for is sensible. Nothing relies
// on that: what tools can do is bounded by the sandbox.
package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Facts is what the loop reads and writes of a task's record beside its journal.
// Implemented by store.
type Facts interface {
	AddAgentEvent(ctx context.Context, id, key string, e task.AgentEvent) error
	Egress(ctx context.Context, id string) ([]task.EgressRecord, error)
	AddEgress(ctx context.Context, id string, records []task.EgressRecord) error
}

// Transport is a way to a model: what its grant does not allow does not leave,
// and what leaves is recorded.
type Transport interface {
	http.RoundTripper
	Close() // ends the grant
}

// Options says what the loop works with. Zero fields at the end have defaults.
type Options struct {
	Turns     stage.Turns
	Facts     Facts
	Audit     Audit
	Transport func(grant task.Grant, record func(task.EgressRecord) error) (Transport, error)
	Models    map[string]func(Endpoint) Model // by provider

	Purse Purse // nil: no budget limits what models are asked
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error // nil: wait for so long
	// Silence is how long a model may send nothing; 0: two minutes.
	Silence time.Duration
	// Context bounds a conversation, in bytes of its request; 0: 600,000. Old
	// results are left out first.
	Context int
}

// Loop is the agent of our own. It is safe for concurrent use.
type Loop struct{ Options }

var _ stage.Loop = (*Loop)(nil)

// defaults of Options and task.AgentSpec.
const (
	defaultSilence = 2 * time.Minute
	defaultContext = 600_000
	defaultTurns   = 50
)

// New returns a loop.
func New(o Options) *Loop {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = wait
	}
	if o.Silence <= 0 {
		o.Silence = defaultSilence
	}
	if o.Context <= 0 {
		o.Context = defaultContext
	}
	return &Loop{o}
}

// wait is the default of Options.Sleep.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errTime ends a run whose wall time is over.
var errTime = errors.New("the agent's wall time is over")

// run is one run of one job.
type run struct {
	*Loop
	job      stage.LoopJob
	model    Model
	question Question
	turns    []stage.Turn // as the journal has them
	strange  int          // calls in a row that were none
	usage    task.ModelUsage
	way      *way
}

// Run works until the model says that it is done.
func (l *Loop) Run(ctx context.Context, job stage.LoopJob) error {
	ctx, cancel := l.clocked(ctx, job)
	defer cancel()
	r := &run{Loop: l, job: job}
	err := r.begin(ctx)
	if err == nil {
		err = r.work(ctx)
	}
	if r.way != nil {
		err = errors.Join(err, r.way.close(context.WithoutCancel(ctx)))
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTime) {
		return context.Cause(ctx) // cut off: nothing is decided
	}
	if errors.Is(context.Cause(ctx), errTime) {
		err = task.Fail(task.LimitTime, "the agent took longer than it may", nil)
	}
	return r.end(context.WithoutCancel(ctx), err)
}

// end tells how the agent ended, once. What the infrastructure did is not the
// agent's end: another run or attempt follows.
func (r *run) end(ctx context.Context, err error) error {
	var failure *task.Failure
	event := task.AgentEvent{Type: "end", Usage: &r.usage}
	if err != nil {
		if !errors.As(err, &failure) || failure.Reason.Retryable() {
			return err
		}
		event.Failed, event.Text = true, string(failure.Reason)+": "+failure.Text
		r.logf("= %s: %s\n", failure.Reason, failure.Text)
	}
	if told := r.tell(ctx, "end", event); told != nil {
		return told
	}
	return err
}

// begin finds the model and what is done already.
func (r *run) begin(ctx context.Context) error {
	provider, ok := r.job.Agent.ProviderOf()
	if !ok {
		return task.Fail(task.InputInvalid, fmt.Sprintf("agent.provider: %q is not known", r.job.Agent.Provider), nil)
	}
	name := provider.Name
	build := r.Models[name]
	if build == nil {
		return task.Fail(task.InputInvalid, fmt.Sprintf("agent.provider: the loop does not speak to %q; use anthropic or openai", name), nil)
	}
	var err error
	if r.way, err = r.openWay(ctx); err != nil {
		return err
	}
	r.model = build(Endpoint{
		URL: provider.URL, Model: ModelName(r.job.Agent), Header: keyHeader(r.job),
		Client: &http.Client{
			Transport:     &guard{next: r.way.transport, silence: r.Silence},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	r.question = Question{System: systemPrompt(), Prompt: userPrompt(r.job), Tools: tools()}
	r.turns, err = r.Turns.Turns(ctx, r.job.Task, r.job.Attempt)
	for _, t := range r.turns {
		for _, c := range t.Calls {
			if c.Command != "" {
				r.job.Hands.Adopt(c.Command)
			}
		}
	}
	return err
}

// ModelName is the model that the loop asks for: the task's, or the default of
// its provider; empty when the provider has none.
func ModelName(a task.AgentSpec) string {
	if a.Model != "" {
		return a.Model
	}
	p, _ := a.ProviderOf()
	return map[string]string{"anthropic": "claude-sonnet-4-5", "openai": "gpt-5"}[p.Name]
}

// keyHeader is the header that carries the placeholder of the key.
func keyHeader(job stage.LoopJob) http.Header {
	h := http.Header{}
	for _, lease := range job.Grant.Leases {
		if lease.Credential == job.Agent.CredentialName() {
			h.Set(lease.Header, lease.Prefix+lease.Placeholder)
		}
	}
	return h
}

// work goes from turn to turn.
func (r *run) work(ctx context.Context) error {
	most := r.job.Agent.MaxTurns
	if most <= 0 {
		most = defaultTurns
	}
	for n := 1; ; n++ {
		if n > most {
			return task.Fail(task.LimitTurns, fmt.Sprintf("the agent was not done after %d turns", most), nil)
		}
		answer, err := r.turn(ctx, n)
		if err != nil {
			return err
		}
		if err := r.tellAnswer(ctx, n, answer); err != nil {
			return err
		}
		switch answer.Stop {
		case StopEnd:
			return nil
		case StopRefused:
			return task.Fail(task.AgentFailed, "the model declined to go on ("+short(answer.Reason, 80)+")", nil)
		case StopLength:
			return task.Fail(task.AgentFailed, "the model's answer was cut at its largest size ("+short(answer.Reason, 80)+"); ask for smaller steps", nil)
		case StopCalls:
		}
		results, err := r.calls(ctx, n, answer)
		if err != nil {
			return err
		}
		r.question.Exchanges = append(r.question.Exchanges, Exchange{Message: answer.Message, Results: results})
	}
}

// turn returns the answer of a turn: the recorded one, or the model's.
func (r *run) turn(ctx context.Context, n int) (Answer, error) {
	t := stage.Turn{Number: n, State: stage.TurnAsking}
	for _, have := range r.turns {
		if have.Number == n {
			t = have
		}
	}
	var answer Answer
	if t.State == stage.TurnAnswered {
		err := json.Unmarshal(t.Response, &answer)
		if err != nil {
			err = task.Fail(task.InfraInternal, "a recorded turn can't be read", err)
		}
		answer.Usage.Requests = t.Requests
		return answer, err
	}
	request, err := r.fitted()
	if err != nil {
		return answer, err
	}
	t.Request = digest(request)
	if answer, err = r.ask(ctx, &t, request); err != nil {
		if ctx.Err() == nil { // what was sent for nothing counts as well
			err = errors.Join(err, r.tellAnswer(ctx, n, Answer{Usage: task.ModelUsage{Requests: t.Requests}}))
		}
		return answer, err
	}
	if t.Response, err = json.Marshal(answer); err != nil {
		return answer, task.Fail(task.ModelFaulty, "the model's answer can't be kept", err)
	}
	t.State, t.Usage = stage.TurnAnswered, answer.Usage
	answer.Usage.Requests = t.Requests
	return answer, r.Turns.SetTurn(ctx, r.job.Task, r.job.Attempt, t)
}

// Package openai speaks OpenAI's chat completions, streamed, for the loop, and
// so reaches every server that is compatible with them. The vendor's own library
// sends the request, reads the stream and knows the errors; what is asked and
// what is kept of an answer is ours.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"

	"github.com/cofferdam/cofferdam/internal/agent/loop"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Model is one model at one server.
type Model struct {
	name        string
	completions sdk.ChatCompletionService
}

// New returns the model of an endpoint. It takes nothing from the environment.
func New(e loop.Endpoint) loop.Model {
	options := []option.RequestOption{
		option.WithBaseURL(e.URL), option.WithHTTPClient(e.Client), option.WithMaxRetries(0),
		option.WithHeader("User-Agent", "cofferdam"),
	}
	for name := range e.Header {
		options = append(options, option.WithHeader(name, e.Header.Get(name)))
	}
	return &Model{name: e.Model, completions: sdk.NewChatCompletionService(options...)}
}

type (
	request struct {
		Model    string            `json:"model"`
		Messages []json.RawMessage `json:"messages"`
		Tools    []tool            `json:"tools"`
		Options  streamOptions     `json:"stream_options"`
	}
	streamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	}
	tool struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	message struct {
		Role       string     `json:"role"`
		Content    string     `json:"content"`
		ToolCallID string     `json:"tool_call_id,omitempty"`
		ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	}
	toolCall struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function callFunc `json:"function"`
	}
	callFunc struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
)

// Request returns the parameters of a request.
func (m *Model) Request(q loop.Question) ([]byte, error) {
	r := request{Model: m.name, Options: streamOptions{IncludeUsage: true}}
	for _, t := range q.Tools {
		r.Tools = append(r.Tools, tool{"function", function{t.Name, t.Description, t.Schema}})
	}
	messages := []message{{Role: "system", Content: q.System}, {Role: "user", Content: q.Prompt}}
	add := func() error {
		for _, m := range messages {
			raw, err := json.Marshal(m)
			if err != nil {
				return err
			}
			r.Messages = append(r.Messages, raw)
		}
		messages = nil
		return nil
	}
	if err := add(); err != nil {
		return nil, err
	}
	for _, e := range q.Exchanges {
		r.Messages = append(r.Messages, e.Message)
		for _, res := range e.Results {
			text := res.Text
			if res.Failed {
				text = "error: " + text
			}
			messages = append(messages, message{Role: "tool", ToolCallID: res.ID, Content: text})
		}
		if err := add(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(r)
}

// Ask sends the request and reads the whole answer.
func (m *Model) Ask(ctx context.Context, request []byte) (loop.Answer, error) {
	var params sdk.ChatCompletionNewParams
	param.SetJSON(request, &params)
	var a answer
	if err := loop.Pieces(m.completions.NewStreaming(ctx, params), a.take, trouble); err != nil {
		return loop.Answer{}, err
	}
	if a.stop == "" {
		return loop.Answer{}, &loop.Trouble{Kind: loop.Faulty, Text: "the stream ended before the answer did"}
	}
	return a.whole()
}

// trouble translates the library's errors. What a transport failed with stays
// as it is.
func trouble(err error) error {
	var failed *sdk.Error
	if !errors.As(err, &failed) {
		return err
	}
	return loop.StatusTrouble(failed.StatusCode, failed.Response.Header, strings.TrimSpace(failed.Type+" "+failed.Message), time.Now())
}

// answer is an answer as far as it has come.
type answer struct {
	text, refusal string
	calls         []toolCall
	stop          string
	usage         task.ModelUsage
}

// maxCalls bounds how many calls a stream may begin.
const maxCalls = 1024

// take adds one piece.
func (a *answer) take(c sdk.ChatCompletionChunk) error {
	if u := c.Usage; u.PromptTokens > 0 || u.CompletionTokens > 0 {
		a.usage = task.ModelUsage{Input: u.PromptTokens, Output: u.CompletionTokens, Cached: u.PromptTokensDetails.CachedTokens}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			return fmt.Errorf("a choice %d, where one was asked for", choice.Index)
		}
		a.text += choice.Delta.Content
		a.refusal += choice.Delta.Refusal
		for _, t := range choice.Delta.ToolCalls {
			if t.Index < 0 || t.Index > int64(len(a.calls)) || t.Index >= maxCalls {
				return fmt.Errorf("a piece of call %d, where %d have begun", t.Index, len(a.calls))
			}
			if t.Index == int64(len(a.calls)) {
				a.calls = append(a.calls, toolCall{Type: "function"})
			}
			call := &a.calls[t.Index]
			if t.ID != "" {
				call.ID = t.ID
			}
			call.Function.Name += t.Function.Name
			call.Function.Arguments += t.Function.Arguments
		}
		if choice.FinishReason != "" {
			a.stop = choice.FinishReason
		}
	}
	return nil
}

// whole is the answer when all of it is there.
func (a *answer) whole() (loop.Answer, error) {
	out := loop.Answer{Text: a.text, Usage: a.usage, Reason: a.stop}
	kept := message{Role: "assistant", Content: a.text}
	for _, c := range a.calls {
		in := c.Function.Arguments
		if in == "" {
			in = "{}"
		}
		out.Calls = append(out.Calls, loop.Call{ID: c.ID, Name: c.Function.Name, Input: in})
		// Servers parse what they are sent back; the call's result says what was
		// wrong with it.
		if c.Function.Arguments = in; !json.Valid([]byte(in)) {
			c.Function.Arguments = "{}"
		}
		kept.ToolCalls = append(kept.ToolCalls, c)
	}
	switch a.stop {
	case "stop", "tool_calls", "function_call":
		if out.Stop = loop.StopEnd; len(out.Calls) > 0 {
			out.Stop = loop.StopCalls
		}
	case "length":
		out.Stop = loop.StopLength
	case "content_filter":
		out.Stop = loop.StopRefused
	default:
		return out, &loop.Trouble{Kind: loop.Faulty, Text: fmt.Sprintf("an answer that ended for %.40q", a.stop)}
	}
	if a.refusal != "" {
		out.Stop, out.Reason = loop.StopRefused, a.refusal
	}
	var err error
	out.Message, err = json.Marshal(kept)
	return out, err
}

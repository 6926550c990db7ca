// Package anthropic speaks Anthropic's Messages, streamed, for the loop. The
// vendor's own library sends the request, reads the stream and knows the errors;
// what is asked and what is kept of an answer is ours.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"github.com/cofferdam/cofferdam/internal/agent/loop"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxTokens bounds one answer.
const maxTokens = 16_384

// maxBlocks bounds how many blocks a stream may begin.
const maxBlocks = 1024

// Model is one model at one server.
type Model struct {
	name     string
	messages sdk.MessageService
}

// New returns the model of an endpoint. It takes nothing from the environment.
func New(e loop.Endpoint) loop.Model {
	options := []option.RequestOption{
		option.WithBaseURL(e.URL), option.WithHTTPClient(e.Client), option.WithMaxRetries(0), option.WithoutOpenTelemetry(),
		option.WithHeader("User-Agent", "cofferdam"),
	}
	for name := range e.Header {
		options = append(options, option.WithHeader(name, e.Header.Get(name)))
	}
	return &Model{name: e.Model, messages: sdk.NewMessageService(options...)}
}

type (
	request struct {
		Model     string    `json:"model"`
		MaxTokens int       `json:"max_tokens"`
		System    []block   `json:"system"`
		Tools     []tool    `json:"tools"`
		Messages  []message `json:"messages"`
	}
	tool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	}
	message struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	block struct {
		Type      string          `json:"type"`
		Text      string          `json:"text,omitempty"`
		ID        string          `json:"id,omitempty"`
		Name      string          `json:"name,omitempty"`
		Input     json.RawMessage `json:"input,omitempty"`
		Thinking  *string         `json:"thinking,omitempty"`
		Signature string          `json:"signature,omitempty"`
		Data      string          `json:"data,omitempty"`
		ToolUseID string          `json:"tool_use_id,omitempty"`
		Content   string          `json:"content,omitempty"`
		IsError   bool            `json:"is_error,omitempty"`
		Cache     *cache          `json:"cache_control,omitempty"`
	}
	cache struct {
		Type string `json:"type"`
	}
)

// Request returns the parameters of a request.
func (m *Model) Request(q loop.Question) ([]byte, error) {
	ephemeral := &cache{Type: "ephemeral"}
	r := request{Model: m.name, MaxTokens: maxTokens, System: []block{{Type: "text", Text: q.System, Cache: ephemeral}}}
	for _, t := range q.Tools {
		r.Tools = append(r.Tools, tool{t.Name, t.Description, t.Schema})
	}
	said := func(role string, blocks []block) error {
		content, err := json.Marshal(blocks)
		r.Messages = append(r.Messages, message{role, content})
		return err
	}
	if err := said("user", []block{{Type: "text", Text: q.Prompt}}); err != nil {
		return nil, err
	}
	for i, e := range q.Exchanges {
		r.Messages = append(r.Messages, message{"assistant", e.Message})
		var results []block
		for _, res := range e.Results {
			results = append(results, block{Type: "tool_result", ToolUseID: res.ID, Content: res.Text, IsError: res.Failed})
		}
		if i == len(q.Exchanges)-1 && len(results) > 0 { // what came so far is the same in the next request
			results[len(results)-1].Cache = ephemeral
		}
		if err := said("user", results); err != nil {
			return nil, err
		}
	}
	return json.Marshal(r)
}

// Ask sends the request and reads the whole answer.
func (m *Model) Ask(ctx context.Context, request []byte) (loop.Answer, error) {
	var params sdk.MessageNewParams
	param.SetJSON(request, &params)
	var a answer
	if err := loop.Pieces(m.messages.NewStreaming(ctx, params), a.take, trouble); err != nil {
		return loop.Answer{}, err
	}
	if !a.ended {
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
	return loop.StatusTrouble(failed.StatusCode, failed.Response.Header, strings.TrimSpace(string(failed.Type())+" "+failed.Message), time.Now())
}

// answer is an answer as far as it has come.
type answer struct {
	blocks []block
	inputs []string // of tool_use blocks
	stop   string
	usage  task.ModelUsage
	ended  bool
}

// take adds one event.
func (a *answer) take(e sdk.MessageStreamEventUnion) error {
	switch e.Type {
	case "message_start":
		u := e.Message.Usage
		a.usage.Cached = u.CacheReadInputTokens
		a.usage.Input = u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens
		a.usage.Output = u.OutputTokens
	case "content_block_start":
		if e.Index != int64(len(a.blocks)) {
			return fmt.Errorf("block %d begins where block %d should", e.Index, len(a.blocks))
		}
		if len(a.blocks) >= maxBlocks {
			return fmt.Errorf("more than %d blocks", maxBlocks)
		}
		b := e.ContentBlock
		next := block{Type: b.Type, Text: b.Text, ID: b.ID, Name: b.Name, Signature: b.Signature, Data: b.Data}
		if b.Type == "thinking" {
			next.Thinking = &b.Thinking
		}
		a.blocks, a.inputs = append(a.blocks, next), append(a.inputs, "")
	case "content_block_delta":
		if e.Index < 0 || e.Index >= int64(len(a.blocks)) {
			return fmt.Errorf("a piece of block %d, which has not begun", e.Index)
		}
		b := &a.blocks[e.Index]
		b.Text += e.Delta.Text
		b.Signature += e.Delta.Signature
		if b.Thinking != nil {
			*b.Thinking += e.Delta.Thinking
		}
		a.inputs[e.Index] += e.Delta.PartialJSON
	case "message_delta":
		a.stop = string(e.Delta.StopReason)
		if e.Usage.OutputTokens > 0 {
			a.usage.Output = e.Usage.OutputTokens
		}
	case "message_stop":
		a.ended = true
	}
	return nil
}

// whole is the answer when all of it is there.
func (a *answer) whole() (loop.Answer, error) {
	out := loop.Answer{Usage: a.usage, Reason: a.stop}
	kept := []block{}
	for i, b := range a.blocks {
		switch b.Type {
		case "text":
			out.Text += b.Text
			if b.Text == "" {
				continue // the vendor refuses an empty text
			}
		case "tool_use":
			in := a.inputs[i]
			if in == "" {
				in = "{}"
			}
			out.Calls = append(out.Calls, loop.Call{ID: b.ID, Name: b.Name, Input: in})
			// What is no JSON object can't be sent back; the call's result says so.
			if b.Input = json.RawMessage("{}"); isObject(in) {
				b.Input = json.RawMessage(in)
			}
		case "thinking", "redacted_thinking":
		default:
			return out, &loop.Trouble{Kind: loop.Faulty, Text: fmt.Sprintf("a block of an unknown kind %.40q", b.Type)}
		}
		kept = append(kept, b)
	}
	switch a.stop {
	case "tool_use", "end_turn", "stop_sequence":
		if out.Stop = loop.StopEnd; len(out.Calls) > 0 {
			out.Stop = loop.StopCalls
		}
	case "max_tokens", "model_context_window_exceeded":
		out.Stop = loop.StopLength
	case "refusal":
		out.Stop = loop.StopRefused
	default:
		return out, &loop.Trouble{Kind: loop.Faulty, Text: fmt.Sprintf("an answer that ended for %.40q", a.stop)}
	}
	var err error
	out.Message, err = json.Marshal(kept)
	return out, err
}

func isObject(s string) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal([]byte(s), &o) == nil && o != nil
}

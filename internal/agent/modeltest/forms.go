package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// turn is what a request says, whatever its form.
type turn struct {
	results int // of tools, in the whole conversation
	tools   map[string]object
	stream  bool
	model   string
}

// form is one vendor's way of putting things.
type form struct {
	read  func(object) turn
	write func(*writer, turn, Step)
	begin func(*writer) // the first events of a stream that will break
}

// formOf finds the form of a path.
func formOf(path string) (form, bool) {
	switch {
	case strings.HasSuffix(path, "/messages"):
		return form{readMessages, writeMessages, beginMessages}, true
	case strings.HasSuffix(path, "/responses"):
		return form{readResponses, writeResponses, beginResponses}, true
	case strings.HasSuffix(path, "/chat/completions"):
		return form{readChat, writeChat, beginChat}, true
	case strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, ":streamGenerateContent"):
		return form{readContents, writeContents, beginContents}, true
	}
	return form{}, false
}

// writer sends an answer, as events or as one document.
type writer struct {
	w      *counting
	stream bool
	begun  bool
	id     int
	seq    int
}

// event sends one server-sent event; name may be empty.
func (o *writer) event(name string, v object) {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/event-stream")
	}
	if name != "" {
		v["type"] = name
		fmt.Fprintf(o.w, "event: %s\n", name)
	}
	fmt.Fprintf(o.w, "data: %s\n\n", encode(v))
	o.w.flush()
}

// document sends the whole answer at once.
func (o *writer) document(v object) {
	o.w.Header().Set("Content-Type", "application/json")
	o.w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(o.w, encode(v))
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only strings, numbers and maps of them are sent
	}
	return string(b)
}

func text(v any) string { s, _ := v.(string); return s }

func objects(v any) []object {
	var out []object
	list, _ := v.([]any)
	for _, item := range list {
		if o, ok := item.(object); ok {
			out = append(out, o)
		}
	}
	return out
}

// shellTools are what harnesses call their tool for shell commands.
func shellTools() []string {
	return []string{"Bash", "exec_command", "bash", "run_shell_command", "shell"}
}

// call is the name and the input of the harness's shell tool.
func (t turn) call(command string) (string, object) {
	for _, name := range shellTools() {
		schema, ok := t.tools[name]
		if !ok {
			continue
		}
		properties, _ := schema["properties"].(object)
		input := object{}
		for _, field := range []string{"cmd", "command"} {
			if _, ok := properties[field]; ok {
				input[field] = command
				break
			}
		}
		if _, ok := properties["description"]; ok {
			input["description"] = "what the script says"
		}
		return name, input
	}
	return "no_such_tool", object{}
}

// made is a call as it is sent.
type made struct{ name, input string }

// calls are those of a step.
func (t turn) calls(s Step) []made {
	var out []made
	if s.Shell != "" {
		name, input := t.call(s.Shell)
		out = append(out, made{name, encode(input)})
	}
	for _, c := range s.Calls {
		out = append(out, made{c.Name, c.Input})
	}
	return out
}

func add(tools map[string]object, name string, schema any) {
	o, _ := schema.(object)
	tools[name] = o
}

// Anthropic's Messages.

func readMessages(q object) turn {
	t := turn{tools: map[string]object{}, model: text(q["model"])}
	t.stream, _ = q["stream"].(bool)
	for _, tool := range objects(q["tools"]) {
		add(t.tools, text(tool["name"]), tool["input_schema"])
	}
	for _, m := range objects(q["messages"]) {
		for _, part := range objects(m["content"]) {
			if part["type"] == "tool_result" {
				t.results++
			}
		}
	}
	return t
}

func messageUsage(out int) object {
	return object{"input_tokens": 100, "output_tokens": out, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 0}
}

func message(o *writer, model string) object {
	return object{
		"id": fmt.Sprintf("msg_%d", o.id), "type": "message", "role": "assistant", "model": model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": messageUsage(1),
	}
}

func beginMessages(o *writer) { o.event("message_start", object{"message": message(o, "scripted")}) }

func writeMessages(o *writer, t turn, s Step) {
	var blocks, empty, deltas []any
	stop := "end_turn"
	calls := t.calls(s)
	if s.Text != "" || len(calls) == 0 {
		blocks = append(blocks, object{"type": "text", "text": s.Text})
		empty = append(empty, object{"type": "text", "text": ""})
		deltas = append(deltas, object{"type": "text_delta", "text": s.Text})
	}
	for i, c := range calls {
		id := fmt.Sprintf("toolu_%d", o.id+i)
		stop = "tool_use"
		blocks = append(blocks, object{"type": "tool_use", "id": id, "name": c.name, "input": json.RawMessage(c.input)})
		empty = append(empty, object{"type": "tool_use", "id": id, "name": c.name, "input": object{}})
		deltas = append(deltas, object{"type": "input_json_delta", "partial_json": c.input})
	}
	if s.Stop != "" {
		stop = map[Stop]string{Length: "max_tokens", Refused: "refusal"}[s.Stop]
	}
	m := message(o, t.model)
	if !o.stream {
		m["content"], m["stop_reason"], m["usage"] = blocks, stop, messageUsage(20)
		o.document(m)
		return
	}
	o.event("message_start", object{"message": m})
	for i := range blocks {
		o.event("content_block_start", object{"index": i, "content_block": empty[i]})
		o.event("content_block_delta", object{"index": i, "delta": deltas[i]})
		o.event("content_block_stop", object{"index": i})
	}
	o.event("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 20}})
	o.event("message_stop", object{})
}

// OpenAI's Responses.

func readResponses(q object) turn {
	t := turn{tools: map[string]object{}, model: text(q["model"])}
	t.stream, _ = q["stream"].(bool)
	for _, tool := range objects(q["tools"]) {
		add(t.tools, text(tool["name"]), tool["parameters"])
	}
	for _, item := range objects(q["input"]) {
		if strings.HasSuffix(text(item["type"]), "_call_output") {
			t.results++
		}
	}
	return t
}

func (o *writer) numbered(name string, v object) {
	v["sequence_number"] = o.seq
	o.seq++
	o.event(name, v)
}

func beginResponses(o *writer) {
	o.numbered("response.created", object{"response": object{"id": "resp_x", "object": "response", "status": "in_progress", "output": []any{}}})
}

func writeResponses(o *writer, t turn, s Step) {
	id := fmt.Sprintf("item_%d", o.id)
	item := object{
		"type": "message", "id": id, "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": s.Text, "annotations": []any{}}},
	}
	if s.Shell != "" {
		name, input := t.call(s.Shell)
		item = object{"type": "function_call", "id": id, "call_id": "call_" + id, "name": name, "arguments": encode(input), "status": "completed"}
	}
	whole := object{
		"id": "resp_" + id, "object": "response", "model": t.model, "status": "completed", "output": []any{item},
		"usage": object{
			"input_tokens": 100, "output_tokens": 20, "total_tokens": 120,
			"input_tokens_details": object{"cached_tokens": 40}, "output_tokens_details": object{"reasoning_tokens": 0},
		},
	}
	if !o.stream {
		o.document(whole)
		return
	}
	o.numbered("response.created", object{"response": object{"id": "resp_" + id, "object": "response", "model": t.model, "status": "in_progress", "output": []any{}}})
	o.numbered("response.output_item.added", object{"output_index": 0, "item": item})
	if s.Shell == "" {
		o.numbered("response.output_text.delta", object{"output_index": 0, "content_index": 0, "item_id": id, "delta": s.Text})
	}
	o.numbered("response.output_item.done", object{"output_index": 0, "item": item})
	o.numbered("response.completed", object{"response": whole})
}

// OpenAI's chat completions.

func readChat(q object) turn {
	t := turn{tools: map[string]object{}, model: text(q["model"])}
	t.stream, _ = q["stream"].(bool)
	for _, tool := range objects(q["tools"]) {
		f, _ := tool["function"].(object)
		add(t.tools, text(f["name"]), f["parameters"])
	}
	for _, m := range objects(q["messages"]) {
		if m["role"] == "tool" {
			t.results++
		}
	}
	return t
}

func chunk(o *writer, model string) object {
	return object{"id": fmt.Sprintf("chat_%d", o.id), "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model}
}

func beginChat(o *writer) {
	c := chunk(o, "scripted")
	c["choices"] = []any{object{"index": 0, "delta": object{"role": "assistant", "content": "a"}, "finish_reason": nil}}
	o.event("", c)
}

func writeChat(o *writer, t turn, s Step) {
	said, stop := object{"role": "assistant", "content": s.Text}, "stop"
	var calls []any
	for i, c := range t.calls(s) {
		calls = append(calls, object{"index": i, "id": fmt.Sprintf("call_%d", o.id+i), "type": "function", "function": object{"name": c.name, "arguments": c.input}})
	}
	if calls != nil {
		said["tool_calls"], stop = calls, "tool_calls"
	}
	if s.Stop != "" {
		stop = map[Stop]string{Length: "length", Refused: "content_filter"}[s.Stop]
	}
	usage := object{"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, "prompt_tokens_details": object{"cached_tokens": 40}}
	c := chunk(o, t.model)
	if !o.stream {
		c["object"], c["usage"] = "chat.completion", usage
		c["choices"] = []any{object{"index": 0, "message": said, "finish_reason": stop}}
		o.document(c)
		return
	}
	c["choices"] = []any{object{"index": 0, "delta": said, "finish_reason": nil}}
	o.event("", c)
	c["choices"], c["usage"] = []any{object{"index": 0, "delta": object{}, "finish_reason": stop}}, usage
	o.event("", c)
	_, _ = io.WriteString(o.w, "data: [DONE]\n\n")
}

// Google's generateContent.

func readContents(q object) turn {
	t := turn{tools: map[string]object{}}
	for _, tool := range objects(q["tools"]) {
		for _, f := range objects(tool["functionDeclarations"]) {
			schema := f["parametersJsonSchema"]
			if schema == nil {
				schema = f["parameters"]
			}
			add(t.tools, text(f["name"]), schema)
		}
	}
	for _, m := range objects(q["contents"]) {
		for _, part := range objects(m["parts"]) {
			if part["functionResponse"] != nil {
				t.results++
			}
		}
	}
	return t
}

func beginContents(o *writer) {
	o.event("", object{"candidates": []any{object{"index": 0, "content": object{"role": "model", "parts": []any{object{"text": "a"}}}}}})
}

func writeContents(o *writer, t turn, s Step) {
	part := object{"text": s.Text}
	if s.Shell != "" {
		name, input := t.call(s.Shell)
		part = object{"functionCall": object{"name": name, "args": input}}
	}
	v := object{
		"candidates":    []any{object{"index": 0, "content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP"}},
		"usageMetadata": object{"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120, "cachedContentTokenCount": 40},
	}
	if o.stream {
		o.event("", v)
		return
	}
	o.document(v)
}

// HasTool says whether one of the requests so far offered the tool: for tests
// that look at what a harness may do.
func (s *Server) HasTool(name string) bool {
	return slices.ContainsFunc(s.Seen(), func(q Seen) bool { return strings.Contains(string(q.Body), `"`+name+`"`) })
}

package meter

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cofferdam/cofferdam/internal/task"
)

// shape is an answer as a vendor's API gives it, shortened, and what it says.
type shape struct {
	kind    Kind
	path    string
	content string // type
	body    string
	want    task.ModelTokens
}

func shapes() map[string]shape {
	const stream, document = "text/event-stream; charset=utf-8", "application/json"
	return map[string]shape{
		"anthropic": {Messages, "/v1/messages", document,
			`{"model":"claude-sonnet-4-5-20250929","id":"msg_01","type":"message","role":"assistant","content":[{"type":"text","text":"Hi \"model\":\"x\" {\"usage\":{\"output_tokens\":9}}"}],"stop_reason":"end_turn","usage":{"input_tokens":2095,"cache_creation_input_tokens":2051,"cache_read_input_tokens":2050,"cache_creation":{"ephemeral_5m_input_tokens":2051,"ephemeral_1h_input_tokens":0},"output_tokens":503,"service_tier":"standard"}}`,
			task.ModelTokens{Model: "claude-sonnet-4-5-20250929", Input: 2095, Output: 503, CacheRead: 2050, CacheWrite: 2051}},
		"anthropic, streamed": {Messages, "/v1/messages", stream,
			"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-opus-4-1-20250805\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":10,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n" +
				"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n" +
				"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"usage: {\\\"output_tokens\\\": 99999}\"}}\n\n" +
				"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
			task.ModelTokens{Model: "claude-opus-4-1-20250805", Input: 25, Output: 15, CacheRead: 5, CacheWrite: 10}},
		"openai chat": {Chat, "/v1/chat/completions", document,
			`{"id":"chatcmpl-1","object":"chat.completion","created":1741569952,"model":"gpt-4.1-2025-04-14","choices":[{"index":0,"message":{"role":"assistant","content":"Hello!"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1900,"completion_tokens":10,"total_tokens":1910,"prompt_tokens_details":{"cached_tokens":1024,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":4}},"service_tier":"default"}`,
			task.ModelTokens{Model: "gpt-4.1-2025-04-14", Input: 876, Output: 10, CacheRead: 1024}},
		"openai chat, streamed": {Chat, "/v1/chat/completions", stream,
			"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-4o-mini\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}],\"usage\":null}\n\n" +
				"data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-4o-mini\",\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":7,\"total_tokens\":26}}\n\ndata: [DONE]\n\n",
			task.ModelTokens{Model: "gpt-4o-mini", Input: 19, Output: 7}},
		"openai embeddings": {Chat, "/v1/embeddings", document,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2e-3]}],"model":"text-embedding-3-small","usage":{"prompt_tokens":8,"total_tokens":8}}`,
			task.ModelTokens{Model: "text-embedding-3-small", Input: 8}},
		"openai responses": {Responses, "/v1/responses", document,
			`{"id":"resp_1","object":"response","status":"completed","model":"gpt-5-2025-08-07","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}],"reasoning":{"effort":"low"},"usage":{"input_tokens":328,"input_tokens_details":{"cached_tokens":28},"output_tokens":52,"output_tokens_details":{"reasoning_tokens":8},"total_tokens":380}}`,
			task.ModelTokens{Model: "gpt-5-2025-08-07", Input: 300, Output: 52, CacheRead: 28}},
		"openai responses, streamed": {Responses, "/v1/responses", stream,
			"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"model\":\"gpt-5-codex\",\"usage\":null}}\n\nevent: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"In\"}\n\n" +
				"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"model\":\"gpt-5-codex\",\"output\":[{\"id\":\"m\"}],\"usage\":{\"input_tokens\":37,\"output_tokens\":11,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":48}}}\n\n",
			task.ModelTokens{Model: "gpt-5-codex", Input: 37, Output: 11}},
		"gemini": {Generate, "/v1beta/models/gemini-2.5-flash:generateContent", document,
			`{"candidates":[{"content":{"parts":[{"text":"AI"}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":26,"totalTokenCount":1141,"cachedContentTokenCount":60,"thoughtsTokenCount":1011,"toolUsePromptTokenCount":4,"promptTokensDetails":[{"modality":"TEXT","tokenCount":8}]},"modelVersion":"gemini-2.5-flash"}`,
			task.ModelTokens{Model: "gemini-2.5-flash", Input: 44, Output: 1037, CacheRead: 60}},
		"gemini, streamed events": {Generate, "/v1beta/models/gemini-2.5-pro:streamGenerateContent", stream,
			"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"a\"}]}}],\"usageMetadata\": {\"promptTokenCount\": 10,\"totalTokenCount\": 10},\"modelVersion\": \"gemini-2.5-pro\"}\r\n\r\n" +
				"data: {\"candidates\": [{\"finishReason\": \"STOP\"}],\"usageMetadata\": {\"promptTokenCount\": 10,\"candidatesTokenCount\": 12,\"totalTokenCount\": 22}}\r\n\r\n",
			task.ModelTokens{Model: "gemini-2.5-pro", Input: 10, Output: 12}},
		"gemini, streamed array": {Generate, "/v1beta/models/gemini-2.0-flash-001:streamGenerateContent", document,
			"[{\n  \"candidates\": [{\"content\": {}}],\n  \"usageMetadata\": {\"promptTokenCount\": 6, \"candidatesTokenCount\": 1, \"totalTokenCount\": 7}\n}\n,\r\n{\n  \"usageMetadata\": {\"promptTokenCount\": 6, \"candidatesTokenCount\": 30, \"totalTokenCount\": 36}\n}\n]",
			task.ModelTokens{Model: "gemini-2.0-flash-001", Input: 6, Output: 30}},
	}
}

// pass has a request and its answer pass a meter.
func pass(t testing.TB, s shape, request string, wrap func(io.Reader) io.Reader) *Meter {
	t.Helper()
	m := New(s.kind, s.path)
	res := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {s.content}}, Body: io.NopCloser(wrap(strings.NewReader(s.body)))}
	if _, err := io.Copy(io.Discard, m.Question(io.NopCloser(strings.NewReader(request)))); err != nil {
		t.Fatal(err)
	}
	m.Answer(res)
	got, err := io.ReadAll(res.Body)
	if err != nil || string(got) != s.body {
		t.Fatalf("the answer was altered: %v", err)
	}
	return m
}

func whole(r io.Reader) io.Reader { return r }

// Whatever pieces an answer comes in, the same is counted.
func TestShapes(t *testing.T) {
	for name, s := range shapes() {
		t.Run(name, func(t *testing.T) {
			if got := KindOf(http.MethodPost, s.path, nil); got != s.kind {
				t.Errorf("%s is of kind %d, want %d", s.path, got, s.kind)
			}
			for how, wrap := range map[string]func(io.Reader) io.Reader{"whole": whole, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "with the end": iotest.DataErrReader} {
				if got := pass(t, s, "{}", wrap).Tokens(200, 2, int64(len(s.body))); got == nil || *got != s.want {
					t.Errorf("%s: %+v, want %+v", how, got, s.want)
				}
			}
		})
	}
}

// An answer that is broken off, or tells nothing, is estimated, not less than
// what it said so far.
func TestEstimates(t *testing.T) {
	request := `{"messages":[{"role":"user","content":"{\"model\":\"no\"}"}],"model":"claude-x","stream":true}`
	sent := int64(len(request))
	all := shapes()
	cut := all["anthropic, streamed"]
	cut.body = cut.body[:strings.Index(cut.body, "event: message_delta")]
	silent := all["openai chat, streamed"]
	silent.body = strings.ReplaceAll(silent.body, "usage", "other")
	for name, c := range map[string]struct {
		shape
		want task.ModelTokens
	}{
		"broken off": {cut, task.ModelTokens{Model: "claude-opus-4-1-20250805", Input: 25, CacheRead: 5, CacheWrite: 10, Output: tokensOf(int64(len(cut.body))), Estimated: true}},
		"no usage":   {silent, task.ModelTokens{Model: "gpt-4o-mini", Input: tokensOf(sent), Output: tokensOf(int64(len(silent.body))), Estimated: true}},
		"no JSON":    {shape{kind: Messages, content: "text/html", body: "<html>\"usage\"</html>"}, task.ModelTokens{Model: "claude-x", Input: tokensOf(sent), Output: 5, Estimated: true}},
		"negative":   {shape{kind: Messages, content: "application/json", body: `{"usage":{"input_tokens":-5,"output_tokens":1e3}}`}, task.ModelTokens{Model: "claude-x", Input: tokensOf(sent), Output: 13, Estimated: true}},
		"huge":       {shape{kind: Messages, content: "application/json", body: `{"usage":{"input_tokens":99999999999999,"output_tokens":123456789012345678901234}}`}, task.ModelTokens{Model: "claude-x", Input: tokensOf(sent), Output: 21, Estimated: true}},
		"nothing":    {shape{kind: Chat, content: "application/json"}, task.ModelTokens{Model: "claude-x", Input: tokensOf(sent), Estimated: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := pass(t, c.shape, request, whole).Tokens(200, sent, int64(len(c.body))); got == nil || *got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
	t.Run("compressed", func(t *testing.T) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		fmt.Fprint(z, all["anthropic"].body)
		z.Close()
		m := New(Messages, "")
		res := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, Body: io.NopCloser(&b)}
		m.Answer(res)
		n, _ := io.Copy(io.Discard, res.Body)
		if got := m.Tokens(200, 400, n); got == nil || !got.Estimated || got.Input != 100 || got.Output != tokensOf(n) {
			t.Errorf("%+v", got)
		}
	})
}

func TestNotCharged(t *testing.T) {
	for status, want := range map[int]bool{200: true, 201: true, 101: false, 302: false, 400: false, 429: false, 529: false} {
		if got := New(Messages, "").Tokens(status, 10, 10) != nil; got != want {
			t.Errorf("status %d: charged %v", status, got)
		}
	}
	if New(Messages, "").Tokens(0, 0, 0) != nil {
		t.Error("what never went out was charged")
	}
	if got := New(Messages, "").Tokens(0, 400, 0); got == nil || got.Input != 100 || !got.Estimated {
		t.Errorf("what went out and was not waited for: %+v", got)
	}
	var none *Meter
	none.Answer(&http.Response{})
	if none.Tokens(200, 1, 1) != nil || none.Question(nil) != nil {
		t.Error("a request that is not counted was")
	}
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         Kind
	}{
		{"POST", "/v1/messages", Messages},
		{"POST", "/v1/messages/", Messages},
		{"POST", "/gateway/anthropic/v1/messages", Messages},
		{"POST", "/v1/messages/count_tokens", Free},
		{"POST", "/v1/messages/batches", Uncounted},
		{"POST", "/v1/mess%61ges", Uncounted},
		{"GET", "/v1/models", Free},
		{"POST", "/v1/chat/completions", Chat},
		{"POST", "/v1/completions", Chat},
		{"POST", "/v1/embeddings", Chat},
		{"POST", "/backend-api/codex/responses", Responses},
		{"GET", "/v1/responses/r1", Free},
		{"POST", "/v1/images/generations", Uncounted},
		{"POST", "/v1beta/models/g:generateContent", Generate},
		{"POST", "/v1beta/models/g:countTokens", Free},
		{"POST", "/v1beta/models/g:batchGenerateContent", Uncounted},
		{"POST", "/", Uncounted},
		{"POST", "", Uncounted},
		{"PUT", "/v1/files/x", Uncounted},
	} {
		if got := KindOf(c.method, c.path, http.Header{}); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, got, c.want)
		}
	}
	if KindOf(http.MethodGet, "/v1/realtime", http.Header{"Upgrade": {"websocket"}}) != Uncounted {
		t.Error("WebSocket is taken for free")
	}
}

// Names are bounded and quote nothing.
func TestNames(t *testing.T) {
	for in, want := range map[string]string{
		"models/gemini-x": "gemini-x", "a b": "a", "a\x1b[2J": "a", "": "", "é": "", strings.Repeat("m", 500): strings.Repeat("m", longestName),
		`a"b`: "a",
	} {
		if got := clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// What is read holds its memory whatever comes.
func TestBounded(t *testing.T) {
	m := New(Chat, "")
	m.Answer(&http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("x"))})
	for _, piece := range []string{strings.Repeat("[", 1<<16), strings.Repeat(`{"a":`, 1<<14), `"` + strings.Repeat("k", 1<<16)} {
		m.answer.again()
		m.heard([]byte(piece), nil)
		if n := cap(m.answer.buf) + cap(m.answer.stack) + 16*cap(m.answer.keys); n > 16<<10 {
			t.Errorf("%d bytes are held for %.10q…", n, piece)
		}
	}
}

// FuzzMeter feeds hostile bytes as an answer: the same is counted however it is
// cut, and no number is out of range.
func FuzzMeter(f *testing.F) {
	for _, s := range shapes() {
		f.Add(uint8(s.kind), s.content == "text/event-stream; charset=utf-8", []byte(s.body), 7)
	}
	f.Add(uint8(Messages), true, []byte("data:\ndata:{\"usage\":\ndata:{\"output_tokens\":3}}\n\n"), 1)
	f.Fuzz(func(t *testing.T, kind uint8, stream bool, body []byte, cut int) {
		count := func(cut int) *task.ModelTokens {
			m := New(Kind(kind%uint8(Uncounted)), "/models/g:generateContent")
			if m == nil {
				return nil
			}
			m.readable, m.stream = true, stream
			for rest := body; len(rest) > 0; {
				n := min(len(rest), cut)
				m.heard(rest[:n], nil)
				rest = rest[n:]
			}
			m.heard(nil, io.EOF)
			return m.Tokens(200, 10, int64(len(body)))
		}
		a, b := count(max(len(body), 1)), count(1+(cut&0x3f))
		if (a == nil) != (b == nil) || a != nil && *a != *b {
			t.Fatalf("%+v in one piece, %+v in many", a, b)
		}
		if a != nil && (min(a.Input, a.Output, a.CacheRead, a.CacheWrite) < 0 || a.Sum() > 1e13 || len(a.Model) > longestName) {
			t.Fatalf("out of range: %+v", a)
		}
	})
}

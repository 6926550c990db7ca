package anthropic

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/agent/loop"
)

// A server may send pieces of blocks in any order, and as many as it likes.
func TestStreamsOfAnyOrder(t *testing.T) {
	begin := func(i int, kind string) string {
		return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":%q,"id":"c%d","name":"shell"}}`, i, kind, i)
	}
	input := func(i int, text string) string {
		return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%q}}`, i, text)
	}
	end := []string{`{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`, `{"type":"message_stop"}`}
	var many []string
	for i := range maxBlocks + 1 {
		many = append(many, begin(i, "text"))
	}
	for name, c := range map[string]struct {
		events []string
		inputs string
		fails  string
	}{
		"mixed":       {append([]string{begin(0, "tool_use"), input(0, `{"a`), begin(1, "tool_use"), input(1, `{"b"`), begin(2, "tool_use"), input(0, `":1}`), input(1, `:2}`)}, end...), `{"a":1} {"b":2} {}`, ""},
		"not begun":   {append([]string{input(0, "x")}, end...), "", "has not begun"},
		"negative":    {append([]string{begin(0, "text"), input(-1, "x")}, end...), "", "has not begun"},
		"with a hole": {append([]string{begin(1, "text")}, end...), "", "begins where"},
		"too many":    {append(many, end...), "", "more than"},
		"no end":      {[]string{begin(0, "text")}, "", "ended before"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for _, e := range c.events {
					kind, _, _ := strings.Cut(strings.TrimPrefix(e, `{"type":"`), `"`)
					_, _ = io.WriteString(w, "event: "+kind+"\ndata: "+e+"\n\n")
				}
			}))
			defer server.Close()
			m := New(loop.Endpoint{URL: server.URL, Model: "m", Client: server.Client()})
			request, err := m.Request(loop.Question{Prompt: "p"})
			if err != nil {
				t.Fatal(err)
			}
			a, err := m.Ask(context.Background(), request)
			var inputs []string
			for _, call := range a.Calls {
				inputs = append(inputs, call.Input)
			}
			if c.fails == "" && (err != nil || strings.Join(inputs, " ") != c.inputs) {
				t.Errorf("%q, %v", inputs, err)
			}
			if c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%v, want %q", err, c.fails)
			}
		})
	}
}

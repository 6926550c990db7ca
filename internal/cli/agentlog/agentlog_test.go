package agentlog

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
)

func TestPrint(t *testing.T) {
	for name, c := range map[string]struct {
		event api.AgentEvent
		want  string
	}{
		"text":   {api.AgentEvent{Type: "text", Text: "I look.\nThen I mend."}, "I look.\nThen I mend.\n"},
		"call":   {api.AgentEvent{Type: "call", Tool: "shell", Input: `{"command":"ls"}`, Cut: true}, "> shell {\"command\":\"ls\"} …\n"},
		"result": {api.AgentEvent{Type: "result", Text: "a\nb\n"}, "  a\n  b\n"},
		"failed": {api.AgentEvent{Type: "result", Text: "no", Failed: true, Cut: true}, "! no\n! …\n"},
		"long":   {api.AgentEvent{Type: "result", Text: strings.Repeat("x\n", maxLines+3)}, strings.Repeat("  x\n", maxLines) + "  … 3 more lines\n"},
		"denied": {api.AgentEvent{Type: "permission", Tool: "sh\x1b[2J", Text: "a person denied it", Failed: true}, "+ sh\\x1b[2J: a person denied it\n"},
		"asked":  {api.AgentEvent{Type: "permission", Text: "asked"}, "+ asked\n"},
		"usage":  {api.AgentEvent{Type: "usage", Usage: &api.ModelUsage{Input: 5, Cached: 2, Output: 3}}, "- 5 tokens in (2 cached), 3 out\n"},
		"end":    {api.AgentEvent{Type: "end", Failed: true, Text: "agent.failed"}, "= failed: agent.failed\n"},
		"new":    {api.AgentEvent{Type: "later", Text: "x"}, "? later x\n"},
	} {
		var out bytes.Buffer
		if err := Print(&out, c.event); err != nil || out.String() != c.want {
			t.Errorf("%s: %q, %v; want %q", name, out.String(), err, c.want)
		}
	}
}

// No event can move the cursor, set the clipboard or turn the text around.
func TestPrintEscapes(t *testing.T) {
	evil := "\x1b[2J\x1b]52;c;eA==\a\r\u202Eabc\u200B\x00"
	for _, kind := range []string{"text", "call", "result", "end", "\x1b[2J"} {
		var out bytes.Buffer
		if err := Print(&out, api.AgentEvent{Type: kind, Text: evil, Tool: evil, Input: evil}); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(out.String(), "\x1b\a\r\u202E\u200B\x00") {
			t.Errorf("%q is printed as %q", kind, out.String())
		}
	}
}

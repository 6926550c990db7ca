package approvals

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// What a sandbox says of itself moves no terminal, hides nothing and is shown
// whole, whichever way it is asked.
func TestHostileQuestions(t *testing.T) {
	long := strings.Repeat("x", 100<<10) + "THE-END"
	hostile := "a\x1b[2Jb\rc\x1b]52;c;eA==\ad\x1b]8;;http://x\x1b\\e\u202ef\u200bg\x00h\u009b31m\nrm -rf /" + long
	for _, a := range []api.Approval{
		{ID: "ap-1", Kind: "egress", State: "waiting", Stage: "agent", Egress: &api.EgressAsk{Name: hostile, Port: 443, Protocol: "tls", Method: hostile, Path: hostile}},
		{ID: "ap-2", Kind: "tool", State: "waiting", Tool: &api.ToolAsk{Agent: "x", Tool: hostile, Kind: hostile, Dir: hostile, Before: hostile, Argv: []string{"sh", "-c", hostile}, Input: json.RawMessage(`"` + long + `"`)}},
		{ID: "ap-3", Kind: "action", State: "allowed", Action: json.RawMessage(hostile), DecidedBy: "alice", Scope: "once"},
	} {
		a.ExpiresAt = time.Now().Add(time.Minute)
		a.Commands = []api.RunningCommand{{ID: "agent", Processes: []string{hostile}}}
		var out bytes.Buffer
		if err := Print(&out, a); err != nil {
			t.Fatal(err)
		}
		if err := Table(&out, []api.Approval{a}); err != nil {
			t.Fatal(err)
		}
		out.WriteString(show.Line(News(a)))
		for _, r := range out.String() {
			if r != '\n' && !show.Plain(r) {
				t.Fatalf("%s shows %q", a.ID, r)
			}
		}
		if strings.Count(out.String(), "THE-END") < 4 || !strings.Contains(out.String(), `\u202e`) || !strings.Contains(out.String(), "1b[2J") {
			t.Errorf("%s is not whole: %d", a.ID, strings.Count(out.String(), "THE-END"))
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "rm -rf") {
				t.Errorf("%s: a line of its own: %.80q", a.ID, line)
			}
		}
	}
}

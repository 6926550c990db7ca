package steps

import (
	"context"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/mask"
)

// masks knows one value once it was asked to learn.
type masks struct {
	value  string
	learnt int
}

func (m *masks) Learn(context.Context, string) error { m.learnt++; return nil }

func (m *masks) Masker(string) *mask.Masker {
	if m.learnt == 0 {
		return nil
	}
	return mask.New(task.NewSecret(m.value))
}

// A command that prints what its task was lent: neither its log, live or stored,
// nor what is told of the stage has it.
func TestLogHasNoValue(t *testing.T) {
	const value = "sk-real-value-0123"
	h := start(t, task.Spec{Agent: shell("printf 'is " + value[:5] + "'; printf '" + value[5:] + " of it'; exit 3")})
	h.work.Masks = &masks{value: value}
	o := h.through(task.Agent, 1)
	if o.Reason != task.AgentFailed || strings.Contains(o.Text, value) {
		t.Errorf("%+v", o)
	}
	if got, want := h.bytes("log.agent"), "is "+strings.Repeat("*", len(value))+" of it"; got != want {
		t.Errorf("log %q", got)
	}
}

// A patch or a kept file that has the value is refused: with a part masked it
// would be another one.
func TestOutputWithAValueIsRefused(t *testing.T) {
	const value = "sk-real-value-0123"
	for what, spec := range map[string]task.Spec{
		"the patch":      {Agent: shell("echo key=" + value + " > answer")},
		"a file to keep": {Agent: shell("mkdir out; echo " + value + " > out/report"), Files: []string{"out/**"}},
	} {
		h := start(t, spec)
		h.work.Masks = &masks{value: value}
		if o := h.through(task.Export, 1); o.Reason != task.PolicyCredential || strings.Contains(o.Text, value) || !strings.HasPrefix(o.Text, what+" has") {
			t.Errorf("%s: %+v", what, o)
		}
		for digest, b := range h.blobs {
			if strings.Contains(string(b), value) {
				t.Errorf("%s: %s has the value", what, digest)
			}
		}
	}
}

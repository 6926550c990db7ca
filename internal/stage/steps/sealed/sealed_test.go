package sealed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/mask"
)

const value = "sk-real-value"

func masker() *mask.Masker { return mask.New(task.NewSecret(value)) }

// fds keeps what each output of a command says.
type fds struct{ said map[int]string }

func (f *fds) Write(b []byte) (int, error) { return f.WriteFd(1, b) }

func (f *fds) WriteFd(fd int, b []byte) (int, error) {
	f.said[fd] += string(b)
	return len(b), nil
}

func TestOutputsStayApart(t *testing.T) {
	to := &fds{said: map[int]string{}}
	o := NewOutput(to, masker)
	for i, c := range value {
		_, _ = o.WriteFd(1, []byte(string(c)))
		_, _ = o.WriteFd(2, []byte(fmt.Sprintf("%d ", i)))
	}
	_, _ = o.WriteFd(2, []byte("sk-re"))
	if err := o.End(nil); err != nil {
		t.Fatal(err)
	}
	if to.said[1] != strings.Repeat("*", len(value)) || to.said[2] != "0 1 2 3 4 5 6 7 8 9 10 11 12 sk-re" {
		t.Errorf("%q, %q", to.said[1], to.said[2])
	}
}

// A log that broke off anywhere goes on where it ends, as a repeated run does,
// and comes to the same bytes.
func TestLogGoesOnWhereItEnds(t *testing.T) {
	said := "a " + value + " b sk-real-" + value + " sk-"
	want := "a " + strings.Repeat("*", len(value)) + " b sk-real-" + strings.Repeat("*", len(value)) + " sk-"
	for cut := range said {
		var log bytes.Buffer
		first := NewOutput(&log, masker)
		_, _ = io.WriteString(first, said[:cut])
		if err := first.End(errors.New("left")); err == nil {
			t.Error("the error is lost")
		}
		again := NewOutput(&log, masker)
		_, _ = io.WriteString(again, said[log.Len():])
		if err := again.End(nil); err != nil || log.String() != want {
			t.Errorf("broke off at %d: %q, %v", cut, log.String(), err)
		}
	}
}

func TestEvent(t *testing.T) {
	e := Event(masker(), task.AgentEvent{Type: "call", Text: "a " + value, Call: value, Tool: value, Input: `{"key":"` + value + `"}`})
	if s := fmt.Sprintf("%+v", e); strings.Contains(s, value) || e.Input != `{"key":"[sealed]"}` || e.Type != "call" {
		t.Error(s)
	}
}

func TestClean(t *testing.T) {
	found := errors.New("found")
	for text, want := range map[string]error{"": nil, "+a sk-real-": nil, "+key = " + value + "\n": found, "+c2stcmVhbC12YWx1ZQ==": found} {
		b, err := io.ReadAll(Clean(strings.NewReader(text), masker(), found))
		if !errors.Is(err, want) || want == nil && string(b) != text || strings.Contains(string(b), value) {
			t.Errorf("%q: %q, %v", text, b, err)
		}
		if b, err := io.ReadAll(Clean(strings.NewReader(text), nil, found)); string(b) != text || err != nil {
			t.Errorf("%q of nobody: %q, %v", text, b, err)
		}
	}
}

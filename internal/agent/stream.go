package agent

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The limits of a stream.
const (
	MaxLine   = 1 << 20  // bytes of one line that are read as JSON
	maxText   = 16 << 10 // bytes of a text or an input in an event
	maxResult = 4 << 10  // bytes of a result in an event
	maxName   = 256      // bytes of a tool's name or of a call's id
	maxEvents = 5_000    // of one command; usage and end come beyond
	maxTail   = 4 << 10  // bytes of standard error that are kept for the end
)

// Dialect reads the lines of one harness.
type Dialect interface {
	// Line takes one JSON object of standard output. It returns false for one that
	// can't be read, which is then kept as text.
	Line(line []byte, emit func(task.AgentEvent)) bool
	// Hopeless says why the harness should be ended although it goes on; nil: it
	// should not.
	Hopeless() *task.Failure
	// End says what came of it. exit is -1 when it did not exit by itself; notes is
	// the end of what it wrote besides its stream.
	End(exit int, notes string) stage.HarnessEnd
}

// Reader turns a harness's output into events. It implements
// stage.HarnessReader.
type Reader struct {
	dialect Dialect
	emit    func(task.AgentEvent)
	line    [3][]byte // by descriptor: what has no newline yet
	long    [3]bool   // the line at hand is too long; its rest is left out
	notes   []byte
	events  int
	usage   task.ModelUsage
}

// NewReader reads with a dialect.
func NewReader(d Dialect, emit func(task.AgentEvent)) *Reader { return &Reader{dialect: d, emit: emit} }

// Output implements stage.HarnessReader.
func (r *Reader) Output(fd int, b []byte) {
	if fd != 2 {
		fd = 1
	}
	for len(b) > 0 {
		piece, rest, whole := bytes.Cut(b, []byte{'\n'})
		b = rest
		room := MaxLine - len(r.line[fd])
		if len(piece) > room {
			piece, r.long[fd] = piece[:room], true
		}
		r.line[fd] = append(r.line[fd], piece...)
		if whole {
			r.flush(fd)
		}
	}
}

// flush reads the line at hand.
func (r *Reader) flush(fd int) {
	line, long := bytes.TrimSpace(r.line[fd]), r.long[fd]
	r.line[fd], r.long[fd] = r.line[fd][:0], false
	if len(line) == 0 {
		return
	}
	if fd == 1 && !long && line[0] == '{' && r.dialect.Line(line, r.put) {
		return
	}
	r.note(line)
	r.put(task.AgentEvent{Type: "text", Text: string(line), Cut: long})
}

// note keeps the end of what is no part of the stream.
func (r *Reader) note(line []byte) {
	r.notes = append(append(r.notes, line...), '\n')
	if over := len(r.notes) - maxTail; over > 0 {
		r.notes = append(r.notes[:0], r.notes[over:]...)
	}
}

// put limits an event and passes it on.
func (r *Reader) put(e task.AgentEvent) {
	if e.Type == "usage" && e.Usage != nil {
		r.usage.Requests += e.Usage.Requests
		r.usage.Input += e.Usage.Input
		r.usage.Output += e.Usage.Output
		r.usage.Cached += e.Usage.Cached
	}
	if r.events++; r.events > maxEvents && e.Type != "usage" {
		if r.events == maxEvents+1 {
			r.emit(task.AgentEvent{Type: "text", Text: "further events are left out; the log has them", Cut: true})
		}
		return
	}
	limit := maxText
	if e.Type == "result" {
		limit = maxResult
	}
	cut := false
	for _, f := range []struct {
		s *string
		n int
	}{{&e.Text, limit}, {&e.Input, maxText}, {&e.Call, maxName}, {&e.Tool, maxName}} {
		var shorter bool
		*f.s, shorter = Clip(*f.s, f.n)
		cut = cut || shorter
	}
	e.Cut = e.Cut || cut
	r.emit(e)
}

// Hopeless implements stage.HarnessReader.
func (r *Reader) Hopeless() *task.Failure { return r.dialect.Hopeless() }

// End implements stage.HarnessReader.
func (r *Reader) End(exit int) stage.HarnessEnd {
	r.flush(1)
	r.flush(2)
	end := r.dialect.End(exit, strings.ToValidUTF8(string(r.notes), "\uFFFD"))
	e := task.AgentEvent{Type: "end", Failed: end.Failure != nil}
	if end.Failure != nil {
		e.Text, _ = Clip(end.Failure.Text, maxText)
	}
	if r.usage != (task.ModelUsage{}) {
		u := r.usage
		e.Usage = &u
	}
	r.emit(e)
	if len(end.Session) > maxName || !plain(end.Session) {
		end.Session = ""
	}
	return end
}

// plain says whether a session's name can stand in a command line.
func plain(s string) bool {
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
		if !letter && (i == 0 || c != '-' && c != '.') {
			return false
		}
	}
	return true
}

// Clip makes s valid UTF-8 of at most n bytes and says whether it was longer.
func Clip(s string, n int) (string, bool) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s, false
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n], true
}

// Number is a count out of hostile JSON: whatever stands there becomes a number
// from 0 to 10^12, and nothing fails to be read for its sake.
type Number int64

// maxNumber bounds a Number, so that sums of many stay numbers.
const maxNumber = 1_000_000_000_000

// UnmarshalJSON reads any JSON value.
func (n *Number) UnmarshalJSON(b []byte) error {
	*n = 0
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil && !math.IsInf(f, 1) || math.IsNaN(f) || f < 0 {
		return nil //nolint:nilerr // what is no number counts nothing
	}
	*n = Number(min(f, maxNumber))
	return nil
}

// Text is a string out of hostile JSON: another value becomes its own JSON.
type Text string

// UnmarshalJSON reads any JSON value.
func (t *Text) UnmarshalJSON(b []byte) error {
	var s string
	switch {
	case json.Unmarshal(b, &s) == nil:
		*t = Text(s)
	case string(b) == "null":
		*t = ""
	default:
		*t = Text(b)
	}
	return nil
}

// JSON is a JSON value as it stands, for an event's Input.
func JSON(raw json.RawMessage) string { return string(raw) }

package meter

import (
	"io"
	"mime"
	"net/http"
	"sync"

	"github.com/cofferdam/cofferdam/internal/task"
)

// bytesAToken is how many bytes an estimate takes a token for. Of text it is
// about that, and of streams, whose frames are most of the bytes, far less.
const bytesAToken = 4

// Meter counts one request. It is safe for concurrent use.
type Meter struct {
	kind Kind

	mu       sync.Mutex
	asked    scan   // of the request
	wanted   string // the model that the request asks
	answer   scan
	lines    lines
	stream   bool
	readable bool              // the answer may tell what it used
	whole    bool              // the answer came to its end
	fields   map[string]string // of what the kind says, by where it stands
	said     map[string]int64
	model    string // that answered
}

// New returns the meter of a request; nil for a kind that is not counted. The
// methods of nil do nothing.
func New(kind Kind, path string) *Meter {
	if !kind.Counted() {
		return nil
	}
	m := &Meter{kind: kind, fields: fields(kind), said: map[string]int64{}}
	if kind == Generate {
		m.wanted = pathModel(path)
	}
	m.asked.found = func(path string, text []byte) {
		if path == "model" && m.wanted == "" {
			m.wanted = clean(string(text))
		}
	}
	m.answer.found = m.found
	m.lines.line = m.data
	return m
}

// Question watches the body of the request.
func (m *Meter) Question(body io.ReadCloser) io.ReadCloser {
	if m == nil || body == nil || body == http.NoBody {
		return body
	}
	return &watched{ReadCloser: body, seen: func(b []byte, _ error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asked.feed(b)
	}}
}

// Answer watches the answer, whose body must be as it is to be read: decoded.
func (m *Meter) Answer(res *http.Response) {
	if m == nil || res.Body == nil || res.Body == http.NoBody || res.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	coding := res.Header.Get("Content-Encoding")
	m.mu.Lock()
	m.stream = kind == "text/event-stream"
	m.readable = coding == "" || coding == "identity"
	m.mu.Unlock()
	res.Body = &watched{ReadCloser: res.Body, seen: m.heard}
}

// heard takes a piece of the answer.
func (m *Meter) heard(b []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.whole = m.whole || err == io.EOF //nolint:errorlint // a body ends with itself
	switch {
	case !m.readable:
	case m.stream:
		m.lines.feed(b)
	default:
		m.answer.feed(b)
	}
}

// data takes a piece of the data of an event; end says that the event ends.
func (m *Meter) data(b []byte, end bool) {
	if m.answer.feed(b); end {
		m.answer.again()
	}
}

// found keeps what a document says. Later ones count: streams say totals.
func (m *Meter) found(path string, text []byte) {
	switch path {
	case "model", "message.model", "response.model", "modelVersion":
		if name := clean(string(text)); name != "" {
			m.model = name
		}
		return
	}
	if field, ok := m.fields[path]; ok {
		if n, ok := count(text); ok {
			m.said[field] = max(m.said[field], n)
		}
	}
}

// The fields of an answer.
const (
	input  = "input"
	output = "output"
	final  = "final" // the output as it is at the end
	read   = "read"
	wrote  = "wrote"
	// thought and tools are counted beside the others by Google.
	thought = "thought"
	tools   = "tools"
)

// fields are where a kind tells what.
func fields(k Kind) map[string]string {
	switch k {
	case Messages:
		return map[string]string{
			"usage.input_tokens": input, "usage.output_tokens": final,
			"usage.cache_read_input_tokens": read, "usage.cache_creation_input_tokens": wrote,
			// The beginning of a stream.
			"message.usage.input_tokens": input, "message.usage.output_tokens": output,
			"message.usage.cache_read_input_tokens": read, "message.usage.cache_creation_input_tokens": wrote,
		}
	case Chat:
		return map[string]string{
			"usage.prompt_tokens": input, "usage.completion_tokens": final, "usage.total_tokens": "total",
			"usage.prompt_tokens_details.cached_tokens": read,
		}
	case Responses:
		return map[string]string{
			"usage.input_tokens": input, "usage.output_tokens": final, "usage.input_tokens_details.cached_tokens": read,
			"response.usage.input_tokens": input, "response.usage.output_tokens": final, "response.usage.input_tokens_details.cached_tokens": read,
		}
	case Generate:
		return map[string]string{
			"usageMetadata.promptTokenCount": input, "usageMetadata.candidatesTokenCount": output, "usageMetadata.totalTokenCount": final,
			"usageMetadata.cachedContentTokenCount": read, "usageMetadata.thoughtsTokenCount": thought, "usageMetadata.toolUsePromptTokenCount": tools,
		}
	case Free, Uncounted:
	}
	return nil
}

// Tokens is what the request used: status is what was answered, 0 for nothing,
// and sent and received are the bytes of the bodies. Nil where nothing is
// charged for: requests that were refused, and those that never went out.
func (m *Meter) Tokens(status int, sent, received int64) *task.ModelTokens {
	if m == nil || status >= 300 || status == 0 && sent == 0 || status > 0 && status < 200 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &task.ModelTokens{Model: m.model}
	if t.Model == "" {
		t.Model = m.wanted
	}
	_, ended := m.said[final]
	_, began := m.said[input]
	if m.kind == Chat && !ended {
		_, ended = m.said["total"] // embeddings have no output
	}
	if m.kind == Generate {
		ended = ended && m.whole // each piece of a stream tells so far
	}
	t.Input, t.CacheRead, t.CacheWrite = m.said[input]+m.said[tools], m.said[read], m.said[wrote]
	t.Output = max(m.said[output], m.said[final])
	if m.kind == Generate {
		t.Output = m.said[output] + m.said[thought]
	}
	if m.kind != Messages { // the others count what a cache had among the input
		t.CacheRead = min(t.CacheRead, t.Input)
		t.Input -= t.CacheRead
	}
	if !began {
		t.Input, t.Estimated = max(t.Input, tokensOf(sent)), true
	}
	if !ended {
		t.Output, t.Estimated = max(t.Output, tokensOf(received)), true
	}
	return t
}

func tokensOf(bytes int64) int64 { return (bytes + bytesAToken - 1) / bytesAToken }

// watched is a body that is looked at while it is read.
type watched struct {
	io.ReadCloser
	seen func(b []byte, err error)
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	w.seen(b[:n], err)
	return n, err
}

// lines finds the data of the events of a stream (text/event-stream): what
// follows "data:" to the line's end. It keeps no line.
type lines struct {
	line func(data []byte, end bool)
	at   int  // how much of the field's name was matched at the beginning of the line
	skip bool // the line is of no data
	in   bool // behind "data:"
	cr   bool // a line feed that comes now belongs to the line's end before
}

const dataField = "data:"

func (l *lines) feed(b []byte) {
	for len(b) > 0 {
		c := b[0]
		if c == '\n' && l.cr {
			l.cr, b = false, b[1:]
			continue
		}
		l.cr = false
		if c == '\n' || c == '\r' {
			switch {
			case l.in:
				l.line([]byte{'\n'}, false)
			case l.at == 0 && !l.skip:
				l.line(nil, true) // an empty line ends the event
			}
			*l = lines{line: l.line, cr: c == '\r'}
			b = b[1:]
			continue
		}
		switch {
		case l.in, l.skip:
			n := lineLength(b)
			if l.in {
				l.line(b[:n], false)
			}
			b = b[n:]
		case c == dataField[l.at]:
			l.at++
			l.in = l.at == len(dataField)
			b = b[1:]
		default:
			l.skip = true
		}
	}
}

// lineLength is how much of b lies before a line's end.
func lineLength(b []byte) int {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			return i
		}
	}
	return len(b)
}

// Package modeltest is a model's server for tests: it speaks as much of four
// vendors' APIs as real agents need for whole runs with tool calls, answers from
// a script instead of a model, and fails on request in the ways that real ones
// fail.
//
// Words. A step is one answer: a shell command to be called, or a text that ends
// the turn. Which step a request gets follows from the tool results that it
// carries, so the server keeps no conversation: retries and resumed sessions get
// what they got before. A fault takes the place of steps.
//
// Not promised: anything that no harness of this project asks for.
package modeltest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Step is one answer of the model. Text alone ends the turn.
type Step struct {
	Shell string     `json:"shell,omitempty"` // called with the harness's own tool for shell commands
	Text  string     `json:"text,omitempty"`  // said, before the calls if there are any
	Calls []ToolCall `json:"calls,omitempty"` // of tools by name; Anthropic's and OpenAI's chat form only
	Stop  Stop       `json:"stop,omitempty"`  // why it ends, if not as usual; the same two forms
}

// ToolCall is one call of a tool. Its input is sent as it is, JSON or not.
type ToolCall struct {
	Name  string `json:"name"`
	Input string `json:"input"`
}

// Stop is an unusual end of an answer.
type Stop string

// The unusual ends.
const (
	Length  Stop = "length"  // cut at its largest size
	Refused Stop = "refused" // the model declines
)

// Fault is a way to fail.
type Fault string

// The faults. A Fault that is a number of three digits is an HTTP status.
const (
	None    Fault = ""
	Silent  Fault = "silent"  // the request is read and never answered
	Empty   Fault = "empty"   // 200 and no byte
	Garbage Fault = "garbage" // the stream begins well and goes on with what is no event
	Cut     Fault = "cut"     // the stream begins well and the connection ends
)

// Options says how a Server answers.
type Options struct {
	Key   string // that requests must carry where their vendor puts it; empty: any, or none
	Steps []Step
	Fault Fault
	After int // tool results before the fault; 0: at once
	// FaultOf says which fault befalls a request, from its body, where Fault is none; nil: none.
	FaultOf func(body []byte) Fault

	// Faults befall the first requests that offer tools, one each (None: none);
	// those after them are answered.
	Faults     []Fault
	RetryAfter string        // of answers with the status 429
	Note       func(Seen)    // told of each request when it has been answered; nil: nobody
	Gate       chan struct{} // each answer waits until it can receive; nil: none waits
}

// Seen is one request as it came.
type Seen struct {
	Method, Path string
	Key          string // the credential it carried, without "Bearer "
	Header       http.Header
	Body         []byte
	Status       int // that it was answered with
}

// Server is the http.Handler.
type Server struct {
	options Options

	mu   sync.Mutex
	seen []Seen
	main int // requests that offered tools
}

// New returns a server.
func New(o Options) *Server { return &Server{options: o} }

// Seen returns the requests so far.
func (s *Server) Seen() []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Seen(nil), s.seen...)
}

// Asked is how many requests that offered tools have arrived, answered or not.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.main
}

// maxBody is more than any harness sends.
const maxBody = 64 << 20

type object = map[string]any

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "body", http.StatusBadRequest)
		return
	}
	counted := &counting{ResponseWriter: w}
	defer func() {
		seen := Seen{Method: r.Method, Path: r.URL.Path, Key: keyOf(r), Header: r.Header.Clone(), Body: body, Status: counted.status}
		s.mu.Lock()
		s.seen = append(s.seen, seen)
		s.mu.Unlock()
		if s.options.Note != nil {
			s.options.Note(seen)
		}
	}()
	s.answer(counted, r, body)
}

// keyOf is the credential of a request.
func keyOf(r *http.Request) string {
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if v := r.Header.Get(name); v != "" {
			return v
		}
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func (s *Server) answer(w *counting, r *http.Request, body []byte) {
	if s.options.Key != "" && keyOf(r) != s.options.Key {
		problem(w, http.StatusUnauthorized, "the key is not the one")
		return
	}
	form, ok := formOf(r.URL.Path)
	if !ok {
		if r.Method == http.MethodHead || r.URL.Path == "/" {
			return
		}
		problem(w, http.StatusNotFound, "no such path: "+r.URL.Path)
		return
	}
	var q object
	if err := json.Unmarshal(body, &q); err != nil {
		problem(w, http.StatusBadRequest, "the body is not JSON")
		return
	}
	t := form.read(q)
	stream := t.stream || strings.HasSuffix(r.URL.Path, ":streamGenerateContent")
	side := len(t.tools) == 0 // a title or a probe: no part of the script
	f := s.faultOf(t, side)
	if f == None && s.options.FaultOf != nil && !side {
		f = s.options.FaultOf(body)
	}
	if s.options.Gate != nil && !side {
		select {
		case <-s.options.Gate:
		case <-r.Context().Done():
			return
		}
	}
	if f != None {
		s.fail(w, r, form, stream, f)
		return
	}
	step := Step{Text: "ok"}
	if !side {
		step = stepOf(s.steps(body), t.results)
	}
	form.write(&writer{w: w, stream: stream, id: t.results}, t, step)
}

// fail carries out a fault.
func (s *Server) fail(w *counting, r *http.Request, form form, stream bool, f Fault) {
	switch f {
	case Silent:
		<-r.Context().Done()
	case Empty:
		if stream {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		w.WriteHeader(http.StatusOK)
	case Garbage, Cut:
		w.Header().Set("Content-Type", "text/event-stream")
		out := &writer{w: w, stream: stream, begun: true}
		form.begin(out)
		if f == Cut {
			w.flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "data: {\"type\":\"\xff\xfe<html>\n\ndata: [[[[{\"never\n\n\x00\x01\x02\n\n")
	default:
		if f == "429" && s.options.RetryAfter != "" {
			w.Header().Set("Retry-After", s.options.RetryAfter)
		}
		status := 0
		for _, c := range f {
			status = status*10 + int(c-'0')
		}
		problem(w, status, "scripted failure")
	}
}

func problem(w http.ResponseWriter, status int, text string) {
	kind := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		429: "rate_limit_error", 529: "overloaded_error",
	}[status]
	if kind == "" {
		kind = "api_error"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"type": "error", "error": object{"type": kind, "code": status, "status": kind, "message": text}})
}

// counting remembers the status of an answer.
type counting struct {
	http.ResponseWriter
	status int
}

// WriteHeader remembers the status.
func (c *counting) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write sends a piece of the body.
func (c *counting) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(b)
}

func (c *counting) flush() {
	if f, ok := c.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

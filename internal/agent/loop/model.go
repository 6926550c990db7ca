package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Model speaks one vendor's protocol. Implemented by loop/anthropic and
// loop/openai. It neither retries nor keeps state.
type Model interface {
	// Request returns the parameters of a request as JSON: the same question gives
	// the same bytes.
	Request(q Question) ([]byte, error)
	// Ask sends what Request returned and waits for the whole answer. Errors of
	// the far side are *Trouble.
	Ask(ctx context.Context, request []byte) (Answer, error)
}

// Endpoint is where a model is and how it is reached. The key is not in it: the
// header carries a placeholder, or nothing.
type Endpoint struct {
	URL    string // where the vendor's API begins
	Model  string
	Header http.Header // what each request carries besides the vendor's own
	Client *http.Client
}

// Question is a conversation so far.
type Question struct {
	System    string
	Prompt    string
	Tools     []Tool
	Exchanges []Exchange
}

// Tool is a tool that the model may use.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // of its input
}

// Exchange is an answer and what came of its calls.
type Exchange struct {
	Message json.RawMessage // as Answer has it
	Results []Result
}

// Result is what a call came to.
type Result struct {
	ID     string // of the call
	Text   string
	Failed bool
}

// Answer is one whole answer of a model. It is kept as JSON.
type Answer struct {
	Message json.RawMessage `json:"message"` // as the vendor wants it back in the next request
	Text    string          `json:"text,omitempty"`
	Calls   []Call          `json:"calls,omitempty"`
	Stop    Stop            `json:"stop"`
	Reason  string          `json:"reason,omitempty"` // the vendor's own word for Stop
	Usage   task.ModelUsage `json:"usage"`
}

// Call is one use of a tool that an answer asks for.
type Call struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Input string `json:"input"` // as the model wrote it; it may be no JSON
}

// Stop says why an answer ended.
type Stop string

// Why answers end.
const (
	StopEnd     Stop = "end"     // the model has no more to say
	StopCalls   Stop = "calls"   // it wants its calls carried out
	StopLength  Stop = "length"  // it was cut at its largest size
	StopRefused Stop = "refused" // the model declines
)

// Kind is what went wrong with a request. The zero value is not a kind.
type Kind string

// The kinds of trouble.
const (
	Refused Kind = "refused" // 4xx: the same request will be refused again
	Limited Kind = "limited" // 429
	Faulty  Kind = "faulty"  // 5xx, or an answer that is none
	Silent  Kind = "silent"  // nothing came for too long
)

// Trouble is a request that came to nothing.
type Trouble struct {
	Kind  Kind
	Text  string        // what the far side said, short
	After time.Duration // when it may be asked again; 0: it did not say
	Err   error
}

// Error says what happened.
func (t *Trouble) Error() string {
	if t.Err != nil && t.Text == "" {
		return fmt.Sprintf("model %s: %v", t.Kind, t.Err)
	}
	return fmt.Sprintf("model %s: %s", t.Kind, t.Text)
}

// Unwrap returns the cause.
func (t *Trouble) Unwrap() error { return t.Err }

// Stream is a streamed answer as the vendors' libraries give one.
type Stream[T any] interface {
	Next() bool
	Current() T
	Err() error
	Close() error
}

// Pieces gives every piece of a streamed answer to take and closes the stream. A
// piece that take refuses is the fault of the model's server; what the library
// failed with is translated by trouble.
func Pieces[T any](s Stream[T], take func(T) error, trouble func(error) error) error {
	defer func() { _ = s.Close() }() // it was only read
	for s.Next() {
		if err := take(s.Current()); err != nil {
			return &Trouble{Kind: Faulty, Text: err.Error()}
		}
	}
	if err := s.Err(); err != nil {
		return trouble(err)
	}
	return nil
}

// StatusTrouble is the trouble of an answer with an HTTP status of 300 or more.
func StatusTrouble(status int, header http.Header, message string, now time.Time) *Trouble {
	t := &Trouble{Kind: Refused, Text: fmt.Sprintf("HTTP %d", status)}
	if message != "" {
		t.Text += ": " + short(message, 300)
	}
	switch {
	case status == http.StatusTooManyRequests:
		t.Kind, t.After = Limited, retryAfter(header, now)
	case status == http.StatusRequestTimeout || status == http.StatusConflict || status >= 500 || status < 400:
		t.Kind, t.After = Faulty, retryAfter(header, now)
	}
	return t
}

// reason is the code of a trouble that no try was left for.
func (k Kind) reason() task.Reason {
	switch k {
	case Refused:
		return task.ModelRefused
	case Limited:
		return task.ModelLimited
	case Silent:
		return task.ModelSilent
	case Faulty:
	}
	return task.ModelFaulty
}

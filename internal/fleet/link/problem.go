package link

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Problem is a failure on the wire. Detail is the cause, for cofferdamd's own
// log.
type Problem struct {
	Reason task.Reason `json:"reason"`
	Text   string      `json:"text"`
	Detail string      `json:"detail,omitempty"`
}

// ProblemOf translates an error for the wire; what is no *task.Failure is
// infra.internal.
func ProblemOf(err error) Problem {
	var f *task.Failure
	if !errors.As(err, &f) {
		return Problem{Reason: task.InfraInternal, Text: "the worker failed", Detail: cut(err.Error())}
	}
	p := Problem{Reason: f.Reason, Text: cut(f.Text)}
	if f.Err != nil {
		p.Detail = cut(f.Err.Error())
	}
	return p
}

var reasonPattern = regexp.MustCompile(`^[a-z][a-z_]*(\.[a-z][a-z_]*)?$`)

// Failure gives the failure back. A worker is not believed when it names a
// reason that is no reason: that is infra.internal.
func (p Problem) Failure() *task.Failure {
	var cause error
	if p.Detail != "" {
		cause = errors.New(cut(p.Detail))
	}
	if len(p.Reason) > 64 || !reasonPattern.MatchString(string(p.Reason)) {
		return task.Fail(task.InfraInternal, "the worker answered with a failure without a reason", cause)
	}
	return task.Fail(p.Reason, cut(p.Text), cause)
}

// cut bounds a text and makes it valid UTF-8.
func cut(s string) string {
	const most = 4096
	if len(s) > most {
		s = s[:most] + "…"
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "�")
	}
	return s
}

// Status is the HTTP status that goes with a reason.
func Status(reason task.Reason) int {
	switch reason {
	case task.InputNotFound:
		return http.StatusNotFound
	case task.InputConflict:
		return http.StatusConflict
	case task.LimitSize:
		return http.StatusRequestEntityTooLarge
	case task.InfraSandboxLost:
		return http.StatusGone
	}
	switch reason.Class() {
	case "input", "policy":
		return http.StatusUnprocessableEntity
	case "limit":
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}

// ErrProtocol is wrapped when the other side does not keep to this package.
var ErrProtocol = errors.New("protocol broken")

// DecodeJSON reads one JSON document of at most MaxJSON bytes into v. Unknown
// fields, a second document and trailing bytes are refused.
func DecodeJSON(r io.Reader, v any) error {
	text, err := readBounded(r)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("JSON body: %w: %w", err, ErrProtocol)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("JSON body: bytes after the document: %w", ErrProtocol)
	}
	return nil
}

// DecodeAnswer is DecodeJSON for what a worker answers. It lets unknown fields
// pass, so that a newer worker may say more than this cofferdamd knows.
func DecodeAnswer(r io.Reader, v any) error {
	text, err := readBounded(r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("JSON body: %w: %w", err, ErrProtocol)
	}
	return nil
}

func readBounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxJSON+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxJSON {
		return nil, fmt.Errorf("JSON body of more than %d bytes: %w", MaxJSON, ErrProtocol)
	}
	return text, nil
}

// TrailerOutcome is the trailer that ends a tar stream from a worker: its value
// is OutcomeComplete, or a Problem made by FormatOutcome. A stream without it
// broke off.
const TrailerOutcome = "Cofferdam-Outcome"

// OutcomeComplete says that the stream holds everything.
const OutcomeComplete = "complete"

// FormatOutcome writes a problem so that it can stand in a trailer.
func FormatOutcome(p Problem) string {
	text, err := json.Marshal(p)
	if err != nil {
		return ""
	}
	return url.QueryEscape(string(text))
}

// ParseOutcome reads what FormatOutcome wrote.
func ParseOutcome(s string) (Problem, error) {
	var p Problem
	text, err := url.QueryUnescape(s)
	if err == nil {
		err = json.Unmarshal([]byte(text), &p)
	}
	if err != nil || s == "" {
		return p, fmt.Errorf("outcome %.100q: %w", s, ErrProtocol)
	}
	return p, nil
}

package link

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// MaxDenials bounds the refusals in one answer.
const MaxDenials = 500

// DenialList answers a request for what was refused on protected files.
type DenialList struct {
	Denials []task.FileDenial `json:"denials"`
}

// HeaderFile is the header of an answer with a file's bytes: a sandbox.FileHeader
// as FormatFile writes it. TrailerOutcome ends the bytes.
const HeaderFile = "Cofferdam-File"

// FormatFile writes what is said of a file so that it can stand in a header or a
// query.
func FormatFile[T sandbox.FileHeader | sandbox.FileWrite](v T) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("file: %w", err)
	}
	return url.QueryEscape(string(text)), nil
}

// ParseFile reads what FormatFile wrote.
func ParseFile[T sandbox.FileHeader | sandbox.FileWrite](s string) (T, error) {
	var v T
	text, err := url.QueryUnescape(s)
	if err == nil {
		err = json.Unmarshal([]byte(text), &v)
	}
	if err != nil {
		return v, fmt.Errorf("file %.100q: %w", s, ErrProtocol)
	}
	return v, nil
}

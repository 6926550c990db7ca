package provider

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
)

// JSON reads an answer that must be one JSON object, and nothing after it. Errors
// are *task.Failure and hold nothing of it.
func (a *Answer) JSON(v any) error {
	kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return a.Garbage("not JSON")
	}
	text := bytes.TrimSpace(a.Body)
	if len(text) == 0 || text[0] != '{' {
		return a.Garbage("no JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if d.Decode(v) != nil {
		return a.Garbage("JSON that can't be read")
	}
	if _, err := d.Token(); err != io.EOF { //nolint:errorlint // a decoder's end is io.EOF itself
		return a.Garbage("more after its JSON")
	}
	return nil
}

// Token says whether a text can be a token (RFC 6750 §2.1, and what providers
// give besides): printable, without spaces, of at most 8 KiB.
func Token(text string) bool {
	if len(text) < 8 || len(text) > 8<<10 {
		return false
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

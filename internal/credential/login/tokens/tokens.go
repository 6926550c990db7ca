// Package tokens says what a login of a vendor's agent is, whatever the file it
// is kept in.
//
// Words. A login is what a person has after signing in with an agent: an access
// token, which asks models for some hours, and a refresh token, which makes the
// next access token and mostly is made anew itself when it is used. The text of a
// login is the file that the agent keeps it in.
package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// MaxText bounds the text of a login.
const MaxText = 64 << 10

// Tokens are what of a login is read and changed. The rest of its text stays as
// it is.
type Tokens struct {
	Access, Refresh task.Secret
	ID              task.Secret // who signed in, as the vendor wrote it; empty: the vendor has none
	Until           time.Time   // when the access token is over; zero: it does not say so
	Scopes          []string    // what it may; empty: not said
}

// Fields reads a JSON object that must be all there is in a text.
func Fields(text []byte) (map[string]json.RawMessage, error) {
	if len(text) > MaxText {
		return nil, errors.New("is longer than 64 KiB")
	}
	var fields map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&fields); err != nil || fields == nil {
		return nil, errors.New("is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has more after its JSON object")
	}
	return fields, nil
}

// Set puts a value into fields.
func Set(fields map[string]json.RawMessage, name string, value any) error {
	raw, err := json.Marshal(value)
	fields[name] = raw
	return err
}

// Usable says what is wrong with a token that was read; empty: nothing. A token
// must fit into a header and is never a placeholder of ours.
func Usable(token task.Secret) string {
	text := token.Reveal()
	switch {
	case text == "":
		return "is missing"
	case len(text) < 8 || len(text) > 12<<10:
		return "is too short or too long to be one"
	case bytes.Contains([]byte(text), []byte("placeholder")):
		return "is a placeholder: sign in outside of a sandbox"
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			return "has a character that none has"
		}
	}
	return ""
}

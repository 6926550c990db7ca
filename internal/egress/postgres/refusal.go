package postgres

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/task"
)

// textMax bounds what of a server's words is told inside.
const textMax = 500

// Refusal is an error that the program inside reads: a code of SQL's, a text,
// and where it is one of ours its reason.
type Refusal struct {
	State  string // five characters ("PostgreSQL Error Codes")
	Reason task.Reason
	Text   string
}

// Error gives all of it.
func (r *Refusal) Error() string {
	if r.Reason == task.ReasonNone {
		return r.State + ": " + r.Text
	}
	return fmt.Sprintf("%s: %s (%s)", r.State, r.Text, r.Reason)
}

// Refuse tells the program inside why there is no session.
func (r *Refusal) Refuse(w io.Writer) error {
	text := r.Text
	if r.Reason != task.ReasonNone {
		text = fmt.Sprintf("Cofferdam: %s (%s)", text, r.Reason)
	}
	var body []byte
	for _, f := range []string{"SFATAL", "VFATAL", "C" + r.State, "M" + plain(text)} {
		body = append(append(body, f...), 0)
	}
	_, err := w.Write(message{'E', append(body, 0)}.append(nil))
	return err
}

// parseError reads a server's error: its code and what it says, without
// anything else that a server may put into it.
func parseError(body []byte) (*Refusal, error) {
	fields, err := texts(body)
	if err != nil {
		return nil, err
	}
	r := &Refusal{State: "XX000", Text: "no text"}
	for _, f := range fields {
		switch f[0] {
		case 'C':
			if len(f) == 6 && strings.Trim(f[1:], "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
				r.State = f[1:]
			}
		case 'M':
			r.Text = plain(f[1:])
		}
	}
	return r, nil
}

// plain is a text as it may be told: one line of printable characters, not
// long.
func plain(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == utf8.RuneError {
			return ' '
		}
		return c
	}, text)
	for len(text) > textMax {
		_, n := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-n]
	}
	return text
}

// quoted is what somebody else chose, as it stands in a text of ours.
func quoted(name string) string {
	return fmt.Sprintf("%.80q", name)
}

// Package agentlog prints what an agent said and did, an event after the
// other, for people. Everything in an event comes from inside a sandbox or from
// a model, so all of it is shown escaped, on a terminal and elsewhere.
package agentlog

import (
	"fmt"
	"io"
	"strings"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// maxLines bounds how many lines of one result are printed.
const maxLines = 40

// Print prints one event.
func Print(w io.Writer, e api.AgentEvent) error {
	var err error
	switch e.Type {
	case "text":
		_, err = fmt.Fprintln(w, show.Text(e.Text)+more(e.Cut))
	case "call":
		_, err = fmt.Fprintf(w, "> %s %s%s\n", show.Line(e.Tool), show.Line(e.Input), more(e.Cut))
	case "permission":
		of := ""
		if e.Tool != "" {
			of = show.Line(e.Tool) + ": "
		}
		_, err = fmt.Fprintln(w, "+ "+of+show.Line(e.Text)+more(e.Cut))
	case "result":
		err = result(w, e)
	case "usage":
		if u := e.Usage; u != nil {
			_, err = fmt.Fprintf(w, "- %d tokens in (%d cached), %d out\n", u.Input, u.Cached, u.Output)
		}
	case "end":
		word := "ended"
		if e.Failed {
			word = "failed"
		}
		if e.Text != "" {
			word += ": " + show.Line(e.Text)
		}
		_, err = fmt.Fprintln(w, "= "+word+more(e.Cut))
	default:
		_, err = fmt.Fprintf(w, "? %s %s\n", show.Line(e.Type), show.Line(e.Text))
	}
	return err
}

// result prints the beginning of what a tool said, indented.
func result(w io.Writer, e api.AgentEvent) error {
	mark := "  "
	if e.Failed {
		mark = "! "
	}
	text := strings.TrimRight(show.Text(e.Text), "\n")
	lines := strings.Split(text, "\n")
	rest := len(lines) - maxLines
	if rest > 0 {
		lines = lines[:maxLines]
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, mark+line); err != nil {
			return err
		}
	}
	if rest > 0 {
		_, err := fmt.Fprintf(w, "%s… %d more lines\n", mark, rest)
		return err
	}
	if e.Cut {
		_, err := fmt.Fprintln(w, mark+"…")
		return err
	}
	return nil
}

func more(cut bool) string {
	if cut {
		return " …"
	}
	return ""
}

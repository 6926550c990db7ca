// Package progress shows how a task goes, a stage at a time: in place on a
// terminal, as plain lines elsewhere, and not at all where nobody asked. Words
// that come from inside a sandbox are shown escaped.
package progress

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Progress is the progress of one task. It is safe for concurrent use.
type Progress struct {
	mu      sync.Mutex
	w       io.Writer
	colour  bool
	current string // the line that stands unfinished on the terminal
	seen    map[string]bool
	last    int // attempt
}

// New shows progress on w; colour says that w is a terminal.
func New(w io.Writer, colour bool) *Progress {
	return &Progress{w: w, colour: colour, seen: map[string]bool{}, last: 1}
}

// line prints a whole line above the unfinished one.
func (p *Progress) line(s string) {
	if p.current != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	fmt.Fprintln(p.w, s)
	fmt.Fprint(p.w, p.current)
}

func (p *Progress) paint(colour, s string) string {
	if !p.colour {
		return s
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(colour)).Render(s)
}

// The terminal's own colours, so that they fit whatever it shows.
const (
	green  = "2"
	red    = "1"
	yellow = "3"
	grey   = "8"
)

// Note prints a line of ours.
func (p *Progress) Note(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(p.paint(grey, show.Line(s)))
}

// Stage shows where a stage stands.
func (p *Progress) Stage(s api.Stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := fmt.Sprintf("%-9s", show.Line(s.Name))
	switch s.State {
	case "pending":
		return
	case "running":
		if p.colour {
			p.clear()
			p.current = p.paint(yellow, "· "+name)
			fmt.Fprint(p.w, p.current)
		} else {
			p.line(name + " running")
		}
		return
	}
	p.clear()
	mark, tone := "✓", green
	switch s.State {
	case "failed":
		mark, tone = "✗", red
	case "skipped", "cancelled":
		mark, tone = "–", grey
	}
	text := name + " " + show.Line(s.State)
	if took := StageTime(s); took != "" {
		text += " after " + took
	}
	if s.Reason != "" {
		text += ", " + show.Line(s.Reason)
	}
	if s.Text != "" {
		text += ": " + show.Line(s.Text)
	}
	if p.colour {
		text = p.paint(tone, mark) + " " + text
	}
	p.line(text)
}

func (p *Progress) clear() {
	if p.current != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.current = ""
	}
}

// Denied shows each refused destination once.
func (p *Progress) Denied(r api.EgressRecord) {
	name := r.Name
	if name == "" {
		name = r.Address
	}
	where := show.Line(name) + ":" + strconv.Itoa(int(r.Port))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen[where] || len(p.seen) > 100 {
		return
	}
	p.seen[where] = true
	p.line(p.paint(red, "  denied "+where+" ("+show.Line(r.Reason)+")"))
}

// Attempt says that the task goes through its stages again.
func (p *Progress) Attempt(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n <= p.last {
		return
	}
	p.last = n
	p.line(p.paint(yellow, "attempt "+strconv.Itoa(n)))
}

// Done removes the unfinished line.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// Through writes other output between the lines.
func (p *Progress) Through() io.Writer { return &lines{p: p} }

// lines hands on whole lines, so that they don't mix with the progress.
type lines struct {
	p    *Progress
	rest strings.Builder
}

// maxRest is how much of a line without an end is held back.
const maxRest = 4096

func (l *lines) Write(b []byte) (int, error) {
	l.rest.Write(b)
	text := l.rest.String()
	end := strings.LastIndexByte(text, '\n')
	if end < 0 && len(text) < maxRest {
		return len(b), nil
	}
	if end < 0 {
		end = len(text)
	}
	l.rest.Reset()
	if end < len(text) {
		l.rest.WriteString(text[end+1:])
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.p.line(text[:end])
	return len(b), nil
}

// StageTime is how long a stage took, or has taken so far; empty for one that
// did not begin.
func StageTime(s api.Stage) string {
	switch {
	case s.StartedAt == nil:
		return ""
	case s.EndedAt == nil:
		return show.Span(time.Since(*s.StartedAt))
	}
	return show.Span(s.EndedAt.Sub(*s.StartedAt))
}

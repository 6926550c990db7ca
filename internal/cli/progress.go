package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"charm.land/lipgloss/v2"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// progress shows how a task goes, a stage at a time: in place on a terminal,
// as plain lines elsewhere, and not at all with --json.
type progress struct {
	mu      sync.Mutex
	w       io.Writer
	colour  bool
	current string // the line that stands unfinished on the terminal
	seen    map[string]bool
	last    int // attempt
}

func newProgress(w io.Writer, silent bool) *progress {
	if silent {
		w = io.Discard
	}
	return &progress{w: w, colour: colour(w), seen: map[string]bool{}, last: 1}
}

// line prints a whole line above the unfinished one.
func (p *progress) line(s string) {
	if p.current != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	fmt.Fprintln(p.w, s)
	fmt.Fprint(p.w, p.current)
}

func (p *progress) paint(colour, s string) string {
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

func (p *progress) note(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(p.paint(grey, show.Line(s)))
}

func (p *progress) stage(s api.Stage) {
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
	if took := stageTime(s); took != "" {
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

func (p *progress) clear() {
	if p.current != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.current = ""
	}
}

// denied shows each refused destination once.
func (p *progress) denied(r api.EgressRecord) {
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

func (p *progress) attempt(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n <= p.last {
		return
	}
	p.last = n
	p.line(p.paint(yellow, "attempt "+strconv.Itoa(n)))
}

func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// through writes other output between the lines.
func (p *progress) through() io.Writer { return &lines{p: p} }

// lines hands on whole lines, so that they don't mix with the progress.
type lines struct {
	p    *progress
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

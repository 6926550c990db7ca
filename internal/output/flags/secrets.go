package flags

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cofferdam/cofferdam/internal/output/flags/patch"
)

// Secrets finds what looks like a key or a password in text. Implemented by
// flags/secrets.
type Secrets interface {
	// Find gives the rules that text breaks, and where. It never gives what it found.
	// An error says that the text was not looked at.
	Find(ctx context.Context, text string) ([]Secret, error)
}

// Secret is where a rule was broken.
type Secret struct {
	Rule string // letters, digits and dashes
	Line int    // of the text, from 1
}

// How much is looked at. A piece is short, since one word that a rule begins with
// has the whole of it looked at by that rule.
const (
	secretPiece = 2 << 10
	maxSecrets  = 4 << 20 // of a patch
)

// secretText is added text that was not looked at yet.
type secretText struct {
	text  []byte
	lines []int // their numbers in the file
	told  map[string]bool
}

func (s *sight) keepForSecrets(l patch.Line) {
	c := s.file
	if bytes.Contains(l.Text, []byte("-----BEGIN ")) && bytes.Contains(l.Text, []byte("PRIVATE KEY")) {
		s.add("secret.private-key", c.name, l.New, "A private key begins in the line.")
	}
	if s.looked >= maxSecrets {
		if s.of["limit.secrets"] == 0 {
			s.add("limit.secrets", c.name, l.New, fmt.Sprintf("Secrets were looked for in the first %d bytes that the patch adds, and not from here on.", maxSecrets))
		}
		return
	}
	s.looked += len(l.Text) + 1
	c.text.text = append(append(c.text.text, l.Text...), '\n')
	c.text.lines = append(c.text.lines, l.New)
	if len(c.text.text) >= secretPiece {
		s.lookForSecrets(false)
	}
}

// lookForSecrets looks at the text that was kept. But for the end of a file its last
// line stays, for what is told over two lines.
func (s *sight) lookForSecrets(end bool) {
	t := &s.file.text
	if len(t.lines) == 0 || s.ctx.Err() != nil {
		return
	}
	list, err := s.judge.secrets.Find(s.ctx, string(t.text))
	if err != nil {
		s.add("limit.secrets", s.file.name, t.lines[0], "Secrets could not be looked for in the lines from here on.")
	}
	for _, found := range list {
		line := t.lines[min(max(found.Line, 1), len(t.lines))-1]
		key := fmt.Sprint(found.Rule, line)
		if t.told[key] || found.Rule == "private-key" {
			continue
		}
		if t.told == nil {
			t.told = map[string]bool{}
		}
		t.told[key] = true
		s.add("secret."+found.Rule, s.file.name, line, "The line has what looks like a key or a password, by gitleaks' rule "+found.Rule+".")
	}
	last := bytes.LastIndexByte(t.text[:len(t.text)-1], '\n') + 1
	if end || last == 0 || len(t.text)-last > secretPiece/2 {
		t.text, t.lines = t.text[:0], t.lines[:0]
		return
	}
	t.text = append(t.text[:0], t.text[last:]...)
	t.lines = append(t.lines[:0], t.lines[len(t.lines)-1])
}

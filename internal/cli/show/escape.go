// Package show makes bytes that a sandbox chose harmless to look at: on a
// terminal, nothing of them moves the cursor, talks to the terminal, reorders
// the text around it or hides.
//
// Words. Plain characters only put ink on paper; everything else is shown as
// an escape such as \x1b or \u202e. The bytes themselves are kept elsewhere,
// as they are.
//
// Not promised: that what is shown can be told from a text that holds such an
// escape literally, or that two letters which look alike are the same.
package show

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// appendShown appends the visible form of a rune: itself when it only puts ink
// on paper, an escape when it could move the cursor, talk to the terminal,
// reorder the text around it or hide.
func appendShown(b []byte, r rune) []byte {
	switch {
	case Plain(r):
		return utf8.AppendRune(b, r)
	case r < 0x80:
		return fmt.Appendf(b, `\x%02x`, r)
	case r < 0x10000:
		return fmt.Appendf(b, `\u%04x`, r)
	}
	return fmt.Appendf(b, `\U%08x`, r)
}

// Plain says whether a rune is harmless to show. Graphic leaves out controls,
// formatting marks (direction, zero width, tags), private and unassigned ones;
// the fillers are letters by name and blank by looks.
func Plain(r rune) bool {
	switch r {
	case 0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800, 0x034F, 0x17B4, 0x17B5:
		return false
	case utf8.RuneError:
		return true
	}
	if r >= 0x180B && r <= 0x180F || r >= 0xFE00 && r <= 0xFE0E || r >= 0xE0100 && r <= 0xE01EF {
		return false // variation selectors, which can carry hidden text
	}
	return unicode.IsGraphic(r)
}

// Line is the visible form of a string on one line.
func Line(s string) string { return show(s, false) }

// Text keeps the line breaks of a text.
func Text(s string) string { return show(s, true) }

func show(s string, lines bool) string {
	b := make([]byte, 0, len(s))
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, s[0])
		case lines && (r == '\n' || r == '\t'):
			b = append(b, byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		default:
			b = appendShown(b, r)
		}
		s = s[n:]
	}
	return string(b)
}

// Escaper shows a stream of bytes from inside on a terminal. Line breaks and
// tabs stay. A character that is cut by a write is completed by the next.
type Escaper struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

// NewEscaper returns a writer that shows on w what it is given.
func NewEscaper(w io.Writer) *Escaper { return &Escaper{w: w} }

// Write shows p.
func (e *Escaper) Write(p []byte) (int, error) {
	in := append(e.rest, p...)
	e.rest = nil
	out := make([]byte, 0, len(in)+16)
	for len(in) > 0 {
		if !utf8.FullRune(in) {
			e.rest = append([]byte(nil), in...)
			break
		}
		r, n := utf8.DecodeRune(in)
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, in[0])
		case r == '\n' || r == '\t':
			out = append(out, byte(r))
		default:
			out = appendShown(out, r)
		}
		in = in[n:]
	}
	if _, err := e.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close shows what is left of a character that never was completed.
func (e *Escaper) Close() error {
	var b strings.Builder
	for _, c := range e.rest {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	e.rest = nil
	_, err := io.WriteString(e.w, b.String())
	return err
}

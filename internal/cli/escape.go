package cli

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
	case plain(r):
		return utf8.AppendRune(b, r)
	case r < 0x80:
		return fmt.Appendf(b, `\x%02x`, r)
	case r < 0x10000:
		return fmt.Appendf(b, `\u%04x`, r)
	}
	return fmt.Appendf(b, `\U%08x`, r)
}

// plain says whether a rune is harmless to show. Graphic leaves out controls,
// formatting marks (direction, zero width, tags), private and unassigned ones;
// the fillers are letters by name and blank by looks.
func plain(r rune) bool {
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

// shown is the visible form of a string on one line.
func shown(s string) string { return show(s, false) }

// shownText keeps the line breaks of a text.
func shownText(s string) string { return show(s, true) }

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

// escaper shows a stream of bytes from inside on a terminal. Line breaks and
// tabs stay. A character that is cut by a write is completed by the next.
type escaper struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

func newEscaper(w io.Writer) *escaper { return &escaper{w: w} }

func (e *escaper) Write(p []byte) (int, error) {
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
func (e *escaper) Close() error {
	var b strings.Builder
	for _, c := range e.rest {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	e.rest = nil
	_, err := io.WriteString(e.w, b.String())
	return err
}

// inside returns where bytes from inside are written to: escaped on a
// terminal, as they are elsewhere or when raw is asked for.
func inside(w io.Writer, raw bool) io.WriteCloser {
	if raw || !terminal(w) {
		return keepOpen{w}
	}
	return newEscaper(w)
}

// keepOpen is a writer whose Close does nothing.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

package loop

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The beginning and the end of an output that are kept, in bytes.
const (
	keepHead = 12 << 10
	keepTail = 12 << 10
)

// capture keeps the beginning and the end of an output of any length.
type capture struct {
	head, tail []byte
	size       int64
	most       int // of head; 0: keepHead and a tail
}

// Write takes the next bytes.
func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	c.size += int64(n)
	room := keepHead
	if c.most > 0 {
		room = c.most
	}
	if free := room - len(c.head); free > 0 {
		take := min(free, len(p))
		c.head = append(c.head, p[:take]...)
		p = p[take:]
	}
	if c.most > 0 {
		return n, nil
	}
	c.tail = append(c.tail, p...)
	// Cut seldom, so that a long output costs no more than its length.
	if len(c.tail) > 4*keepTail {
		c.tail = append([]byte(nil), c.tail[len(c.tail)-keepTail:]...)
	}
	return n, nil
}

// text is what the model is told of the output: how much was left out is said.
func (c *capture) text() string {
	tail := c.tail[max(0, len(c.tail)-keepTail):]
	left := c.size - int64(len(c.head)) - int64(len(tail))
	if left <= 0 {
		return readable(append(append([]byte(nil), c.head...), tail...))
	}
	return readable(c.head) + fmt.Sprintf("\n[%d of %d bytes of output were left out here]\n", left, c.size) + readable(tail)
}

// readable is b as UTF-8: bytes that are not are written as \xNN, and how many
// there were is said.
func readable(b []byte) string {
	if utf8.Valid(b) && !hasControl(b) {
		return string(b)
	}
	var out strings.Builder
	strange := 0
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 || control(r) {
			fmt.Fprintf(&out, `\x%02x`, b[0])
			strange++
		} else {
			out.Write(b[:n])
		}
		b = b[n:]
	}
	fmt.Fprintf(&out, "\n[%d bytes that are no text are shown as \\xNN]", strange)
	return out.String()
}

func hasControl(b []byte) bool {
	return strings.ContainsFunc(string(b), control)
}

// control says whether r is a control character that is no layout.
func control(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0x7f
}

// clean makes s valid UTF-8 without control characters but line breaks and tabs.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if control(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// short is the beginning of s on one line, for messages.
func short(s string, most int) string {
	s = strings.Join(strings.Fields(clean(s)), " ")
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

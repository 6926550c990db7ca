// Package mask takes secret values out of text and streams. It is pure: it knows
// nothing of where the values come from or where the text goes.
//
// Words. A Masker is made from values. Its words are what is looked for: each
// value itself, its base64 at each of the three places that it can have in what
// is encoded, its hexadecimal digits and its HTML-escaped form. A word is found
// exactly, and also where any of its bytes are percent-encoded (either case, "+"
// for a space) or escaped as in JSON and program text (\u00XX, \xXX, \/, \n and
// the like), mixed as they come. In base64 the URL alphabet stands for the usual
// one, in hexadecimal digits the case doesn't matter. To cover is to put one
// mark byte in place of each byte, so that lengths and positions stay; to seal is
// to put "[sealed]" in place of the whole. Where two places overlap, both go.
//
// A stream is looked at whatever its pieces are: an end that may be the beginning
// of a word is held back until more comes or the stream ends, and nothing else
// is. Every split of the same bytes gives the same result, but where a Writer was
// told not to wait for ever (Options.Idle).
//
// Not promised: values shorter than four bytes; what a program encodes in another
// way or twice, compresses, encrypts or breaks into lines; in base64, up to four
// bits at each end of a value, which share a character with what stands beside.
package mask

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	sealed  = "[sealed]"
	minWord = 4 // shorter ones can't be told from ordinary text
)

// alike says which bytes count as the same in a word.
type alike uint8

const (
	exactly alike = iota
	base64ish
	hexish
)

// word is one thing to look for.
type word struct {
	text  string
	alike alike
}

// Masker finds the words of some values. It does not change and is safe for
// concurrent use. A nil Masker finds nothing.
type Masker struct {
	words map[byte][]word // by the byte they begin with
	mark  byte
	pairs [1 << 10]uint64 // two bytes that a word may begin with
	first [256]bool
}

// New makes a Masker of values. Of a value that is a set of keys for AWS each
// part counts. It returns nil when there is nothing to look for.
func New(values ...task.Secret) *Masker {
	m := &Masker{words: map[byte][]word{}}
	seen := map[word]bool{}
	for _, v := range values {
		m.add(v.Reveal(), seen)
		if keys, err := task.ParseAWSKeys(v.Reveal()); err == nil {
			if len(keys.ID) >= 16 { // as those of AWS are, and no user's name beside a password
				m.add(keys.ID, seen)
			}
			m.add(keys.Secret.Reveal(), seen)
			m.add(keys.Token.Reveal(), seen)
		}
	}
	if len(seen) == 0 {
		return nil
	}
	m.mark = '*'
	for _, c := range []byte("*#~^|!?") {
		if !m.uses(c) {
			m.mark = c
			break
		}
	}
	return m
}

func (m *Masker) uses(c byte) bool {
	for _, list := range m.words {
		for _, w := range list {
			if w.alike == exactly && strings.IndexByte(w.text, c) >= 0 {
				return true
			}
		}
	}
	return false
}

// add adds the words of one value.
func (m *Masker) add(value string, seen map[word]bool) {
	if len(value) < minWord {
		return
	}
	m.addWord(word{value, exactly}, seen)
	m.addWord(word{html.EscapeString(value), exactly}, seen)
	m.addWord(word{hex.EncodeToString([]byte(value)), hexish}, seen)
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + value))
		whole := (before + len(value)) * 8 / 6 // characters that are of the value alone
		m.addWord(word{text[(before*8+5)/6 : whole], base64ish}, seen)
	}
}

func (m *Masker) addWord(w word, seen map[word]bool) {
	if len(w.text) < minWord || seen[w] {
		return
	}
	seen[w] = true
	for c := range 256 {
		c := byte(c)
		if !w.same(w.text[0], c) {
			continue
		}
		m.words[c] = append(m.words[c], w)
		m.begins(c, w)
	}
}

// begins notes which two bytes a word may begin with when its first byte is c.
func (m *Masker) begins(c byte, w word) {
	pair := func(a, b byte) {
		i := uint16(a)<<8 | uint16(b)
		m.pairs[i>>6] |= 1 << (i & 63)
		m.first[a] = true
	}
	starts := []byte{c}
	if c == ' ' {
		starts = append(starts, '+')
	}
	for _, a := range starts {
		for b := range 256 {
			if w.same(w.text[1], byte(b)) {
				pair(a, byte(b))
			}
		}
		pair(a, '%')
		pair(a, '\\')
		if w.text[1] == ' ' {
			pair(a, '+')
		}
	}
	for _, digits := range []string{"0123456789abcdef", "0123456789ABCDEF"} {
		pair('%', digits[c>>4])
	}
	pair('\\', 'u')
	pair('\\', 'x')
	for e := range 256 {
		if unescaped(byte(e)) == c {
			pair('\\', byte(e))
		}
	}
}

// same says whether b stands for a byte of the word.
func (w word) same(of, b byte) bool {
	if of == b {
		return true
	}
	switch w.alike {
	case base64ish:
		return of == '+' && b == '-' || of == '/' && b == '_'
	case hexish:
		return of >= 'a' && b == of-('a'-'A')
	case exactly:
	}
	return false
}

// unescaped is what a backslash makes of the next byte; 0: nothing.
func unescaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case '"', '\'', '\\', '/', '&', '=', '$', '`', '!', ' ':
		return c
	}
	return 0
}

// escaped reads a byte that is spelled at the beginning of d. more says that d
// ends before that is known; size 0 that nothing is spelled there.
func escaped(d []byte) (c byte, size int, more bool) {
	digits := func(from, n int) (v int, ok, short bool) {
		for i := from; i < from+n; i++ {
			if i >= len(d) {
				return 0, false, true
			}
			x := nibble(d[i])
			if x < 0 {
				return 0, false, false
			}
			v = v<<4 | x
		}
		return v, true, false
	}
	numeric := func(from, n int) (byte, int, bool) {
		v, ok, short := digits(from, n)
		if !ok || v > 0xff {
			return 0, 0, short
		}
		return byte(v), from + n, false
	}
	switch {
	case d[0] == '%':
		return numeric(1, 2)
	case d[0] != '\\':
		return 0, 0, false
	case len(d) < 2:
		return 0, 0, true
	case d[1] == 'u':
		return numeric(2, 4)
	case d[1] == 'x':
		return numeric(2, 2)
	}
	if c := unescaped(d[1]); c != 0 {
		return c, 2, false
	}
	return 0, 0, false
}

func nibble(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// found says how many bytes at the beginning of d are the word as it is; more
// that d ends within what may be it.
func (w word) found(d []byte) (n int, more bool) {
	for i := range len(w.text) {
		if i >= len(d) {
			return 0, true
		}
		if !w.same(w.text[i], d[i]) {
			return 0, false
		}
	}
	return len(w.text), false
}

// spelled is as found, of the word with any of its bytes spelled in one of the
// two ways. Each is tried alone too, since the sign of the other may be meant.
func (w word) spelled(d []byte, percent, backslash bool) (n int, more bool) {
	for i := range len(w.text) {
		of := w.text[i]
		if n >= len(d) {
			return 0, true
		}
		if b := d[n]; b == '%' && percent || b == '\\' && backslash {
			c, size, short := escaped(d[n:])
			if short {
				return 0, true
			}
			if size > 0 && w.same(of, c) {
				n += size
				continue
			}
		}
		if !w.same(of, d[n]) && (of != ' ' || d[n] != '+' || w.alike != exactly) {
			return 0, false
		}
		n++
	}
	return n, false
}

// at says how many bytes at the beginning of d are the longest word there, and
// whether with more bytes it may be a longer one.
func (m *Masker) at(d []byte) (n int, more bool) {
	take := func(k int, short bool) { n, more = max(n, k), more || short }
	try := func(list []word) {
		for _, w := range list {
			take(w.found(d))
			take(w.spelled(d, true, false))
			take(w.spelled(d, false, true))
			take(w.spelled(d, true, true))
		}
	}
	try(m.words[d[0]])
	switch d[0] {
	case '+':
		try(m.words[' '])
	case '%', '\\':
		c, size, short := escaped(d)
		more = more || short
		if size > 0 && c != d[0] {
			try(m.words[c])
		}
	}
	return n, more
}

// scan tells hit of each word in d, in the order in which they begin, and returns
// from where on more must be known. With final nothing more comes.
func (m *Masker) scan(d []byte, final bool, hit func(start, end int)) (hold int) {
	if m == nil {
		return len(d)
	}
	last := len(d) - 1
	for i := range d {
		if i < last {
			p := uint16(d[i])<<8 | uint16(d[i+1])
			if m.pairs[p>>6]&(1<<(p&63)) == 0 {
				continue
			}
		} else if !m.first[d[i]] {
			continue
		}
		n, more := m.at(d[i:])
		if more && !final {
			return i
		}
		if n > 0 {
			hit(i, i+n)
		}
	}
	return len(d)
}

// Found says whether a word is in b.
func (m *Masker) Found(b []byte) bool {
	found := false
	m.scan(b, true, func(int, int) { found = true })
	return found
}

// Names says whether a value stands in text whatever the case of its letters, as
// in the name of a header field.
func (m *Masker) Names(text string) bool {
	if m == nil {
		return false
	}
	text = strings.ToLower(text)
	for _, list := range m.words {
		for _, w := range list {
			if w.alike != base64ish && strings.Contains(text, strings.ToLower(w.text)) {
				return true
			}
		}
	}
	return false
}

// Seal puts "[sealed]" in place of each word.
func (m *Masker) Seal(text string) string { return m.whole(text, false) }

// Cover puts mark bytes in place of each word; the length stays.
func (m *Masker) Cover(text string) string { return m.whole(text, true) }

func (m *Masker) whole(text string, cover bool) string {
	if m == nil || !m.Found([]byte(text)) {
		return text
	}
	s := stream{cover: cover}
	return string(s.next(m, []byte(text), true))
}

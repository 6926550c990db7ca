package meter

import "strconv"

const (
	deepest    = 4   // keys that are remembered
	longestKey = 48  // bytes of one
	mostDigits = 18  // of a number: more than any count
	maxDepth   = 512 // of a document; what is deeper is no answer of a model
)

// scan reads JSON byte by byte, whatever pieces it comes in, and tells the
// numbers and strings that stand in objects, each with its path of keys. What is
// in an array is left out, but an array around everything is not there. It
// holds the path and one value, and takes what is no JSON for nothing.
type scan struct {
	found func(path string, text []byte) // of a value; text is valid during the call

	stack []byte   // '{' or '[' for each that is open
	keys  []string // of the objects that are open, while there are no more than deepest
	array int      // how many of the open ones are arrays that matter
	state state
	bad   bool // it is no JSON; nothing more is found
	over  bool // a key or value is longer than is kept
	slash bool // the last byte of a string was a backslash
	hex   int  // digits of an escape that are still to come
	buf   []byte
	value bool // buf is of a value, not of a key
}

type state uint8

const (
	between state = iota // of tokens
	text                 // in a string
	word                 // in a number or a literal
)

// feed reads more.
func (s *scan) feed(b []byte) {
	for _, c := range b {
		if s.bad {
			return
		}
		s.next(c)
	}
}

func (s *scan) next(c byte) {
	switch s.state {
	case text:
		s.inText(c)
		return
	case word:
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '-' || c == '+' {
			s.keep(c)
			return
		}
		s.state = between
		s.tell(true)
	case between:
	}
	switch c {
	case ' ', '\t', '\r', '\n':
	case '{', '[':
		s.open(c)
	case '}', ']':
		s.close(c)
	case '"':
		s.begin(text)
	case ':':
		s.value = true
	case ',':
		s.value = false
	default:
		s.begin(word)
		s.keep(c)
	}
}

func (s *scan) begin(st state) {
	s.state, s.over, s.slash, s.hex = st, false, false, 0
	s.buf = s.buf[:0]
}

// inText reads a string's byte. Escapes are kept as one byte that stands in no
// key or name of ours.
func (s *scan) inText(c byte) {
	switch {
	case s.hex > 0:
		s.hex--
	case s.slash:
		s.slash = false
		if s.keep('?'); c == 'u' {
			s.hex = 4
		}
	case c == '\\':
		s.slash = true
	case c == '"':
		s.state = between
		if s.inObject() && !s.value {
			s.key()
		} else {
			s.tell(false)
		}
	default:
		s.keep(c)
	}
}

func (s *scan) keep(c byte) {
	if len(s.buf) >= longestName+len("models/") {
		s.over = true
		return
	}
	s.buf = append(s.buf, c)
}

func (s *scan) inObject() bool { return len(s.stack) > 0 && s.stack[len(s.stack)-1] == '{' }

// key notes the key that was read.
func (s *scan) key() {
	depth := len(s.keys)
	if depth == 0 || s.array > 0 {
		return
	}
	k := "?"
	if !s.over && len(s.buf) <= longestKey {
		k = string(s.buf)
	}
	s.keys[depth-1] = k
}

// open enters an object or an array.
func (s *scan) open(c byte) {
	if len(s.stack) >= maxDepth {
		s.bad = true
		return
	}
	around := c == '[' && len(s.stack) == 0
	s.stack = append(s.stack, c)
	switch {
	case c == '[' && !around:
		s.array++
	case c == '{' && s.array == 0:
		s.keys = append(s.keys, "")
	}
	s.value = false
}

// close leaves one.
func (s *scan) close(c byte) {
	n := len(s.stack)
	if n == 0 || (c == '}') != (s.stack[n-1] == '{') {
		s.bad = true
		return
	}
	s.stack = s.stack[:n-1]
	switch {
	case c == ']' && n > 1:
		s.array--
	case c == '}' && s.array == 0:
		s.keys = s.keys[:len(s.keys)-1]
	}
	s.value = false
}

// tell tells a value.
func (s *scan) tell(number bool) {
	if s.array > 0 || !s.inObject() || s.over || len(s.keys) > deepest {
		return
	}
	if number && len(s.buf) > mostDigits {
		return
	}
	path := s.keys[0]
	for _, k := range s.keys[1:] {
		path += "." + k
	}
	s.found(path, s.buf)
}

// again makes it read another document.
func (s *scan) again() {
	*s = scan{found: s.found, stack: s.stack[:0], keys: s.keys[:0], buf: s.buf[:0]}
}

// count reads a number of tokens; false for what is none.
func count(text []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil && n >= 0 && n < 1e12
}

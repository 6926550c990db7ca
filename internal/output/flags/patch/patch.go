package patch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxLine bounds what is given of one line of a file, and what one line of a header
// may have.
const MaxLine = 64 << 10

// How a file came about that is not what its name says.
const (
	Renamed = "rename"
	Copied  = "copy"
)

// The modes that git keeps.
const (
	ModeFile       = 0o100644
	ModeExecutable = 0o100755
	ModeLink       = 0o120000
	ModeModule     = 0o160000
)

// File is one file of a patch. Names are bytes as they are in the tree.
type File struct {
	Old, New         string // empty: it is not there before, or after
	OldMode, NewMode uint32 // 0: not told, or not there
	Moved            string // Renamed or Copied, or empty
	Binary           bool   // its content is not in lines
}

// Name is the file's name after the patch, or before it where it is removed.
func (f File) Name() string {
	if f.New != "" {
		return f.New
	}
	return f.Old
}

// Line is one line of a hunk.
type Line struct {
	Op   byte   // '+', '-' or ' '
	New  int    // its number in the new file; for '-' that of the next line there
	Text []byte // without the line's end; valid until the visit is over
	Cut  bool   // there is more of it than MaxLine
}

// Visitor is told what is in a patch, in its order. File is called once the header
// is read, and End after the last line of that file.
type Visitor interface {
	File(f File)
	Line(l Line)
	End()
}

// Error says where a patch is not what git writes.
type Error struct {
	Line int // from 1
	Text string
}

// Error gives line and text.
func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Read visits the files of a patch. Errors are *Error, or of r.
func Read(r io.Reader, v Visitor) error {
	p := &reader{in: bufio.NewReaderSize(r, MaxLine), to: v}
	more, err := p.next()
	for err == nil && more {
		more, err = p.file()
	}
	return err
}

type reader struct {
	in   *bufio.Reader
	to   Visitor
	line []byte // the current line without its end
	cut  bool
	at   int // its number
}

func (p *reader) bad(format string, args ...any) (bool, error) {
	return false, &Error{p.at, fmt.Sprintf(format, args...)}
}

// next reads a line; false means that there is none.
func (p *reader) next() (bool, error) {
	line, err := p.in.ReadSlice('\n')
	p.at++
	p.cut = errors.Is(err, bufio.ErrBufferFull)
	switch {
	case p.cut:
		p.line = append(p.line[:0:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = p.in.ReadSlice('\n')
		}
		if err == nil {
			return true, nil
		}
	case err == nil:
		p.line = line[:len(line)-1]
		return true, nil
	case errors.Is(err, io.EOF) && len(line) == 0:
		return false, nil
	}
	if errors.Is(err, io.EOF) {
		return p.bad("the patch is cut short")
	}
	return false, err
}

// nextOf is next for a line that must be there and whole.
func (p *reader) nextOf(what string) error {
	more, err := p.next()
	if err == nil && !more {
		_, err = p.bad("the patch ends where %s should be", what)
	}
	if err == nil && p.cut {
		_, err = p.bad("the line is too long for %s", what)
	}
	return err
}

func (p *reader) rest(prefix string) (string, bool) {
	return strings.CutPrefix(string(p.line[:min(len(p.line), MaxLine)]), prefix)
}

// file reads one file, from its first line to the first line of the next; false
// means that there is no next.
func (p *reader) file() (bool, error) {
	first, ok := p.rest("diff --git ")
	if !ok || p.cut {
		return p.bad("a file begins with \"diff --git\"")
	}
	h := header{first: first, line: p.at}
	for {
		more, err := p.next()
		if err != nil {
			return false, err
		}
		if !more || bytes.HasPrefix(p.line, []byte("diff --git ")) {
			return more, p.told(&h)
		}
		if p.cut {
			return p.bad("a line of a header is too long")
		}
		switch text := string(p.line); {
		case strings.HasPrefix(text, "--- "):
			return p.hunks(&h)
		case text == "GIT binary patch":
			return p.binary(&h)
		default:
			if why := h.extended(text); why != "" {
				return p.bad("%s", why)
			}
		}
	}
}

// told gives a file without content on.
func (p *reader) told(h *header) error {
	f, why := h.file("", "")
	if why != "" {
		return &Error{h.line, why}
	}
	p.to.File(f)
	p.to.End()
	return nil
}

// binary reads the binary data of a file: one or two pieces, each up to an empty
// line.
func (p *reader) binary(h *header) (bool, error) {
	h.binary = true
	f, why := h.file("", "")
	if why != "" {
		return p.bad("%s", why)
	}
	p.to.File(f)
	defer p.to.End()
	for piece := 0; ; piece++ {
		more, err := p.next()
		if err != nil {
			return false, err
		}
		if piece > 0 && (!more || bytes.HasPrefix(p.line, []byte("diff --git "))) {
			return more, nil
		}
		kind, size, _ := strings.Cut(string(p.line[:min(len(p.line), 64)]), " ")
		if !more || piece == 2 || kind != "literal" && kind != "delta" || !number(size) {
			return p.bad("binary data begins with literal or delta and a size")
		}
		for {
			if err := p.nextOf("binary data"); err != nil {
				return false, err
			}
			if len(p.line) == 0 {
				break
			}
			if !base85(p.line) {
				return p.bad("a line of binary data is malformed")
			}
		}
	}
}

// base85 says whether the line is a length and as many characters as it says.
func base85(line []byte) bool {
	n := 0
	switch c := line[0]; {
	case c >= 'A' && c <= 'Z':
		n = int(c-'A') + 1
	case c >= 'a' && c <= 'z':
		n = int(c-'a') + 27
	default:
		return false
	}
	for _, c := range line[1:] {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"',./:[]\\", c) >= 0 {
			return false
		}
	}
	return len(line)-1 == (n+3)/4*5
}

// hunks reads the lines of a file; the current line is the one with its old name.
func (p *reader) hunks(h *header) (bool, error) {
	old, _ := p.rest("--- ")
	if err := p.nextOf("the new name"); err != nil {
		return false, err
	}
	name, ok := p.rest("+++ ")
	if !ok {
		return p.bad("the old name is followed by the new one")
	}
	f, why := h.file(old, name)
	if why != "" {
		return p.bad("%s", why)
	}
	p.to.File(f)
	defer p.to.End()
	if err := p.nextOf("a hunk"); err != nil {
		return false, err
	}
	for n := 0; ; n++ {
		if n > 0 && bytes.HasPrefix(p.line, []byte("diff --git ")) {
			return true, nil
		}
		more, err := p.hunk()
		if err != nil || !more {
			return more, err
		}
	}
}

// hunk reads one hunk, from its first line to the first line after it.
func (p *reader) hunk() (bool, error) {
	was, now, at, ok := counts(p.line)
	if !ok {
		return p.bad("a hunk begins with @@ and its place")
	}
	begun := false
	for was > 0 || now > 0 {
		more, err := p.next()
		if err != nil || !more {
			if err == nil {
				_, err = p.bad("the patch ends within a hunk")
			}
			return false, err
		}
		op := byte(0)
		if len(p.line) > 0 {
			op = p.line[0]
		}
		if op == '\\' && begun && p.noNewline() {
			continue
		}
		if op == ' ' || op == '-' {
			was--
		}
		if op == ' ' || op == '+' {
			now--
		}
		if op != ' ' && op != '+' && op != '-' || was < 0 || now < 0 {
			return p.bad("a line of a hunk begins with a space, + or -, and there are as many as it says")
		}
		begun = true
		p.to.Line(Line{Op: op, New: at, Text: p.line[1:], Cut: p.cut})
		if op != '-' {
			at++
		}
	}
	more, err := p.next()
	if err == nil && more && p.noNewline() {
		more, err = p.next()
	}
	return more, err
}

func (p *reader) noNewline() bool { return string(p.line) == `\ No newline at end of file` }

// counts reads the first line of a hunk: how many old and new lines it has, and
// where it begins in the new file.
func counts(line []byte) (was, now, at int, ok bool) {
	text, ok := bytes.CutPrefix(line, []byte("@@ -"))
	if !ok {
		return 0, 0, 0, false
	}
	_, was, text, ok = place(text)
	text, plus := bytes.CutPrefix(text, []byte(" +"))
	if !ok || !plus {
		return 0, 0, 0, false
	}
	at, now, text, ok = place(text)
	return was, now, at, ok && bytes.HasPrefix(text, []byte(" @@")) && was+now > 0
}

// place reads "12,3" or "12", which is one line.
func place(text []byte) (at, n int, rest []byte, ok bool) {
	at, text, ok = digits(text)
	if text, more := bytes.CutPrefix(text, []byte(",")); ok && more {
		n, text, ok = digits(text)
		return at, n, text, ok
	}
	return at, 1, text, ok
}

// digits reads at most nine of them.
func digits(text []byte) (n int, rest []byte, ok bool) {
	i := 0
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		n = n*10 + int(text[i]-'0')
		i++
		if i > 9 {
			return 0, nil, false
		}
	}
	return n, text[i:], i > 0
}

func number(text string) bool {
	_, rest, ok := digits([]byte(text))
	return ok && len(rest) == 0
}

package flags

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// textFault is what a line of text is not as it looks by.
type textFault struct{ id, why string }

// The faults of text, by their bits.
const (
	control = 1 << iota
	bidi
	invisible
	homoglyph
)

// textFaults says by what a line reads otherwise than it is. first is the first line
// of a file, which may begin with a mark of the encoding.
func textFaults(line []byte, first bool) []textFault {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if first {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	found, plain := controls(line)
	if !plain {
		found |= hidden(line)
		if mixed(line) {
			found |= homoglyph
		}
	}
	if found == 0 {
		return nil
	}
	var list []textFault
	for _, f := range []struct {
		bit int
		textFault
	}{
		{bidi, textFault{"text.bidi", "The line has marks that turn the direction of text, so it reads in another order than it runs."}},
		{invisible, textFault{"text.invisible", "The line has characters that nobody sees."}},
		{homoglyph, textFault{"text.homoglyph", "A word of the line mixes letters of different scripts that look alike."}},
		{control, textFault{"text.control", "The line has control characters, with which a terminal hides or moves text."}},
	} {
		if found&f.bit != 0 {
			list = append(list, f.textFault)
		}
	}
	return list
}

// controls looks at single bytes, and says whether there is nothing but ASCII.
func controls(line []byte) (found int, plain bool) {
	plain = true
	for _, c := range line {
		switch {
		case c >= 0x80:
			plain = false
		case c < ' ' && c != '\t' && c != '\f', c == 0x7f:
			found |= control
		}
	}
	return found, plain
}

// hidden finds characters that turn the direction of text, or that nobody sees.
func hidden(line []byte) int {
	found := 0
	before, flag := rune(0), false // flag: a flag's letters, which are tags, may follow
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		line = line[n:]
		tag := r >= 0xE0020 && r <= 0xE007F
		switch {
		case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069, r == 0x200E, r == 0x200F, r == 0x061C:
			found |= bidi
		case r == 0x200C || r == 0x200D: // They join letters of some scripts, and emoji.
			if before < 0x250 {
				found |= invisible
			}
		case tag:
			if !flag {
				found |= invisible
			}
		case r >= 0xFE00 && r <= 0xFE0F, r >= 0xE0100 && r <= 0xE01EF: // They choose a shape of what is ahead of them.
			if before < 0x80 && (before < '0' || before > '9') && before != '#' && before != '*' || selector(before) {
				found |= invisible
			}
		case unseen(r):
			found |= invisible
		case r >= 0x80 && r < 0xA0 && n > 1:
			found |= control
		}
		flag = r == 0x1F3F4 || flag && tag
		before = r
	}
	return found
}

func selector(r rune) bool { return r >= 0xFE00 && r <= 0xFE0F || r >= 0xE0100 && r <= 0xE01EF }

// unseen says whether the character is blank whatever stands around it.
func unseen(r rune) bool {
	switch r {
	case 0x180E, 0x200B, 0x2060, 0x2061, 0x2062, 0x2063, 0x2064, 0xFEFF, 0x115F, 0x1160, 0x3164, 0xFFA0, 0x034F, 0xE0001:
		return true
	}
	return r >= 0x206A && r <= 0x206F || r >= 0xFFF9 && r <= 0xFFFB
}

// mixed says whether a word has Latin letters beside letters of another script that
// look like them. Greek ones that look like no Latin one don't count: formulas are
// written so.
func mixed(line []byte) bool {
	latin, other := false, false
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		line = line[n:]
		switch {
		case r < utf8.RuneSelf:
			letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
			if !letter && r != '_' && (r < '0' || r > '9') {
				latin, other = false, false
				continue
			}
			latin = latin || letter
		case r >= 0xFF21 && r <= 0xFF5A, r >= 0x1D400 && r <= 0x1D7FF: // Languages take them for the plain ones.
			other = true
		case unicode.Is(unicode.Latin, r):
			latin = true
		case lookalike(r):
			other = true
		case !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r):
			latin, other = false, false
			continue
		}
		if latin && other {
			return true
		}
	}
	return false
}

func lookalike(r rune) bool {
	switch r {
	case 'Α', 'Β', 'Ε', 'Ζ', 'Η', 'Ι', 'Κ', 'Μ', 'Ν', 'Ο', 'Ρ', 'Τ', 'Υ', 'Χ', 'ο', 'ν':
		return true // Greek
	}
	return unicode.In(r, unicode.Cyrillic, unicode.Armenian, unicode.Cherokee, unicode.Lisu)
}

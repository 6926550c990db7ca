// Package glob says which files of a tree are to be kept, and what they are
// called outside.
//
// Words. A pattern is a path relative to the tree's root, its parts divided by
// "/". In a part, "*" stands for any bytes and "?" for one byte; a part that is
// "**" stands for any number of parts, none included, and as the last part for
// everything beneath. Everything else stands for itself. Names are bytes, not
// text. A shown name is a file's name made fit for addresses, file systems and
// terminals; two files may have the same.
//
// Pure: it opens nothing and follows nothing.
package glob

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The bounds of patterns.
const (
	MaxPatterns = 64
	maxPattern  = 1024 // bytes
	maxParts    = 64
	maxShown    = 200 // bytes of a shown name
)

// Set is a checked list of patterns. The zero Set matches nothing.
type Set struct{ all [][]string }

// Compile checks patterns. The error says which one is wrong and why.
func Compile(patterns []string) (Set, error) {
	if len(patterns) > MaxPatterns {
		return Set{}, fmt.Errorf("more than %d patterns", MaxPatterns)
	}
	var s Set
	for _, p := range patterns {
		if why := fault(p); why != "" {
			return Set{}, fmt.Errorf("%q %s", p, why)
		}
		s.all = append(s.all, strings.Split(p, "/"))
	}
	return s, nil
}

func fault(p string) string {
	switch parts := strings.Split(p, "/"); {
	case p == "":
		return "is empty; write a pattern such as dist/**"
	case len(p) > maxPattern || len(parts) > maxParts:
		return fmt.Sprintf("is longer than %d bytes or %d parts", maxPattern, maxParts)
	case strings.HasPrefix(p, "/"):
		return "must be relative to the workspace; leave the first / out"
	case strings.ContainsAny(p, "[]{}\\"):
		return `has a character that patterns don't have; only * and ? and ** stand for something`
	case path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../"):
		return `must be clean: no "." or ".." parts, no // and no / at its end`
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "has control characters"
	default:
		for _, part := range parts {
			if strings.Contains(part, "**") && part != "**" {
				return "has ** beside something else in one part; ** stands alone between slashes"
			}
			if strings.EqualFold(part, ".git") {
				return "names .git, which is never kept"
			}
		}
	}
	return ""
}

// Match says whether a name matches any pattern.
func (s Set) Match(name string) bool {
	if len(s.all) == 0 {
		return false
	}
	parts := strings.Split(name, "/")
	for _, pattern := range s.all {
		if matchParts(pattern, parts) {
			return true
		}
	}
	return false
}

// matchParts goes back to the last "**" alone, so its time is at most the
// product of both lengths.
func matchParts(pattern, parts []string) bool {
	i, j, star, from := 0, 0, -1, 0
	for j < len(parts) {
		switch {
		case i < len(pattern) && pattern[i] == "**":
			star, from = i, j
			i++
			if i == len(pattern) {
				return true // everything beneath
			}
		case i < len(pattern) && matchPart(pattern[i], parts[j]):
			i, j = i+1, j+1
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	return i == len(pattern)
}

// matchPart is the same for the bytes of one part.
func matchPart(pattern, part string) bool {
	i, j, star, from := 0, 0, -1, 0
	for j < len(part) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, from = i, j
			i++
		case i < len(pattern) && (pattern[i] == '?' || pattern[i] == part[j]):
			i, j = i+1, j+1
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == '*' {
		i++
	}
	return i == len(pattern)
}

// Shown is the name by which a file is listed and asked for: letters, digits and
// a few marks of it, "_" in place of everything else, and its end when it is
// long. It never is empty, "." or "..", nor has it such a part.
func Shown(name string) string {
	var b strings.Builder
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && n <= 1 || !plain(r) {
			r = '_'
		}
		b.WriteRune(r)
		name = name[n:]
	}
	shown := b.String()
	if len(shown) > maxShown {
		cut := len(shown) - maxShown
		for !utf8.RuneStart(shown[cut]) {
			cut++
		}
		shown = "_" + shown[cut:]
	}
	parts := strings.Split(shown, "/")
	for i, p := range parts {
		if p == "" || p == "." || p == ".." {
			parts[i] = "_" + p
		}
	}
	return strings.Join(parts, "/")
}

func plain(r rune) bool {
	return unicode.IsLetter(r) && r != 0x115f && r != 0x1160 && r != 0x3164 && r != 0xffa0 || unicode.IsDigit(r) || strings.ContainsRune("/._-+@=,~", r)
}

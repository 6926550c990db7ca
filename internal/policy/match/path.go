package match

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// CleanPath says whether a path means the same to everyone who reads it. Dot
// segments, empty segments, and what ends or divides paths, hidden behind one or
// two encodings, are what makes servers read another path than the one that was
// compared: slashes, backslashes, dots, semicolons, question marks, number signs
// and control characters.
func CleanPath(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || strings.ContainsAny(path, "\\?#") {
		return false
	}
	for i := range len(path) {
		if path[i] <= ' ' || path[i] >= 0x7f || path[i] == '%' && !cleanEscape(path[i+1:]) {
			return false
		}
	}
	// What is no UTF-8 once decoded may be an overlong dot or slash.
	if plain, err := url.PathUnescape(path); err != nil || !utf8.ValidString(plain) {
		return false
	}
	for segment := range strings.SplitSeq(path, "/") {
		// Some servers cut parameters off a segment before they look at it.
		if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." || name == "" && segment != "" {
			return false
		}
	}
	return true
}

// cleanEscape judges what follows a percent sign.
func cleanEscape(after string) bool {
	if len(after) < 2 || !isHex(after[0]) || !isHex(after[1]) {
		return false
	}
	switch code := strings.ToLower(after[:2]); code {
	case "2f", "5c", "2e", "3b", "3f", "23", "7f":
		return false
	case "25":
		return len(after) < 4 || !isHex(after[2]) || !isHex(after[3]) || cleanEscape(after[2:])
	}
	return after[0] != '0' && after[0] != '1' // control characters, which end lines and texts
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// PathFits compares a clean path with a rule's: "*" is one segment that is not
// empty, a last "**" is any rest, the empty one included.
func PathFits(pattern, path string) bool {
	for {
		if pattern == "/**" {
			return strings.HasPrefix(path, "/")
		}
		p, restP, moreP := cutSegment(pattern)
		s, rest, more := cutSegment(path)
		if p != s && (p != "*" || s == "") || moreP != more {
			return false
		}
		if !more {
			return true
		}
		pattern, path = restP, rest
	}
}

// cutSegment splits "/a/b" into "a" and "/b".
func cutSegment(path string) (segment, rest string, more bool) {
	path = strings.TrimPrefix(path, "/")
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:], true
	}
	return path, "", false
}

// PathWithin says whether all paths of inner are ones of outer.
func PathWithin(inner, outer string) bool {
	for {
		if outer == "/**" || inner == outer {
			return true
		}
		in, restIn, moreIn := cutSegment(inner)
		out, restOut, moreOut := cutSegment(outer)
		// "**" in inner is more than any segment, and an empty segment is not "*".
		if in == "**" || in != out && (out != "*" || in == "") || moreIn != moreOut {
			return false
		}
		if !moreIn {
			return true
		}
		inner, outer = restIn, restOut
	}
}

// PathsOverlap says whether some path is one of both.
func PathsOverlap(a, b string) bool {
	for {
		if a == "/**" || b == "/**" {
			return true
		}
		segA, restA, moreA := cutSegment(a)
		segB, restB, moreB := cutSegment(b)
		if segA != segB && !(segA == "*" && segB != "") && !(segB == "*" && segA != "") || moreA != moreB {
			return false
		}
		if !moreA {
			return true
		}
		a, b = restA, restB
	}
}

// PathFault says what is wrong with a path pattern, and what to write.
func PathFault(p string) string {
	switch {
	case !strings.HasPrefix(p, "/"):
		return "can't match: paths begin with \"/\""
	case len(p) > 1024:
		return "is longer than 1024 bytes"
	case strings.ContainsAny(p, "?#"):
		return "can't match: paths are compared without query and fragment; cut it off"
	case !CleanPath(p):
		return "can't match: requests with \"//\", dot segments, or characters that are not percent-encoded are refused; write the path as it is sent"
	}
	segments := strings.Split(p[1:], "/")
	for i, s := range segments {
		if strings.Contains(s, "*") && s != "*" && (s != "**" || i != len(segments)-1) {
			return "can't match: \"*\" stands for a whole segment, and \"**\" only at the end for any rest"
		}
	}
	return ""
}

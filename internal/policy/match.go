package policy

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/task"
)

// matchHost says whether a rule's host stands for the use's. Both are canonical.
// A pattern "*.x" stands for one label before x, "**.x" for one or more; it
// never stands for x itself, nor for an IP address. Every other star stands for
// nothing, so that a pattern that the parser would refuse opens nothing either.
func matchHost(pattern string, h host) bool {
	if !strings.HasPrefix(pattern, "*") {
		return pattern == h.text
	}
	base, deep, ok := cutPattern(pattern)
	if !ok || !h.name {
		return false
	}
	front, found := strings.CutSuffix(h.text, "."+base)
	return found && front != "" && (deep || !strings.Contains(front, "."))
}

// cutPattern splits "*.x" and "**.x"; deep is true for the second.
func cutPattern(pattern string) (base string, deep, ok bool) {
	if base, ok = strings.CutPrefix(pattern, "**."); ok {
		deep = true
	} else {
		base, ok = strings.CutPrefix(pattern, "*.")
	}
	return base, deep, ok && base != "" && !strings.Contains(base, "*")
}

// isPattern says whether the rule's host is more than one host.
func isPattern(host string) bool { return strings.HasPrefix(host, "*") }

// host is what a use names, in its canonical form.
type host struct {
	text string
	name bool // a well-formed name that is no address, which patterns may stand for
}

func newHost(text string) host { return host{text: text, name: isName(text)} }

// isName says whether text is a DNS name: labels of 1 to 63 bytes, at most 253
// in all, and not an address in any spelling.
func isName(text string) bool {
	if len(text) > 253 || allDigits(text) {
		return false
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return false
	}
	label := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '.':
			if label == 0 {
				return false
			}
			label = 0
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
			if label++; label > 63 {
				return false
			}
		default:
			return false
		}
	}
	return label > 0
}

// Request is one HTTP request on a connection.
type Request struct {
	Method string // as sent; methods are told apart by case (RFC 9110 §9.1)
	Path   string // escaped, as sent, without the query
}

// valid says whether the method may be asked for at all: a token, and not a
// tunnel, inside which nothing could be decided.
func (q Request) valid() bool {
	if q.Method == "" || len(q.Method) > 32 || q.Method == "CONNECT" {
		return false
	}
	for i := range len(q.Method) {
		c := q.Method[i]
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// matches says whether methods and paths, as in a rule, stand for the request.
func (q Request) matches(methods, paths []string) bool {
	if len(methods) > 0 && !slices.Contains(methods, q.Method) {
		return false
	}
	if len(paths) == 0 {
		return true
	}
	return cleanPath(q.Path) && slices.ContainsFunc(paths, func(p string) bool { return matchPath(p, q.Path) })
}

// cleanPath says whether a path means the same to everyone who reads it. Dot
// segments, empty segments, and what ends or divides paths, hidden behind one or
// two encodings, are what makes servers read another path than the one that was
// compared: slashes, backslashes, dots, semicolons, question marks, number signs
// and control characters.
func cleanPath(path string) bool {
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

// matchPath compares a clean path with a rule's: "*" is one segment that is not
// empty, a last "**" is any rest, the empty one included.
func matchPath(pattern, path string) bool {
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

// Covers says whether a lease's own binding covers a request on a connection:
// host, port, method and path. A lease that names no host or no port covers
// nothing.
func Covers(lease task.Lease, use Use, q Request) bool {
	h, ok := use.host()
	if !ok || use.Port == 0 || !q.valid() || !slices.Contains(lease.Ports, use.Port) {
		return false
	}
	bound := newHost(h)
	return slices.ContainsFunc(lease.Hosts, func(p string) bool { return matchHost(ruleHost(p), bound) }) &&
		q.matches(lease.Methods, lease.Paths)
}

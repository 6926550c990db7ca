package match

import (
	"net/netip"
	"strings"
)

// HostFits says whether a rule's host stands for the use's. Both are canonical.
// A pattern "*.x" stands for one label before x, "**.x" for one or more; it
// never stands for x itself, nor for an IP address. Every other star stands for
// nothing, so that a pattern that the parser would refuse opens nothing either.
func HostFits(pattern string, h Host) bool {
	if !strings.HasPrefix(pattern, "*") {
		return pattern == h.Text
	}
	base, deep, ok := CutPattern(pattern)
	if !ok || !h.Named {
		return false
	}
	front, found := strings.CutSuffix(h.Text, "."+base)
	return found && front != "" && (deep || !strings.Contains(front, "."))
}

// CutPattern splits "*.x" and "**.x"; deep is true for the second.
func CutPattern(pattern string) (base string, deep, ok bool) {
	if base, ok = strings.CutPrefix(pattern, "**."); ok {
		deep = true
	} else {
		base, ok = strings.CutPrefix(pattern, "*.")
	}
	return base, deep, ok && base != "" && !strings.Contains(base, "*")
}

// IsPattern says whether the rule's host is more than one host.
func IsPattern(host string) bool { return strings.HasPrefix(host, "*") }

// Host is what a use names, in its canonical form.
type Host struct {
	Text  string
	Named bool // a well-formed name that is no address, which patterns may stand for
}

// NewHost looks at a canonical name or address.
func NewHost(text string) Host { return Host{Text: text, Named: isName(text)} }

// isName says whether text is a DNS name: labels of 1 to 63 bytes, at most 253
// in all, and not an address in any spelling.
func isName(text string) bool {
	if len(text) > 253 || AllDigits(text) {
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

// HostWithin says whether all hosts that inner stands for are ones of outer.
func HostWithin(inner, outer string) bool {
	inner, outer = RuleHost(inner), RuleHost(outer)
	if inner == outer {
		return true
	}
	base, deep, pattern := CutPattern(inner)
	if !pattern {
		return HostFits(outer, NewHost(inner))
	}
	outerBase, outerDeep, ok := CutPattern(outer)
	// "*.b.x" and "**.b.x" lie in "**.x"; "*.x" lies in "**.x".
	return ok && outerDeep && (base == outerBase && !deep || strings.HasSuffix(base, "."+outerBase))
}

// HostsOverlap says whether some host is one of both.
func HostsOverlap(a, b string) bool {
	// Patterns that share a host hold one another: their stars stand in front.
	return HostWithin(a, b) || HostWithin(b, a)
}

// RuleHost is the canonical form of a rule's host: addresses compare as
// addresses, so that another spelling of one is no other host.
func RuleHost(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return CanonicalName(host)
}

// HostFor is the canonical form of a rule's host as far as it matters to h: an
// address never stands for a name.
func HostFor(rule string, h Host) string {
	if h.Named {
		return CanonicalName(rule)
	}
	return RuleHost(rule)
}

// CanonicalName is a name in lower case without a dot at its end.
func CanonicalName(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// AllDigits finds names that some resolvers read as an address, such as
// 2130706433 or 127.1 (every label a number).
func AllDigits(host string) bool {
	return strings.Trim(host, "0123456789.") == "" || strings.HasPrefix(host, "0x")
}

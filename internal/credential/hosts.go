package credential

import (
	"net/netip"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// pattern is a host pattern: an exact name or address, "*." for one label
// before the rest, or "**." for one or more.
type pattern struct {
	stars int    // 0, 1 or 2
	rest  string // the name, or what follows the stars and their dot
}

func parsePattern(s string) pattern {
	switch {
	case strings.HasPrefix(s, "**."):
		return pattern{2, s[3:]}
	case strings.HasPrefix(s, "*."):
		return pattern{1, s[2:]}
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return pattern{0, a.Unmap().String()}
	}
	return pattern{0, strings.ToLower(strings.TrimSuffix(s, "."))}
}

// meets says whether a host exists that both patterns match.
func (p pattern) meets(q pattern) bool {
	if p.stars > q.stars {
		p, q = q, p
	}
	below := func(name, rest string) bool { return strings.HasSuffix(name, "."+rest) && len(name) > len(rest)+1 }
	switch {
	case q.stars == 0:
		return p.rest == q.rest
	case p.stars == 0 && q.stars == 1:
		label, rest, ok := strings.Cut(p.rest, ".")
		return ok && label != "" && rest == q.rest
	case p.stars == 0:
		return below(p.rest, q.rest)
	case q.stars == 1:
		return p.rest == q.rest
	case p.stars == 1:
		return p.rest == q.rest || below(p.rest, q.rest)
	default:
		return p.rest == q.rest || below(p.rest, q.rest) || below(q.rest, p.rest)
	}
}

// hostFault says what is wrong with a host of a binding; empty: nothing.
func hostFault(host string) string {
	if host == "" {
		return "is empty"
	}
	if strings.Trim(host, "*.") == "" {
		return "would be every host: bind the credential to the hosts it is for"
	}
	if task.IsReserved(strings.TrimLeft(strings.ToLower(strings.TrimSuffix(host, ".")), "*.")) {
		return "is the gateway's own: it answers there itself, and nothing is sent"
	}
	if len(host) > 253 {
		return "is longer than a host name can be"
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" || a.Unmap().String() != host {
			return "is not the usual form of the address " + a.WithZone("").Unmap().String()
		}
		return ""
	}
	p := parsePattern(host)
	if p.stars > 0 && !strings.Contains(p.rest, ".") {
		return "would be every host below a top-level domain: bind the credential to the hosts it is for"
	}
	if p.stars == 0 {
		p.rest = host // as it was written, not as it compares
	}
	for label := range strings.SplitSeq(p.rest, ".") {
		if text := labelFault(label); text != "" {
			return text
		}
	}
	return ""
}

func labelFault(label string) string {
	if label == "" {
		return "must be a plain name such as api.example.com, without a dot at its end"
	}
	if len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return "has a part that no host name can have"
	}
	for _, c := range []byte(label) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
		case c == '*':
			return `may have a star only at its beginning, as "*." or "**."`
		case c >= 'A' && c <= 'Z':
			return "must be written in lower case"
		default:
			return "must be a plain name such as api.example.com, without scheme, port or path"
		}
	}
	return ""
}

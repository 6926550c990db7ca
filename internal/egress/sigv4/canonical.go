package sigv4

import (
	"net/url"
	"slices"
	"strings"
)

// spelling is a way in which path and query are written for signing.
type spelling struct{ path, query int }

const (
	pathSent    = iota // as it is sent
	pathEncoded        // decoded, and encoded as strictly as can be
	pathTwice          // encoded once more
	pathNormal         // without dots and empty segments, and encoded once more
)

const (
	querySent    = iota // sorted as it is sent
	queryEncoded        // decoded, encoded as strictly as can be, and sorted
)

// spellings are those of a service: S3 never changes the path, the others encode
// it once more, and clients differ in whether they normalise it.
func spellings(service string) []spelling {
	paths := []int{pathTwice, pathNormal}
	if simple(service) {
		paths = []int{pathSent, pathEncoded}
	}
	var out []spelling
	for _, p := range paths {
		out = append(out, spelling{p, querySent}, spelling{p, queryEncoded})
	}
	return out
}

// simple says whether a service is one whose paths are keys of objects, signed
// as they are.
func simple(service string) bool {
	return service == "s3" || service == "s3express" || service == "s3-outposts" || service == "s3-object-lambda"
}

// param is one parameter of a query.
type param struct {
	sent        string // as it is sent, with its equals sign
	name, value string // decoded
}

// parseQuery divides a query. Errors are *Refusal.
func parseQuery(query string) ([]param, error) {
	if query == "" {
		return nil, nil
	}
	var out []param
	for sent := range strings.SplitSeq(query, "&") {
		if sent == "" {
			continue // neither signed nor read by anybody
		}
		n, v, _ := strings.Cut(sent, "=")
		name, errName := url.QueryUnescape(n)
		value, errValue := url.QueryUnescape(v)
		if errName != nil || errValue != nil {
			return nil, refuse("the query is not escaped as it should be")
		}
		out = append(out, param{sent: n + "=" + v, name: name, value: value})
	}
	return out, nil
}

// canonical is the canonical request: what of a message is signed. payload
// stands for its body.
func (c *Claim) canonical(m Message, params []param, headers []string, payload string, s spelling) string {
	var b strings.Builder
	b.WriteString(m.Method + "\n" + canonicalPath(m.Path, s.path) + "\n" + canonicalQuery(params, s.query) + "\n")
	for _, h := range headers {
		value, _ := m.value(h)
		b.WriteString(h + ":" + value + "\n")
	}
	b.WriteString("\n" + strings.Join(headers, ";") + "\n" + payload)
	return b.String()
}

func canonicalPath(path string, how int) string {
	switch how {
	case pathEncoded:
		if plain, err := url.PathUnescape(path); err == nil {
			return escape(plain, true)
		}
	case pathTwice:
		return escape(path, true)
	case pathNormal:
		return escape(normal(path), true)
	}
	return path
}

// normal takes dots and empty segments out of a path (RFC 3986 §5.2.4).
func normal(path string) string {
	var out []string
	for s := range strings.SplitSeq(path, "/") {
		switch s {
		case "", ".":
		case "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, s)
		}
	}
	if len(out) > 0 && strings.HasSuffix(path, "/") {
		out = append(out, "")
	}
	return "/" + strings.Join(out, "/")
}

// canonicalQuery leaves the signature itself out.
func canonicalQuery(params []param, how int) string {
	type pair struct{ name, value string }
	var pairs []pair
	for _, p := range params {
		if p.name == "X-Amz-Signature" {
			continue
		}
		if how == queryEncoded {
			pairs = append(pairs, pair{escape(p.name, false), escape(p.value, false)})
			continue
		}
		n, v, _ := strings.Cut(p.sent, "=")
		pairs = append(pairs, pair{n, v})
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if n := strings.Compare(a.name, b.name); n != 0 {
			return n
		}
		return strings.Compare(a.value, b.value)
	})
	var out strings.Builder
	for i, p := range pairs {
		if i > 0 {
			out.WriteByte('&')
		}
		out.WriteString(p.name + "=" + p.value)
	}
	return out.String()
}

// value is a header's value as it is signed: lines joined by commas, spaces
// folded. ok is false when the message has none.
func (m Message) value(lower string) (value string, ok bool) {
	if lower == "host" {
		return fold(m.Host), true
	}
	lines, ok := m.Header[canonicalName(lower)]
	if !ok || len(lines) == 0 {
		return "", false
	}
	folded := make([]string, len(lines))
	for i, line := range lines {
		folded[i] = fold(line)
	}
	return strings.Join(folded, ","), true
}

// canonicalName is the name as maps of header fields have it.
func canonicalName(lower string) string {
	b := []byte(lower)
	upper := true
	for i, c := range b {
		if upper && c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
		upper = c == '-'
	}
	return string(b)
}

// fold makes one space of each run of spaces and takes those at the ends away.
func fold(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\t' }), " ")
}

const hexUpper = "0123456789ABCDEF"

// escape encodes every byte but the unreserved ones (RFC 3986 §2.3) and, in a
// path, slashes.
func escape(s string, path bool) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '-', c == '_', c == '.', c == '~', path && c == '/':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hexUpper[c>>4], hexUpper[c&15]})
		}
	}
	return b.String()
}

// Bare is a query without what belongs to a signature; false for one that is not
// escaped as it should be.
func Bare(query string) (string, bool) {
	params, err := parseQuery(query)
	if err != nil {
		return "", false
	}
	var out []string
	for _, p := range params {
		if !claims(p.name) {
			out = append(out, p.sent)
		}
	}
	return strings.Join(out, "&"), true
}

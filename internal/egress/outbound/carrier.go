package outbound

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/cofferdam/cofferdam/internal/task"
)

// carrier is how a kind of credential stands in a request: the placeholder
// inside, the value outside. Implementations hold no state.
type carrier interface {
	// knows says whether the lease says all that its kind needs. A lease that does
	// not is never lent.
	knows(l *task.Lease) bool
	// take judges the place where the value goes, and takes it out of what is left
	// to look at: false when something else than the placeholder stands there, or
	// another key beside it.
	take(l *task.Lease, rest *remainder) bool
	// fits says whether the value can be carried.
	fits(l *task.Lease, value Secret) bool
	// put puts the value into the request that goes out. An error means that it
	// must not go; it never holds the value.
	put(l *task.Lease, value Secret, out *http.Request) error
}

// carriers are all there are, by kind. A kind without one is never lent.
func carriers() map[string]carrier {
	return map[string]carrier{
		task.KindHeader: headerCarrier{},
		task.KindOIDC:   headerCarrier{},
		task.KindQuery:  queryCarrier{},
		task.KindBasic:  basicCarrier{},
		task.KindGit:    gitCarrier{},
		task.KindAWS:    awsCarrier{},

		task.KindCodexLogin: loginCarrier{},
	}
}

func kindOf(l *task.Lease) string { return l.Carried() }

// remainder is what of a request's line and header is still to be looked at.
// Carriers take out of it and never change the request.
type remainder struct {
	method, host, path, query string
	sent                      string // the path as it is sent, escaped
	header                    http.Header
}

func rest(r *http.Request) remainder {
	return remainder{method: r.Method, host: r.Host, path: r.URL.Path, sent: SentPath(r.URL), query: r.URL.RawQuery, header: r.Header.Clone()}
}

// holds says whether the placeholder stands in it.
func (rest *remainder) holds(placeholder string) bool {
	in := func(s string) bool { return strings.Contains(s, placeholder) }
	if in(rest.path) || in(rest.query) || in(rest.host) {
		return true
	}
	if q, err := url.QueryUnescape(rest.query); err == nil && in(q) {
		return true
	}
	for name, values := range rest.header {
		if strings.Contains(strings.ToLower(name), strings.ToLower(placeholder)) {
			return true
		}
		for _, v := range values {
			if in(v) || in(basic(v)) {
				return true
			}
		}
	}
	return false
}

// keyless says whether no header but own is one in which servers look for a
// key: a second one could be the agent's own, for an account of somebody else.
func (rest *remainder) keyless(own string) bool {
	keys := []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "Private-Token"}
	for name := range rest.header {
		like := textproto.CanonicalMIMEHeaderKey(likeServers(name))
		if name != own && (like == own || slices.Contains(keys, like)) {
			return false
		}
	}
	return true
}

// headerCarrier puts the value into one header field, with a prefix.
type headerCarrier struct{}

func (headerCarrier) knows(l *task.Lease) bool {
	switch textproto.CanonicalMIMEHeaderKey(l.Header) {
	case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Expect", "Keep-Alive", "Proxy-Connection":
		return false // they frame the message, or are taken off it
	}
	return httpguts.ValidHeaderFieldName(l.Header)
}

func (headerCarrier) take(l *task.Lease, rest *remainder) bool {
	own := textproto.CanonicalMIMEHeaderKey(l.Header)
	if values := rest.header[own]; len(values) > 1 || len(values) == 1 && !isPlaceholder(l, values[0]) {
		return false
	}
	if !rest.keyless(own) {
		return false
	}
	delete(rest.header, own)
	return true
}

// isPlaceholder says whether a header's value is what the sandbox has in place
// of the credential, with its prefix or alone.
func isPlaceholder(l *task.Lease, value string) bool {
	if l.Placeholder == "" {
		return false
	}
	before, ok := strings.CutSuffix(strings.TrimSpace(value), l.Placeholder)
	return ok && (before == "" || strings.EqualFold(before, l.Prefix))
}

func (headerCarrier) fits(l *task.Lease, value Secret) bool {
	return httpguts.ValidHeaderFieldValue(l.Prefix + value.Reveal())
}

func (headerCarrier) put(l *task.Lease, value Secret, out *http.Request) error {
	out.Header[textproto.CanonicalMIMEHeaderKey(l.Header)] = []string{l.Prefix + value.Reveal()}
	return nil
}

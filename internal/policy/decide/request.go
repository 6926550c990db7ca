package decide

import (
	"slices"

	"github.com/cofferdam/cofferdam/internal/policy/graphql"
	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/policy/models"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Request is one HTTP request on a connection.
type Request struct {
	Method string // as sent; methods are told apart by case (RFC 9110 §9.1)
	Path   string // escaped, as sent, without the query
	Query  string // as sent, without the "?"
	// Header has the headers by their canonical names, as sent.
	Header map[string][]string
	Body   *Body // nil: it was not read yet
}

// Body is the body of a request, as sent.
type Body struct {
	Bytes []byte
	// Unread says that the body is too long to be looked at, or came to no end: no
	// rule about bodies stands for it.
	Unread bool
}

// MaxBody is the most of a body that a rule looks at.
const MaxBody = models.MaxBody

// fits is how a rule stands to a request.
type fits uint8

const (
	no     fits = iota
	unseen      // all of it fits but the body, which was not read yet
	model       // all of it fits but the model that is asked
	yes
)

// fits says whether the rule stands for the request.
func (r *held) fits(q Request) fits {
	// A rule for spliced TLS or for any bytes says nothing about requests.
	if r.Protocol != "" && r.Protocol != task.ProtocolHTTP || !q.matches(r.Methods, r.Paths) {
		return no
	}
	if len(r.Query)+len(r.Headers) > 0 {
		fields := r.fields
		if fields == nil {
			f := match.Compile(r.Query, r.Headers)
			fields = &f
		}
		if !fields.Query(q.Query) || !fields.Headers(q.Header) {
			return no
		}
	}
	if r.Body == nil {
		return yes
	}
	return bodyFits(r.Body, q)
}

func bodyFits(want *task.Body, q Request) fits {
	var body []byte
	switch {
	case q.Body != nil && !q.Body.Unread:
		body = q.Body.Bytes
	case q.Body == nil && models.NeedsBody(q.Method):
		return unseen
	}
	unread := q.Body != nil && q.Body.Unread
	switch {
	case want.GraphQL != nil && len(want.Models) == 0:
		if unread || graphql.Check(*want.GraphQL, graphql.Request{Method: q.Method, Query: q.Query, Header: q.Header, Body: body}) != nil {
			return no
		}
	case want.GraphQL == nil && len(want.Models) > 0:
		if unread || models.Check(want.Models, models.Request{Method: q.Method, Path: q.Path, Query: q.Query, Header: q.Header, Body: body}) != nil {
			return model
		}
	default:
		return no
	}
	return yes
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
	return match.CleanPath(q.Path) && slices.ContainsFunc(paths, func(p string) bool { return match.PathFits(p, q.Path) })
}

// Covers says whether a lease's own binding covers a request on a connection:
// host, port, method and path. A lease that names no host or no port covers
// nothing.
func Covers(lease task.Lease, use Use, q Request) bool {
	h, ok := use.host()
	if !ok || use.Port == 0 || !q.valid() || !slices.Contains(lease.Ports, use.Port) {
		return false
	}
	bound := match.NewHost(h)
	return slices.ContainsFunc(lease.Hosts, func(p string) bool { return match.HostFits(match.RuleHost(p), bound) }) &&
		q.matches(lease.Methods, lease.Paths)
}

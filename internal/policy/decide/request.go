package decide

import (
	"slices"

	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/task"
)

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

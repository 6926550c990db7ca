package outbound

import (
	"net/http"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// gitCarrier is Basic for git over https (gitprotocol-http(5)) and Git LFS, and
// for nothing else on the host.
type gitCarrier struct{ basicCarrier }

func (gitCarrier) knows(l *task.Lease) bool {
	push := l.Settings[task.SettingPush]
	return basicCarrier{}.knows(l) && (push == "" || push == "yes" || push == "no")
}

func (gitCarrier) take(l *task.Lease, rest *remainder) bool {
	call, ok := gitCallOf(rest.method, rest.sent, rest.query)
	return ok && (!call.writes || pushes(l)) && named(l, call.repository) && basicCarrier{}.take(l, rest)
}

func (gitCarrier) put(l *task.Lease, value Secret, out *http.Request) error {
	call, _ := gitCallOf(out.Method, SentPath(out.URL), out.URL.RawQuery)
	if call.batch {
		// What answers is read, so it must be readable.
		out.Header.Set("Accept-Encoding", "identity")
		if !pushes(l) {
			if err := downloads(out); err != nil {
				return err
			}
		}
	}
	return basicCarrier{}.put(l, value, out)
}

// back gives the placeholder where an answer of Git LFS repeats the credentials
// for the requests that follow it, as several forges do.
func (gitCarrier) back(l *task.Lease, value Secret, res *http.Response) error {
	if res.Request == nil || res.Request.URL == nil {
		return nil
	}
	if call, ok := gitCallOf(res.Request.Method, SentPath(res.Request.URL), res.Request.URL.RawQuery); !ok || !call.batch {
		return nil
	}
	return swapBack(res, strings.NewReplacer(credentials(l, value.Reveal()), credentials(l, l.Placeholder), value.Reveal(), l.Placeholder))
}

func pushes(l *task.Lease) bool { return l.Settings[task.SettingPush] == "yes" }

// named says whether the lease is for the repository.
func named(l *task.Lease, repository string) bool {
	list := l.Settings[task.SettingRepository]
	if list == "" {
		return true
	}
	segments := strings.Split(repository, "/")
	for pattern := range strings.SplitSeq(list, ",") {
		if segmentsMatch(strings.Split(strings.TrimSpace(pattern), "/"), segments) {
			return true
		}
	}
	return false
}

// segmentsMatch compares a path with a pattern: "*" is one segment, a last "**"
// one or more.
func segmentsMatch(pattern, path []string) bool {
	for i, p := range pattern {
		if p == "**" && i == len(pattern)-1 {
			return len(path) > i
		}
		if i >= len(path) || p != "*" && p != path[i] {
			return false
		}
	}
	return len(path) == len(pattern) && len(path) > 0
}

// gitCall is what a request asks of a git server.
type gitCall struct {
	repository string // its path, without ".git"
	writes     bool
	batch      bool // asks Git LFS where objects are; its body says whether it writes
}

// gitCallOf reads a request; ok is false for one that is not git's. path is as
// it is sent, and has nothing that could be read in two ways.
func gitCallOf(method, path, query string) (call gitCall, ok bool) {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if !strings.HasPrefix(path, "/") || !slices.ContainsFunc(segments, func(s string) bool { return s != "" }) {
		return call, false
	}
	for _, s := range segments {
		if !plainSegment(s) {
			return call, false
		}
	}
	n := len(segments)
	end := 1
	switch last := segments[n-1]; {
	case last == "refs" && n > 1 && segments[n-2] == "info":
		end = 2
		if method != http.MethodGet || query != "service=git-upload-pack" && query != "service=git-receive-pack" {
			return call, false
		}
		call.writes = query == "service=git-receive-pack"
	case last == "git-upload-pack" || last == "git-receive-pack":
		if method != http.MethodPost || query != "" {
			return call, false
		}
		call.writes = last == "git-receive-pack"
	default:
		if end, ok = call.lfs(method, query, segments); !ok {
			return call, false
		}
	}
	repository := segments[:n-end]
	if len(repository) == 0 {
		return call, false
	}
	call.repository = strings.TrimSuffix(strings.Join(repository, "/"), ".git")
	return call, call.repository != "" && !strings.HasSuffix(call.repository, "/")
}

// plainSegment says whether every server reads the segment in the same way.
func plainSegment(s string) bool {
	if s == "" || s == "." || s == ".." {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("._~+-", c) >= 0:
		default:
			return false
		}
	}
	return true
}

package match

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// fieldName is a token (RFC 9110 §5.6.2), without what shells of the names are
// made of elsewhere.
var fieldName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]*$`)

// Header finds what is wrong with a matcher of a header, and what to write; ""
// when nothing is.
func Header(m task.Match) string {
	switch like := likeServers(m.Name); {
	case fault(m) != "":
		return fault(m)
	case strings.ContainsAny(m.Name, "._~"):
		return fmt.Sprintf("%q is not a header's name", m.Name)
	case like == "host":
		return "the host is named by host; remove this matcher"
	case slices.Contains([]string{"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "expect", "proxy-connection"}, like):
		return fmt.Sprintf("can't match: %s is about one connection and doesn't reach the far side", m.Name)
	case m.Kind != task.MatchAbsent && secret(like):
		return fmt.Sprintf("%s carries secrets, and a policy holds none: name a credential of the vault, or write absent: true", m.Name)
	}
	return ""
}

// secret says whether a header carries what opens doors.
func secret(like string) bool {
	return slices.Contains([]string{"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key", "x-auth-token", "private-token"}, like)
}

// Parameter finds what is wrong with a matcher of a parameter of the query.
func Parameter(m task.Match) string { return fault(m) }

func fault(m task.Match) string {
	switch {
	case len(m.Name) > maxName || !fieldName.MatchString(m.Name):
		return fmt.Sprintf("%q is not a name: letters, digits and \"-._~\", at most %d", m.Name, maxName)
	case len(m.Value) > maxValue:
		return fmt.Sprintf("the value is longer than %d bytes", maxValue)
	case m.Kind == task.MatchPrefix && m.Value == "":
		return "an empty prefix matches any value; write re2: \".*\" when that is meant"
	case m.Kind != task.MatchRE2 && !printable(m.Value):
		return "can't match: a value is printable ASCII"
	case m.Kind == task.MatchRE2:
		if _, err := whole(m.Value); err != nil {
			return "is not an RE2 expression: " + err.Error()
		}
	}
	return ""
}

// Contradiction finds two matchers of one list that can't both hold.
func Contradiction(list []task.Match) string {
	for i, b := range list {
		for _, a := range list[:i] {
			if like(a, b) && (a == b || disjoint(a, b)) {
				if a == b {
					return fmt.Sprintf("%s is given twice; remove one", a.Name)
				}
				return fmt.Sprintf("can't match: %s and %s can't both hold", Text([]task.Match{a}), Text([]task.Match{b}))
			}
		}
	}
	return ""
}

func like(a, b task.Match) bool { return likeForms(a.Name) == likeForms(b.Name) }

// Disjoint says whether it is certain that no request is what both lists want.
func Disjoint(a, b []task.Match) bool {
	return slices.ContainsFunc(a, func(m task.Match) bool {
		return slices.ContainsFunc(b, func(n task.Match) bool { return m.Name == n.Name && disjoint(m, n) })
	})
}

// disjoint says whether it is certain that no value is what both want.
func disjoint(a, b task.Match) bool {
	if a.Kind == task.MatchExact && b.Kind != task.MatchExact || b.Kind == task.MatchAbsent {
		a, b = b, a
	}
	switch {
	case a.Kind == task.MatchAbsent:
		return b.Kind != task.MatchAbsent
	case b.Kind == task.MatchExact:
		one := Compile([]task.Match{a}, nil)
		return !one.never && !one.query[0].value(b.Value)
	case a.Kind == task.MatchPrefix && b.Kind == task.MatchPrefix:
		return !strings.HasPrefix(a.Value, b.Value) && !strings.HasPrefix(b.Value, a.Value)
	}
	return false
}

// Within says whether it is certain that what inner wants is all that outer
// allows: each of outer's matchers holds because of one of inner's.
func Within(inner, outer []task.Match) bool {
	for _, o := range outer {
		if !slices.ContainsFunc(inner, func(i task.Match) bool { return i.Name == o.Name && implies(i, o) }) {
			return false
		}
	}
	return true
}

// implies says whether it is certain that every value that i wants, o wants.
func implies(i, o task.Match) bool {
	switch {
	case i.Kind == o.Kind && i.Value == o.Value:
		return true
	case i.Kind == task.MatchExact && o.Kind != task.MatchAbsent:
		one := Compile([]task.Match{o}, nil)
		return !one.never && one.query[0].value(i.Value)
	case i.Kind == task.MatchPrefix && o.Kind == task.MatchPrefix:
		return strings.HasPrefix(i.Value, o.Value)
	}
	return false
}

package match

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// What one matcher may be at most.
const (
	maxName  = 64
	maxValue = 256  // of a regular expression too
	MaxList  = 16   // matchers of one kind in a rule
	maxSeen  = 8192 // bytes of a value that is looked at
	maxQuery = 64 << 10
)

// Fields are the matchers of one rule, compiled. The zero value matches
// everything. It may be used by many at once.
type Fields struct {
	query, headers []one
	never          bool
}

type one struct {
	task.Match
	like string // the name as the most lenient reader takes it
	re   *regexp.Regexp
}

// Compile compiles the matchers of a rule. One that can't be compiled makes a
// rule that never matches.
func Compile(query, headers []task.Match) Fields {
	var f Fields
	compile := func(list []task.Match, like func(string) string) []one {
		var out []one
		for _, m := range list {
			o := one{Match: m, like: like(m.Name)}
			switch m.Kind {
			case task.MatchExact, task.MatchPrefix, task.MatchAbsent:
			case task.MatchRE2:
				re, err := whole(m.Value)
				f.never = f.never || err != nil
				o.re = re
			default:
				f.never = true
			}
			out = append(out, o)
		}
		return out
	}
	f.query, f.headers = compile(query, likeForms), compile(headers, likeServers)
	return f
}

// whole compiles an expression for the whole of a value.
func whole(text string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(text); err != nil { // by itself, so that it can't close our group
		return nil, err
	}
	return regexp.Compile(`\A(?:` + text + `)\z`)
}

// value says whether a value is what the matcher wants.
func (o one) value(v string) bool {
	switch o.Kind {
	case task.MatchExact:
		return v == o.Value
	case task.MatchPrefix:
		return strings.HasPrefix(v, o.Value)
	case task.MatchRE2:
		return o.re != nil && len(v) <= maxSeen && o.re.MatchString(v)
	}
	return false
}

// likeServers is a header's name as those read it that make no difference
// between dashes and underscores, such as CGI (RFC 3875 §4.1.18).
func likeServers(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// Headers says whether a request's headers, by their canonical names, are what
// the rule wants. A header that is taken off on the way (RFC 9110 §7.6.1) is
// ambiguous, since it is not what the far side sees.
func (f Fields) Headers(header map[string][]string) bool {
	if f.never {
		return false
	}
	for _, o := range f.headers {
		values, found := []string(nil), 0
		for name, list := range header {
			if len(name) != len(o.like) || likeServers(name) != o.like {
				continue
			}
			if found++; !strings.EqualFold(name, o.Name) {
				return false
			}
			values = list
		}
		if o.Kind == task.MatchAbsent {
			if found > 0 {
				return false
			}
			continue
		}
		if found != 1 || len(values) != 1 || !printable(values[0]) || takenOff(header, o.like) || !o.value(values[0]) {
			return false
		}
	}
	return true
}

func takenOff(header map[string][]string, like string) bool {
	return slices.ContainsFunc(header["Connection"], func(v string) bool {
		return slices.ContainsFunc(strings.Split(v, ","), func(name string) bool { return likeServers(strings.TrimSpace(name)) == like })
	})
}

func printable(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' || v[i] >= 0x7f {
			return false
		}
	}
	return true
}

// Text tells matchers in one line.
func Text(list []task.Match) string {
	words := make([]string, len(list))
	for i, m := range list {
		switch m.Kind {
		case task.MatchExact:
			words[i] = fmt.Sprintf("%s=%q", m.Name, m.Value)
		case task.MatchPrefix:
			words[i] = fmt.Sprintf("%s=%q…", m.Name, m.Value)
		case task.MatchRE2:
			words[i] = fmt.Sprintf("%s~%q", m.Name, m.Value)
		default:
			words[i] = "no " + m.Name
		}
	}
	return strings.Join(words, " and ")
}

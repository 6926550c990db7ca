package match

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/task"
)

// likeForms is a parameter's name as the most lenient of those read it that make
// variables of them: case, an index in brackets, and dots, spaces and dashes in
// place of underscores make no difference.
func likeForms(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(strings.TrimLeft(name, " ")), "[")
	return strings.Map(func(r rune) rune {
		switch r {
		case '.', ' ', '-':
			return '_'
		}
		return r
	}, name)
}

// pair is one parameter as it stands, and its name as the most lenient read it.
type pair struct{ raw, like, value string }

// Query says whether a query, without its "?", is what the rule wants.
func (f Fields) Query(raw string) bool {
	if f.never {
		return false
	}
	if len(f.query) == 0 {
		return true
	}
	pairs, ok := parse(raw)
	if !ok {
		return false
	}
	for _, o := range f.query {
		var one pair
		found := 0
		for _, p := range pairs {
			if p.like == o.like {
				one = p
				found++
			}
		}
		if o.Kind == task.MatchAbsent {
			if found > 0 {
				return false
			}
			continue
		}
		if found != 1 || one.raw != o.Name || !o.plain(one.value) {
			return false
		}
	}
	return true
}

// plain says whether a value as it stands is what the matcher wants, and means
// the same to those who take a plus sign for a space.
func (o one) plain(raw string) bool {
	if strings.Contains(raw, "+") {
		return false
	}
	v, ok := decode(raw)
	return ok && printable(v) && o.value(v)
}

// parse divides a query. It is false for one that is ambiguous as a whole.
func parse(raw string) (pairs []pair, ok bool) {
	if len(raw) > maxQuery || strings.ContainsAny(raw, ";#") || !printable(raw) || strings.Contains(raw, " ") {
		return nil, false
	}
	if raw == "" {
		return nil, true
	}
	pairs = make([]pair, 0, 1+strings.Count(raw, "&"))
	for part := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(part, "=")
		meant, ok := decode(name)
		if !ok || !plainName(meant) {
			return nil, false
		}
		if _, ok = decode(value); !ok {
			return nil, false
		}
		pairs = append(pairs, pair{raw: name, like: likeForms(meant), value: value})
	}
	return pairs, true
}

// plainName says whether nobody reads a decoded name as another one, or as more
// than one.
func plainName(name string) bool {
	return name != "" && printable(name) && !strings.ContainsAny(name, " +&=;%#?")
}

// decode takes percent-encoding off.
func decode(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	plain, err := url.PathUnescape(s)
	return plain, err == nil && utf8.ValidString(plain)
}

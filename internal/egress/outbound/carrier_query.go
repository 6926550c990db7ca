package outbound

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// queryCarrier puts the value into one parameter of the query.
type queryCarrier struct{}

func (queryCarrier) knows(l *task.Lease) bool {
	name := l.Settings[task.SettingParameter]
	return name != "" && l.Placeholder != "" && url.QueryEscape(name) == strings.ReplaceAll(name, "$", "%24")
}

// take lets the parameter stand once, as it is written, with the placeholder as
// its value. Whatever a server could take for the same parameter is refused.
func (queryCarrier) take(l *task.Lease, rest *remainder) bool {
	name := l.Settings[task.SettingParameter]
	own := name + "=" + l.Placeholder
	var others []string
	found := 0
	for pair := range strings.SplitSeq(rest.query, "&") {
		if pair == own {
			found++
			continue
		}
		// Some servers part at semicolons too (HTML 4.01, appendix B.2.2).
		for part := range strings.SplitSeq(pair, ";") {
			if spelled(part) == fold(name) {
				return false
			}
		}
		others = append(others, pair)
	}
	if found > 1 || !rest.keyless("") {
		return false
	}
	rest.query = strings.Join(others, "&")
	return true
}

// spelled is the name of a parameter as the most lenient server reads it.
func spelled(pair string) string {
	name, _, _ := strings.Cut(pair, "=")
	for range 2 { // proxies and servers may each decode
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		name, _, _ = strings.Cut(name, "=")
	}
	return fold(name)
}

// fold makes names equal that some servers take for the same: in another case,
// with spaces around, as an element of a list, or with a dot or a dash in place
// of an underscore.
func fold(name string) string {
	if i := strings.IndexAny(name, "[\x00"); i >= 0 {
		name = name[:i]
	}
	return strings.NewReplacer(".", "_", " ", "_", "-", "_").Replace(strings.ToLower(strings.TrimSpace(name)))
}

func (queryCarrier) fits(_ *task.Lease, value Secret) bool { return !value.Empty() }

func (queryCarrier) put(l *task.Lease, value Secret, out *http.Request) error {
	name := l.Settings[task.SettingParameter]
	own, with := name+"="+l.Placeholder, name+"="+queryEscape(value.Reveal())
	pairs := strings.Split(out.URL.RawQuery, "&")
	for i, pair := range pairs {
		if pair == own {
			pairs[i] = with
			out.URL.RawQuery = strings.Join(pairs, "&")
			return nil
		}
	}
	if out.URL.RawQuery != "" {
		with = out.URL.RawQuery + "&" + with
	}
	out.URL.RawQuery = with
	return nil
}

// queryEscape escapes so that every server reads the same: a space is not "+".
func queryEscape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// back takes the value out of the addresses that an answer points to: servers
// that redirect repeat the query.
func (queryCarrier) back(l *task.Lease, value Secret, res *http.Response) error {
	swap := strings.NewReplacer(queryEscape(value.Reveal()), l.Placeholder, url.QueryEscape(value.Reveal()), l.Placeholder, value.Reveal(), l.Placeholder)
	for _, name := range []string{"Location", "Content-Location", "Link", "Refresh"} {
		for i, v := range res.Header[name] {
			res.Header[name][i] = swap.Replace(v)
		}
	}
	return nil
}

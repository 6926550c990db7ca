package match

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cofferdam/cofferdam/internal/task"
)

func exact(name, value string) []task.Match {
	return []task.Match{{Name: name, Kind: task.MatchExact, Value: value}}
}

func prefix(name, value string) []task.Match {
	return []task.Match{{Name: name, Kind: task.MatchPrefix, Value: value}}
}

func re2(name, value string) []task.Match {
	return []task.Match{{Name: name, Kind: task.MatchRE2, Value: value}}
}
func absent(name string) []task.Match { return []task.Match{{Name: name, Kind: task.MatchAbsent}} }

func TestQuery(t *testing.T) {
	for _, c := range []struct {
		list  []task.Match
		query string
		want  bool
	}{
		{nil, "anything;at=%all", true},
		{exact("service", "git-upload-pack"), "service=git-upload-pack", true},
		{exact("service", "git-upload-pack"), "a=1&service=git-upload-pack&b=2", true},
		{exact("service", "git-upload-pack"), "service=git%2Dupload-pack", true},
		{exact("service", "git-upload-pack"), "", false},
		{exact("service", "git-upload-pack"), "service=git-receive-pack", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&service=git-receive-pack", false},
		{exact("service", "git-upload-pack"), "service=git-receive-pack&service=git-upload-pack", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&SERVICE=git-receive-pack", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&service[]=git-receive-pack", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&%73ervice=git-receive-pack", false},
		{exact("service", "git-upload-pack"), "%73ervice=git-upload-pack", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack;service=git-receive-pack", false},
		{exact("service", "git-upload-pack"), "x=1;service=git-upload-pack", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&%20service=x", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&x=%zz", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&x=%", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&x=%f", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&=x", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack#x", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&x=\xff", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&x=%ff", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack%00", false},
		{exact("service", "git-upload-pack"), "service=git-upload-pack&a%26service%3dx=1", false},
		{exact("per_page", "100"), "per_page=100", true},
		{exact("per_page", "100"), "per_page=100&per.page=1", false},
		{exact("q", "a b"), "q=a%20b", true},
		{exact("q", "a b"), "q=a+b", false},
		{exact("q", "a+b"), "q=a+b", false},
		{exact("q", "a+b"), "q=a%2Bb", true},
		{exact("q", ""), "q", true},
		{exact("q", ""), "q=", true},
		{prefix("path", "docs/"), "path=docs/x", true},
		{prefix("path", "docs/"), "path=src/docs/", false},
		{re2("n", "[0-9]+"), "n=12", true},
		{re2("n", "[0-9]+"), "n=12a", false},
		{re2("n", "a|b"), "n=bx", false},
		{re2("n", "(?i)a"), "n=A", true},
		{absent("force"), "x=1", true},
		{absent("force"), "force", false},
		{absent("force"), "FORCE=", false},
		{absent("force"), "force[x]=1", false},
		{absent("force"), "x=1;force=1", false},
		{append(exact("a", "1"), absent("b")...), "a=1", true},
		{append(exact("a", "1"), absent("b")...), "a=1&b=2", false},
		{[]task.Match{{Name: "a", Kind: "other"}}, "a=", false},
		{[]task.Match{{Name: "a"}}, "", false},
		{re2("a", "("), "a=1", false},
	} {
		if got := Compile(c.list, nil).Query(c.query); got != c.want {
			t.Errorf("%s and %q: %t", Text(c.list), c.query, got)
		}
	}
}

func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		list   []task.Match
		header http.Header
		want   bool
	}{
		{nil, http.Header{"X": {"\xff"}}, true},
		{exact("Content-Type", "a/b"), http.Header{"Content-Type": {"a/b"}}, true},
		{exact("content-type", "a/b"), http.Header{"Content-Type": {"a/b"}}, true},
		{exact("Content-Type", "a/b"), http.Header{"Content-Type": {"a/b", "c/d"}}, false},
		{exact("Content-Type", "a/b"), http.Header{"Content-Type": {"a/b, c/d"}}, false},
		{exact("Content-Type", "a/b"), http.Header{"Content-Type": {"a/b"}, "Content_type": {"c/d"}}, false},
		{exact("Content-Type", "a/b"), http.Header{"Content_type": {"a/b"}}, false},
		{exact("Content-Type", "a/b"), http.Header{}, false},
		{exact("X-Mode", "read"), http.Header{"X-Mode": {"read"}, "Connection": {"close, x-mode"}}, false},
		{prefix("User-Agent", "git/"), http.Header{"User-Agent": {"git/2.50"}}, true},
		{prefix("User-Agent", "git/"), http.Header{"User-Agent": {"curl git/"}}, false},
		{re2("Accept", ".*"), http.Header{"Accept": {"x\ty"}}, false},
		{absent("X-Admin"), http.Header{}, true},
		{absent("X-Admin"), http.Header{"X-Admin": {""}}, false},
		{absent("X-Admin"), http.Header{"X_admin": {""}}, false},
	} {
		if got := Compile(nil, c.list).Headers(c.header); got != c.want {
			t.Errorf("%s and %v: %t", Text(c.list), c.header, got)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		m    task.Match
		want string
	}{
		{exact("Host", "x")[0], "is named by host"},
		{exact("Connection", "x")[0], "doesn't reach the far side"},
		{exact("Authorization", "Bearer x")[0], "a policy holds none"},
		{prefix("Cookie", "x")[0], "a policy holds none"},
		{absent("Authorization")[0], ""},
		{exact("X Y", "x")[0], "is not a name"},
		{exact("", "x")[0], "is not a name"},
		{exact("X_Y", "x")[0], "is not a header's name"},
		{exact("X", strings.Repeat("x", 257))[0], "longer than 256"},
		{re2("X", strings.Repeat("x", 257))[0], "longer than 256"},
		{re2("X", "a)|(b")[0], "is not an RE2"},
		{re2("X", `\Qa`)[0], "is not an RE2"},
		{re2("X", "(?=a)")[0], "is not an RE2"},
		{prefix("X", "")[0], "an empty prefix"},
		{exact("X", "a\r\nb")[0], "printable"},
		{exact("X", "")[0], ""},
	} {
		if got := Header(c.m); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.m, got, c.want)
		}
	}
	if got := Parameter(exact("per_page", "1")[0]); got != "" {
		t.Error(got)
	}
}

func TestContradictions(t *testing.T) {
	for _, c := range []struct {
		a, b []task.Match
		want bool
	}{
		{exact("a", "1"), exact("a", "2"), true},
		{exact("a", "1"), exact("a", "1"), true}, // twice
		{exact("a", "1"), exact("b", "2"), false},
		{exact("a", "1"), prefix("a", "2"), true},
		{exact("a", "12"), prefix("a", "1"), false},
		{prefix("a", "12"), prefix("a", "1"), false},
		{prefix("a", "12"), prefix("a", "2"), true},
		{exact("a", "x"), re2("a", "[0-9]"), true},
		{re2("a", "x"), re2("a", "y"), false}, // nobody can tell in general
		{absent("a"), exact("a", ""), true},
		{re2("a", ".*"), absent("a"), true},
		{absent("a"), absent("a"), true},
	} {
		if got := Contradiction(slices.Concat(c.a, c.b)) != ""; got != c.want {
			t.Errorf("%s, %s: %t", Text(c.a), Text(c.b), got)
		}
	}
}

func someMatches(t *rapid.T, label string) []task.Match {
	var list []task.Match
	for i := range rapid.IntRange(0, 2).Draw(t, label) {
		m := task.Match{Name: rapid.SampledFrom([]string{"a", "b"}).Draw(t, label+"name"), Kind: rapid.SampledFrom([]string{"exact", "prefix", "re2", "absent"}).Draw(t, label+"kind")}
		switch m.Kind {
		case task.MatchRE2:
			m.Value = rapid.SampledFrom([]string{"x+", "x|y", ".*", "[xy]*z"}).Draw(t, label+"re2")
		case task.MatchExact, task.MatchPrefix:
			m.Value = rapid.SampledFrom([]string{"x", "xx", "xy", "y", "z"}).Draw(t, label+"value")
		}
		_ = i
		list = append(list, m)
	}
	return list
}

// Within and Disjoint are what the matchers mean, as far as they are sure.
func TestWithinAndDisjoint(t *testing.T) {
	var queries []string
	for _, a := range []string{"", "a", "a=x", "a=xx", "a=xy", "a=y", "a=z", "a=yz", "a=x&a=y"} {
		for _, b := range []string{"", "b=x", "b=y", "b=xxz"} {
			queries = append(queries, strings.Trim(a+"&"+b, "&"))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		inner, outer := someMatches(t, "inner"), someMatches(t, "outer")
		i, o := Compile(inner, nil), Compile(outer, nil)
		for _, q := range queries {
			if Within(inner, outer) && i.Query(q) && !o.Query(q) {
				t.Fatalf("%s is not within %s: %q", Text(inner), Text(outer), q)
			}
			if Disjoint(inner, outer) && i.Query(q) && o.Query(q) {
				t.Fatalf("%s and %s share %q", Text(inner), Text(outer), q)
			}
		}
	})
}

// Of a query that matches, readers of two kinds read the same value: ours, and
// that of a lenient one which divides at semicolons too.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{"service=git-upload-pack", "service=x&service=git-upload-pack", "service=git-upload-pack;service=x", "SERVICE=x&service=git-upload-pack", "%73ervice=x", "service=git%2dupload-pack&a[]=1"} {
		f.Add(q)
	}
	wanted := Compile(exact("service", "git-upload-pack"), nil)
	none := Compile(absent("service"), nil)
	f.Fuzz(func(t *testing.T, q string) {
		lenient := url.Values{}
		for _, part := range strings.FieldsFunc(q, func(r rune) bool { return r == '&' || r == ';' }) {
			name, value, _ := strings.Cut(part, "=")
			if plain, err := url.QueryUnescape(name); err == nil {
				name = plain
			}
			if plain, err := url.QueryUnescape(value); err == nil {
				value = plain
			}
			name = strings.ToLower(name)
			lenient[name] = append(lenient[name], value)
		}
		if wanted.Query(q) {
			if v, err := url.ParseQuery(q); err != nil || len(v["service"]) != 1 || v.Get("service") != "git-upload-pack" {
				t.Fatalf("%q matches and is %v (%v)", q, v, err)
			}
			if got := lenient["service"]; len(got) != 1 || got[0] != "git-upload-pack" {
				t.Fatalf("%q matches, and a lenient server reads %q", q, got)
			}
		}
		if none.Query(q) && len(lenient["service"]) > 0 {
			t.Fatalf("%q has the parameter", q)
		}
	})
}

package glob

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a/b", false},
		{"a/b", "a/b", true},
		{"*.log", "x.log", true},
		{"*.log", "a/x.log", false},
		{"*", "a/b", false},
		{"*", ".hidden", true},
		{"**", "a", true},
		{"**", "a/b/c", true},
		{"**/x", "x", true},
		{"**/x", "a/b/x", true},
		{"**/x", "a/b/xx", false},
		{"dist/**", "dist/a", true},
		{"dist/**", "dist/a/b", true},
		{"dist/**", "dist", false},
		{"dist/**", "distx/a", false},
		{"a/**/z", "a/z", true},
		{"a/**/z", "a/b/c/z", true},
		{"a/**/z", "a/b/z/c", false},
		{"**/a/**/b", "x/a/a/y/b", true},
		{"?", "é", false},
		{"??", "é", true},
		{"?", "\xff", true},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXbYbZ", false},
		{"*.\xff", "x.\xff", true},
	} {
		s, err := Compile([]string{c.pattern})
		if err != nil {
			t.Fatalf("%q: %v", c.pattern, err)
		}
		if got := s.Match(c.name); got != c.want {
			t.Errorf("%q on %q: %v", c.pattern, c.name, got)
		}
	}
	if (Set{}).Match("a") {
		t.Error("the zero set matches")
	}
}

func TestPatternsAreStrict(t *testing.T) {
	for _, bad := range []string{"", "/etc/passwd", "..", "../a", "a/../b", "./a", "a//b", "a/", "a**", "**b/c", "[a]", `a\b`, "{a,b}", "a\nb", ".git/config", "x/.GIT", strings.Repeat("a", 1025), strings.Repeat("a/", 64) + "b"} {
		if _, err := Compile([]string{bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, err := Compile(make([]string, MaxPatterns+1)); err == nil {
		t.Error("too many patterns were taken")
	}
}

// A pattern that would be hard for a matcher that goes back further ends.
func TestMatchIsNotExponential(t *testing.T) {
	s, err := Compile([]string{strings.Repeat("**/a/", 30) + "b", strings.Repeat("*a", 200) + "b"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Match(strings.Repeat("a/", 2000)+"c") || s.Match(strings.Repeat("a", 4000)) {
		t.Error("it matched")
	}
}

func FuzzShown(f *testing.F) {
	for _, s := range []string{"", ".", "..", "a/../b", "/etc", "x\xff\x1b[2J", "ü/日本", strings.Repeat("é", 300), "\u202e", "a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := Shown(name)
		if got == "" || len(got) > maxShown+64 && !strings.Contains(got, "/") || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\x1b \\:\"\n") {
			t.Errorf("%q: %q", name, got)
		}
		for part := range strings.SplitSeq(got, "/") {
			if part == "" || part == "." || part == ".." {
				t.Errorf("%q: %q has part %q", name, got, part)
			}
		}
	})
}

package show

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"plain text":                  "plain text",
		"grüße 日本語 🚀 ①":               "grüße 日本語 🚀 ①",
		"\x1b[2J":                     `\x1b[2J`,
		"\x1b]52;c;eA==\a":            `\x1b]52;c;eA==\x07`,
		"\x1b]8;;http://x\x1b\\":      `\x1b]8;;http://x\x1b\`,
		"a\rb":                        `a\x0db`,
		"a\bb":                        `a\x08b`,
		"nul\x00":                     `nul\x00`,
		"del\x7f":                     `del\x7f`,
		"c1\u009b31m":                 `c1\u009b31m`,
		"raw c1 \x9b31m":              `raw c1 \x9b31m`,
		"\u202egnp.exe":               `\u202egnp.exe`,
		"\u2066iso\u2069":             `\u2066iso\u2069`,
		"zero\u200bwidth\u200d\ufeff": `zero\u200bwidth\u200d\ufeff`,
		"tag\U000e0041":               `tag\U000e0041`,
		"filler\u3164\u115f":          `filler\u3164\u115f`,
		"line\u2028sep":               `line\u2028sep`,
		"private\ue000":               `private\ue000`,
		"a\nb\tc":                     `a\nb\tc`,
		"soft\u00adhyphen":            `soft\u00adhyphen`,
	} {
		if got := Line(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := Text("a\n\tb\r"); got != "a\n\tb\\x0d" {
		t.Errorf("text: %q", got)
	}
}

// harmless says whether nothing in s can do more than put ink on paper.
func harmless(s string) bool {
	for _, r := range s {
		if r != '\n' && r != '\t' && !Plain(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}

// However a stream is cut into writes, the same is shown, and it is harmless.
func FuzzEscaper(f *testing.F) {
	for _, s := range []string{"", "a\x1b[2Jb", "é\u202e\xff", "\xe2\x82", "🚀\xf0\x9f", "\u009b"} {
		f.Add([]byte(s), 1)
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		if cut < 1 {
			cut = 1
		}
		var out bytes.Buffer
		e := NewEscaper(&out)
		for rest := in; len(rest) > 0; {
			n := min(cut, len(rest))
			if _, err := e.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if want := Text(string(in)); out.String() != want {
			t.Errorf("%q in pieces of %d: %q, want %q", in, cut, out.String(), want)
		}
		if !harmless(out.String()) {
			t.Errorf("%q: shows %q", in, out.String())
		}
	})
}

// A document is harmless to look at and means what it meant.
func FuzzDocument(f *testing.F) {
	for _, s := range []string{"", "\x1b[2J", "\u202e\u009b", "\U000e0041", "<&>\u2028", "\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "?")
		out, err := JSON(map[string]string{"s": s}, "  ")
		if err != nil {
			t.Fatal(err)
		}
		if !harmless(string(out)) {
			t.Errorf("%q: document %q", s, out)
		}
		var back map[string]string
		if err := json.Unmarshal(out, &back); err != nil || back["s"] != s {
			t.Errorf("%q came back as %q, %v", s, back["s"], err)
		}
	})
}

package denial

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/task"
)

func sample() Line {
	return Line{Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC).UnixNano(), Operation: "open", Path: "/workspace/.git/config", Error: "EROFS", Program: "sh", PID: 7}
}

func TestLinesRoundTrip(t *testing.T) {
	raw := "/workspace/.claude/\x00\x1b[2J\xff\n\"\\\u202e\u200b{"
	l := sample()
	l.Path, l.Count = Escape(raw), 12
	list, err := Parse(bytes.NewReader(Append(Append(nil, sample()), l)), "sb-a")
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	got := list[1]
	want := `/workspace/.claude/\x00\x1b[2J\xff\n"\\\u202e\u200b{`
	if got.Path != want || got.Seq != 2 || got.Count != 12 || got.Sandbox != "sb-a" || got.Error != "EROFS" || got.PID != 7 || got.Program != "sh" {
		t.Errorf("%+v, want path %s", got, want)
	}
	if !got.Time.Equal(time.Unix(0, l.Time)) {
		t.Errorf("time %v", got.Time)
	}
}

func TestWhatCantBeReadIsCounted(t *testing.T) {
	good := string(Append(nil, sample()))
	for name, line := range map[string]string{
		"garbage": "garbage\n", "unknown field": `{"t":1,"op":"open","x":1}` + "\n", "unknown operation": strings.Replace(good, "open", "fly", 1),
		"unknown error": strings.Replace(good, "EROFS", "EASY", 1), "negative count": strings.Replace(good, "}", `,"n":-4}`, 1),
		"two": strings.TrimSuffix(good, "\n") + strings.TrimSuffix(good, "\n") + "\n", "long": strings.Repeat("x", 3*maxLine) + "\n",
		"time": `{"t":1,"op":"open","err":"EROFS"}` + "\n", "empty": "\n",
	} {
		list, err := Parse(strings.NewReader(line+good+"half"), "sb-a")
		if err != nil || len(list) != 2 || list[0].Operation != Unreadable || list[1].Operation != "open" || list[1].Seq != 2 {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
}

func TestReadGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "denials")
	if list, err := Read(path, "sb-a", 0); err != nil || len(list) != 0 {
		t.Fatalf("no file: %v, %v", list, err)
	}
	text := []byte{}
	for range 5 {
		text = Append(text, sample())
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[int64]int{-1: 5, 0: 5, 3: 2, 5: 0, 99: 0} {
		list, err := Read(path, "sb-a", after)
		if err != nil || len(list) != want || want > 0 && list[0].Seq != max(after, 0)+1 {
			t.Errorf("after %d: %+v, %v", after, list, err)
		}
	}
}

func TestEscapeBounds(t *testing.T) {
	if got := Escape(strings.Repeat("\xff", 10_000)); len(got) > maxText+3 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes", len(got))
	}
}

// FuzzParse feeds anything: no panic, nothing unprintable or unbounded comes out,
// and what was escaped once is left as it is.
func FuzzParse(f *testing.F) {
	f.Add([]byte("x\n"))
	f.Add(Append(nil, sample()))
	f.Add([]byte("{\"t\":1700000000000000000,\"op\":\"open\",\"path\":\"\\u001b[2J\xff\",\"err\":\"EPERM\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := Parse(bytes.NewReader(text), "sb-a")
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > bytes.Count(text, []byte("\n")) {
			t.Fatalf("%d out of %d lines", len(list), bytes.Count(text, []byte("\n")))
		}
		for i, d := range list {
			if d.Seq != int64(i)+1 || d.Count < 0 {
				t.Fatalf("%+v", d)
			}
			check(t, d)
			if e := Escape(string(text)); clean(e, maxText) != e {
				t.Fatalf("%q is escaped twice", e)
			}
		}
	})
}

func check(t *testing.T, d task.FileDenial) {
	for _, s := range []string{d.Path, d.Program, d.Error} {
		if !utf8.ValidString(s) || len(s) > maxText+3 {
			t.Fatalf("%q", s)
		}
		for _, r := range s {
			if !strconv.IsPrint(r) {
				t.Fatalf("%q holds %q", s, r)
			}
		}
	}
}

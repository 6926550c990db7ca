package patch

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

const modified = "diff --git a/x b/x\nindex 0000000..1111111 100644\n--- a/x\n+++ b/x\n"

// What git would guess, skip or mend is refused with its line.
func TestWhatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		patch, want string
	}{
		"words ahead":                {"hello\n" + modified + "@@ -1 +1 @@\n-a\n+b\n", "line 1: a file begins"},
		"words between":              {modified + "@@ -1 +1 @@\n-a\n+b\nwords\n" + modified, "line 8: a hunk begins"},
		"an old-style patch":         {"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "line 1"},
		"more lines than it says":    {modified + "@@ -1 +1 @@\n-a\n+b\n+c\n", "line 8"},
		"fewer lines than it says":   {modified + "@@ -1,3 +1,3 @@\n-a\n+b\n", "ends within a hunk"},
		"fewer, and another file":    {modified + "@@ -1,3 +1,3 @@\n-a\n+b\ndiff --git a/y b/y\n", "line 8"},
		"a bare line":                {modified + "@@ -1,2 +1,2 @@\n-a\n+b\n\n", "line 8"},
		"no lines":                   {modified + "@@ -0,0 +0,0 @@\n", "line 5"},
		"huge numbers":               {modified + "@@ -1,9999999999 +1 @@\n", "line 5"},
		"no end of the line":         {modified + "@@ -1 +1 @@\n-a\n+b", "cut short"},
		"names that differ":          {"diff --git a/x b/y\n--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "line 3: the two names"},
		"another name of the hunks":  {"diff --git a/x b/x\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "line 3: the names ahead"},
		"a null of what is there":    {"diff --git a/x b/x\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n", "line 3: the names ahead"},
		"no prefix":                  {"diff --git x x\n", "two names"},
		"a rename of half":           {"diff --git a/x b/y\nrename from x\n", "don't agree"},
		"a rename of others":         {"diff --git a/x b/y\nrename from q\nrename to y\n", "don't agree"},
		"a rename and a copy":        {"diff --git a/x b/y\nrename from x\ncopy to y\n", "line 3"},
		"a new file that is removed": {"diff --git a/x b/x\nnew file mode 100644\ndeleted file mode 100644\n", "at once"},
		"said twice":                 {"diff --git a/x b/y\nrename from x\nrename from z\n", "said twice"},
		"a folder's mode":            {"diff --git a/x b/x\nnew file mode 040000\n", "line 2"},
		"one mode":                   {"diff --git a/x b/x\nold mode 100644\n", "modes don't go"},
		"an unknown header":          {"diff --git a/x b/x\nrename old x\n", "line 2"},
		"a header after its index":   {"diff --git a/x b/x\nindex 0000000..1111111\nnew file mode 120000\n", "line 3"},
		"binary files differ":        {"diff --git a/x b/x\nindex 0000000..1111111\nBinary files a/x and b/x differ\n", "line 3"},
		"binary without its end":     {"diff --git a/x b/x\nGIT binary patch\nliteral 0\nHcmV?d00001\n", "ends where binary data"},
		"binary garbage":             {"diff --git a/x b/x\nGIT binary patch\nliteral 3\n#\n\n", "line 4"},
		"three binaries":             {"diff --git a/x b/x\nGIT binary patch\nliteral 0\nHcmV?d00001\n\nliteral 0\nHcmV?d00001\n\nliteral 0\nHcmV?d00001\n\n", "line 9"},
		"a carriage return":          {"diff --git a/x b/x\r\n", "two names"},
		"a broken escape":            {`diff --git "a/\q" "b/\q"` + "\n", "two names"},
		"a NUL by escape":            {`diff --git "a/\000" "b/\000"` + "\n", "two names"},
		"an open quote":              {`diff --git "a/x "b/x` + "\n", "two names"},
		"a header without end":       {"diff --git a/" + strings.Repeat("x", MaxLine) + "\n", "line 1"},
		"unmerged":                   {"* Unmerged path x\n", "line 1"},
		"nothing but an end":         {"\n", "line 1"},
	} {
		_, err := read([]byte(c.patch))
		var own *Error
		if !errors.As(err, &own) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestErrorsOfTheSourcePassOn(t *testing.T) {
	broken := errors.New("broken")
	for _, n := range []int{0, 5, 30, 70, 80} {
		from := io.MultiReader(strings.NewReader((modified + "@@ -1 +1 @@\n-a\n+b\n")[:n]), iotest.ErrReader(broken))
		if err := Read(from, &seen{}); !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

func TestLinesAreNumbered(t *testing.T) {
	patch := modified + "@@ -3,2 +5,3 @@ func\n k\n-a\n+b\n+c\n\\ No newline at end of file\n@@ -9 +11 @@\n-x\n\\ No newline at end of file\n+y\n"
	var got []string
	err := Read(strings.NewReader(patch), &lines{func(l Line) { got = append(got, string(l.Op)+string(l.Text)+string(rune('0'+l.New%10))) }})
	if want := " k5 -a6 +b6 +c7 -x1 +y1"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("%v %q, want %q", err, strings.Join(got, " "), want)
	}
}

type lines struct{ each func(Line) }

func (*lines) File(File)     {}
func (l *lines) Line(x Line) { l.each(x) }
func (*lines) End()          {}

func TestQuotedNamesComeBack(t *testing.T) {
	for _, name := range []string{"a b", "x\ny", `q"\`, "ü\x00\xff\x7f", "\a\b\t\n\v\f\r", "plain", `"`, "\u202e"} {
		text := Quoted(name)
		for _, c := range []byte(text) {
			if c < ' ' || c >= 0x7f {
				t.Errorf("%q shows as %q", name, text)
			}
		}
		got, ok := decoded(text)
		if strings.Contains(name, "\x00") {
			ok, got = !ok, name // no name has one
		}
		if !ok || got != name {
			t.Errorf("%q shows as %s, which is %q", name, text, got)
		}
	}
}

// Fifty megabytes of many lines, of one line and of binary data take no more
// memory than little.
func TestMemoryIsFlat(t *testing.T) {
	const size = 50 << 20
	line := strings.Repeat("x", 99) + "\n"
	data := "z" + strings.Repeat("0", 65) + "\n"
	for name, c := range map[string]struct {
		head, each, tail string
		n                int
	}{
		"lines":    {"diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,500000 @@\n", "+" + line, "", 500_000},
		"one line": {"diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+", strings.Repeat("x", 100), "\n", size / 100},
		"binary":   {"diff --git a/x b/x\nnew file mode 100644\nGIT binary patch\nliteral 9\n", data, "\n", size / len(data)},
	} {
		parts := []io.Reader{strings.NewReader(c.head)}
		parts = append(parts, &repeated{text: c.each, left: c.n}, strings.NewReader(c.tail))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := &seen{}
		if err := Read(io.MultiReader(parts...), s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 16<<20 {
			t.Errorf("%s: the heap grew by %d", name, grown)
		}
	}
}

// repeated is a text so many times over.
type repeated struct {
	text string
	left int
	at   int // in the text
}

func (r *repeated) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.text[r.at:])
	if r.at += n; r.at == len(r.text) {
		r.at, r.left = 0, r.left-1
	}
	return n, nil
}

func FuzzRead(f *testing.F) {
	for _, c := range shapes()[1:3] {
		f.Add(made(f, c.base, c.change, c.options))
	}
	f.Add([]byte(modified + "@@ -1 +1 @@\n-a\n+b\n"))
	f.Add([]byte("diff --git \"a/\\303\\274\" \"b/\\303\\274\"\nold mode 100644\nnew mode 100755\n"))
	f.Add([]byte("diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"))
	f.Fuzz(func(t *testing.T, patch []byte) {
		s, err := read(patch)
		if s.ends > len(s.files) || err == nil && s.ends != len(s.files) {
			t.Errorf("%d files, %d ends", len(s.files), s.ends)
		}
		for _, file := range s.files {
			for _, name := range []string{file.Old, file.New} {
				if strings.Contains(name, "\x00") || name != "" && !bytes.Contains([]byte(Quoted(name)), []byte(name)) && !strings.HasPrefix(Quoted(name), `"`) {
					t.Errorf("name %q", name)
				}
			}
			if file.Name() == "" {
				t.Errorf("a file without a name: %+v", file)
			}
		}
	})
}

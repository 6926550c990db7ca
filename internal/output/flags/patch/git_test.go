package patch

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// gitEnv keeps git from the configuration of who runs the tests.
func gitEnv(dir string) []string {
	return append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t.invalid", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t.invalid")
}

func sh(t testing.TB, dir, script string) []byte {
	t.Helper()
	c := exec.Command("sh", "-euc", script)
	c.Dir, c.Env = dir, gitEnv(dir)
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out
}

// made has git make a patch: base is committed, change is what is looked at.
func made(t testing.TB, base, change, options string) []byte {
	t.Helper()
	dir := t.TempDir()
	tree := "4b825dc642cb6eb9a060e54bf8d69288fbee4904" // the empty one
	if base != "" {
		base, tree = base+"\ngit add -A; base=$(git write-tree)\n", "$base"
	}
	return sh(t, dir, "git init -q --template= .\n"+base+change+
		"\ngit add -A\ngit diff --cached --binary --full-index --no-ext-diff --no-textconv --no-color --src-prefix=a/ --dst-prefix=b/ "+options+" "+tree)
}

// seen is what a patch says, a line a file.
type seen struct {
	files []File
	lines map[string]int
	last  string
	ends  int
	size  int
}

func (s *seen) File(f File) {
	s.files, s.last = append(s.files, f), f.Name()
}

func (s *seen) Line(l Line) {
	if s.lines == nil {
		s.lines = map[string]int{}
	}
	s.lines[string(l.Op)+s.last]++
	s.size += len(l.Text)
}
func (s *seen) End() { s.ends++ }

func (s *seen) names() map[string]bool {
	names := map[string]bool{}
	for _, f := range s.files {
		names[f.Old], names[f.New] = true, true
	}
	delete(names, "")
	return names
}

func read(patch []byte) (*seen, error) {
	s := &seen{}
	err := Read(bytes.NewReader(patch), s)
	return s, err
}

type shape struct {
	name, base, change, options string
	want                        []string // "old new oldmode newmode moved binary"
}

func shapes() []shape {
	return []shape{
		{"nothing", "", "", "", nil},
		{"a new file", "", "echo x > a", "", []string{" a 0 100644  false"}},
		{"a new empty file", "", ": > a; : > 'b c'", "", []string{" a 0 100644  false", " b c 0 100644  false"}},
		{"a changed file", "seq 30 > a", "sed -i 's/^7$/x/;s/^25$/y/' a", "", []string{"a a 100644 100644  false"}},
		{"a removed file", "echo x > a; : > b", "rm a b", "", []string{"a  100644 0  false", "b  100644 0  false"}},
		{"no newline at the ends", "printf x > a; echo x > b; printf x > c", "printf y > a; printf x > b; echo x > c", "", []string{"a a 100644 100644  false", "b b 100644 100644  false", "c c 100644 100644  false"}},
		{"modes", "echo > a; echo > b; chmod +x b", "chmod +x a; chmod -x b; echo y > b", "", []string{"a a 100644 100755  false", "b b 100755 100644  false"}},
		{"a rename", "seq 99 > a; seq 50 > 'p q'", "git mv a 'b b'; git mv 'p q' d; echo >> d; chmod +x d", "--find-renames", []string{"a b b 0 0 rename false", "p q d 100644 100755 rename false"}},
		{"names that read as two", "mkdir -p 'x b'; echo 1 > 'x b/x'; seq 99 > x", "echo 2 > 'x b/x'; git mv x 'x b/x b'", "--find-renames", []string{"x b/x x b/x 100644 100644  false", "x x b/x b 0 0 rename false"}},
		{"a copy", "seq 99 > a", "cp a b; cp a 'c\"'; echo >> a", "--find-copies", []string{"a a 100644 100644  false", "a b 0 0 copy false", "a c\" 0 0 copy false"}},
		{"a rename without renames", "seq 99 > a", "git mv a b", "--no-renames", []string{"a  100644 0  false", " b 0 100644  false"}},
		{"a new binary file", "", `printf '\000\001\377' > a; head -c 3000 /dev/zero > b`, "", []string{" a 0 100644  true", " b 0 100644  true"}},
		{"a changed binary file", `head -c 9000 /dev/urandom > a; cp a b`, `printf x >> a; printf '\000' > b; chmod +x b`, "", []string{"a a 100644 100644  true", "b b 100644 100755  true"}},
		{"a removed binary file", `printf '\000' > a`, "rm a", "", []string{"a  100644 0  true"}},
		{"links", "ln -s x a; ln -s y b; echo z > c; ln -s k d", "ln -sf ../../etc a; rm b; rm c; ln -s /abs c; rm d; echo plain > d", "", []string{
			"a a 120000 120000  false", "b  120000 0  false", "c  100644 0  false", " c 0 120000  false", "d  120000 0  false", " d 0 100644  false",
		}},
		{"a submodule", "", "git init -q sub; git -C sub commit -q --allow-empty -m x; git add sub 2>/dev/null", "", []string{" sub 0 160000  false"}},
		{"odd names", "", "touch \"$(printf 'new\\nline')\" \"$(printf 't\\tab')\" \"$(printf '\\377\\001')\" 'qu\"ote' 'back\\slash' 'ü' ' lead' 'trail ' \"$(printf 'cr\\r')\"; mkdir -p 'a b/b a'; echo x > 'a b/b a/a b'", "", []string{
			"  lead 0 100644  false", " a b/b a/a b 0 100644  false", ` back\slash 0 100644  false`, " cr\r 0 100644  false", " new\nline 0 100644  false", ` qu"ote 0 100644  false`, " t\tab 0 100644  false",
			" trail  0 100644  false", " ü 0 100644  false", " \xff\x01 0 100644  false",
		}},
		{"line ends and lines that look like headers", `printf 'a\r\nb\r\n' > a`, `printf 'a\r\nc\r\n' > a; printf -- '-- x\n++ y\n@@ -1 +1 @@\ndiff --git a/no b/no\n\n' > h; printf 'x\n\\ No newline at end of file\n' > n`, "", []string{
			"a a 100644 100644  false", " h 0 100644  false", " n 0 100644  false",
		}},
		{"huge lines", "", "head -c 300000 /dev/zero | tr '\\0' x > a; echo >> a; echo y >> a", "", []string{" a 0 100644  false"}},
		{"a path in a folder named b", "mkdir -p 'a b'; echo x > 'a b/c'", "echo y > 'a b/c'", "", []string{"a b/c a b/c 100644 100644  false"}},
	}
}

func TestWhatGitWrites(t *testing.T) {
	for _, c := range shapes() {
		t.Run(c.name, func(t *testing.T) {
			patch := made(t, c.base, c.change, c.options)
			s, err := read(patch)
			if err != nil {
				t.Fatalf("%v\n%s", err, patch)
			}
			var got []string
			for _, f := range s.files {
				got = append(got, fmt.Sprintf("%s %s %o %o %s %t", f.Old, f.New, f.OldMode, f.NewMode, f.Moved, f.Binary))
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(c.want))
			if !slices.Equal(got, want) || s.ends != len(got) {
				t.Errorf("got  %q\nwant %q\n%s", got, want, patch)
			}
			judged(t, patch, s, true)
		})
	}
}

// judged asks git what it would touch: all of it must be named, and of a patch
// that git made nothing else.
func judged(t testing.TB, patch []byte, s *seen, exactly bool) {
	t.Helper()
	if len(patch) == 0 {
		return
	}
	named := s.names()
	for name := range touched(patch) {
		if !named[name] {
			t.Errorf("git would touch %q, which is not named: %q", name, slices.Sorted(maps.Keys(named)))
		}
		delete(named, name)
	}
	for _, f := range s.files {
		if f.Moved != "" {
			delete(named, f.Old) // git names the new one alone
		}
	}
	if exactly && len(named) > 0 {
		t.Errorf("git would not touch %q", slices.Sorted(maps.Keys(named)))
	}
}

// touched are the names that git would touch; none when it refuses the patch.
func touched(patch []byte) map[string]bool {
	names := map[string]bool{}
	c := exec.Command("git", "apply", "--numstat", "-z", "--unsafe-paths", "-")
	c.Dir, c.Env, c.Stdin = "/", gitEnv("/"), bytes.NewReader(patch)
	out, err := c.Output()
	if err != nil {
		return names
	}
	for entry := range strings.SplitSeq(string(out), "\x00") {
		if parts := strings.SplitN(entry, "\t", 3); len(parts) == 3 {
			names[parts[2]] = true
		}
	}
	return names
}

// A patch that was altered by anybody is refused, or names all that git would
// touch.
func TestGitTouchesNothingThatIsNotNamed(t *testing.T) {
	rounds := 150
	if n, err := strconv.Atoi(os.Getenv("COFFERDAM_PATCHES")); err == nil {
		rounds = n
	}
	var corpus [][]byte
	for _, c := range shapes() {
		if c.name != "huge lines" {
			corpus = append(corpus, made(t, c.base, c.change, c.options))
		}
	}
	random := rand.New(rand.NewPCG(7, 11))
	taken := 0
	for range rounds {
		patch := altered(random, corpus)
		s, err := read(patch)
		if err != nil {
			continue
		}
		taken++
		judged(t, patch, s, false)
		if t.Failed() {
			t.Fatalf("%q", patch)
		}
	}
	if taken < rounds/20 {
		t.Errorf("only %d of %d altered patches were taken", taken, rounds)
	}
}

// altered is one patch of the corpus, or two, with lines swapped, doubled, dropped
// and changed.
func altered(random *rand.Rand, corpus [][]byte) []byte {
	pick := func() []byte { return corpus[random.IntN(len(corpus))] }
	lines := bytes.SplitAfter(slices.Concat(pick(), pick()), []byte("\n"))
	words := []string{"a/", "b/", " ", "\"", "\\", "\t", "\r", "/dev/null", "..", ".git/", "0", "1", "+", "-", "120000", "\n", "\x00", "\\056", "rename from x\n", "--- a/z\n", "+++ b/z\n", "diff --git a/z b/z\n", "@@ -0,0 +1 @@\n+x\n", "copy to y\n", "new file mode 100644\n"}
	for range 1 + random.IntN(3) {
		i, j := random.IntN(len(lines)), random.IntN(len(lines))
		switch random.IntN(6) {
		case 0:
			lines[i], lines[j] = lines[j], lines[i]
		case 1:
			lines = slices.Insert(lines, i, slices.Clone(lines[j]))
		case 2:
			lines = slices.Delete(lines, i, i+1)
		case 3:
			lines = slices.Insert(lines, i, []byte(words[random.IntN(len(words))]))
		default:
			line := slices.Clone(lines[i])
			at := random.IntN(len(line) + 1)
			lines[i] = slices.Concat(line[:at], []byte(words[random.IntN(len(words))]), line[min(at+random.IntN(3), len(line)):])
		}
		if len(lines) == 0 {
			return nil
		}
	}
	return bytes.Join(lines, nil)
}

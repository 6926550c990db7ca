package evidence

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// diff is what git makes of two trees, name → content.
func diff(t *testing.T, from, to map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=T", "-c", "user.email=t@t.invalid"}, args...)...)
		c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := c.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return string(out)
	}
	write := func(tree map[string]string) {
		for name, text := range tree {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	git("init", "-q")
	write(from)
	git("add", "-A")
	git("commit", "-q", "--allow-empty", "-m", "one")
	for name := range from {
		if _, stays := to[name]; !stays {
			git("rm", "-q", "--", name)
		}
	}
	write(to)
	git("add", "-A")
	return git("diff", "--cached", "--binary", "--full-index", "--no-renames", "HEAD")
}

func TestFindings(t *testing.T) {
	goTest := "package a\n\nfunc TestA(t *testing.T) {\n\tif f() != 1 {\n\t\tt.Errorf(\"no\")\n\t}\n}\n"
	for name, c := range map[string]struct {
		from, to map[string]string
		want     string
	}{
		"code alone":      {map[string]string{"a.go": "package a\n// assert\nfunc f() { t.Errorf() }\n"}, map[string]string{"a.go": "package a\n"}, ""},
		"removed":         {map[string]string{"a_test.go": goTest, "b": "x"}, map[string]string{"b": "x"}, "file-removed a_test.go 7 0"},
		"moved":           {map[string]string{"a_test.go": goTest}, map[string]string{"sub/a_test.go": goTest}, ""},
		"moved, weaker":   {map[string]string{"a_test.go": goTest}, map[string]string{"sub/a_test.go": "package a\n\nfunc TestA(t *testing.T) {}\n"}, "assertions-dropped sub/a_test.go 1 0"},
		"moved away":      {map[string]string{"a_test.go": goTest}, map[string]string{"a_test.go.bak": goTest}, "file-removed a_test.go 7 0"},
		"assertion gone":  {map[string]string{"test_a.py": "def test_a():\n    assert f() == 1\n    assert g()\n"}, map[string]string{"test_a.py": "def test_a():\n    assert g()\n"}, "assertions-dropped test_a.py 1 0"},
		"commented out":   {map[string]string{"test_a.py": "def test_a():\n    assert f() == 1\n"}, map[string]string{"test_a.py": "def test_a():\n    # assert f() == 1\n    pass\n"}, "assertions-dropped test_a.py 1 0"},
		"changed":         {map[string]string{"test_a.py": "def test_a():\n    assert f() == 1\n"}, map[string]string{"test_a.py": "def test_a():\n    assert f() == 2\n"}, ""},
		"renamed":         {map[string]string{"test_a.py": "def test_a():\n    assert f()\n"}, map[string]string{"test_a.py": "def test_b():\n    assert f()\n"}, ""},
		"test gone":       {map[string]string{"src/a.test.ts": "it('a', () => {})\nit('b', () => {})\n"}, map[string]string{"src/a.test.ts": "it('a', () => {})\n"}, "tests-dropped src/a.test.ts 1 0"},
		"skip":            {map[string]string{"src/a.test.ts": "it('a', () => {})\n"}, map[string]string{"src/a.test.ts": "it.skip('a', () => {})\n"}, "skips-added src/a.test.ts 0 1"},
		"only":            {map[string]string{"src/a.test.ts": "it('a', () => {})\n"}, map[string]string{"src/a.test.ts": "it.only('a', () => {})\n"}, "focus-added src/a.test.ts 0 1"},
		"go skip":         {map[string]string{"a_test.go": goTest}, map[string]string{"a_test.go": strings.Replace(goTest, "\tif", "\tt.Skip()\n\tif", 1)}, "skips-added a_test.go 0 1"},
		"go constraint":   {map[string]string{"a_test.go": goTest}, map[string]string{"a_test.go": "//go:build never\n\n" + goTest}, "skips-added a_test.go 0 1"},
		"java":            {map[string]string{"src/test/ATest.java": "@Test void a() { assertEquals(1, f()); }\n"}, map[string]string{"src/test/ATest.java": "@Test @Disabled void a() { assertEquals(1, f()); }\n"}, "skips-added src/test/ATest.java 0 1"},
		"rust":            {map[string]string{"tests/a.rs": "#[test]\nfn a() { assert_eq!(f(), 1); }\n"}, map[string]string{"tests/a.rs": "#[test]\n#[ignore]\nfn a() { assert_eq!(f(), 1); }\n"}, "skips-added tests/a.rs 0 1"},
		"perl":            {map[string]string{"t/a.t": "ok(f());\nis(g(), 1);\n"}, map[string]string{"t/a.t": "ok(f());\n"}, "assertions-dropped t/a.t 1 0"},
		"a name in bytes": {map[string]string{"t\xff_test.go": goTest}, map[string]string{"b": ""}, `file-removed "t\377_test.go" 7 0`},
		"added":           {nil, map[string]string{"a_test.go": goTest}, ""},
		"binary":          {map[string]string{"a_test.go": "\x00\x01"}, map[string]string{"a_test.go": "\x00\x02"}, ""},
	} {
		text := diff(t, c.from, c.to)
		f, err := Find(strings.NewReader(text))
		var got []string
		for _, found := range f.List {
			got = append(got, fmt.Sprintf("%s %s %d %d", found.Kind, found.Path, found.Removed, found.Added))
		}
		if err != nil || f.Problem != "" || strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, %v, %q\n%s", name, got, err, f.Problem, text)
		}
	}
	if f, err := Find(strings.NewReader("no patch at all\n")); err != nil || f.Problem == "" {
		t.Errorf("garbage: %+v, %v", f, err)
	}
}

func TestIsTest(t *testing.T) {
	for name, want := range map[string]bool{
		"": false, "a.go": false, "a_test.go": true, "testdata/a.go": false, "tests/data.json": false, "tests/a.py": true, "conftest.py": true,
		"src/contest.py": false, "FooTest.java": true, "Latest.java": false, "latest.js": false, "a.spec.tsx": true, "t/x.t": true, "Makefile": false, "__tests__/a.js": true,
	} {
		// "Latest" ends with what a test ends with, and is told apart by its case.
		if got := IsTest(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte("diff --git a/a_test.go b/a_test.go\ndeleted file mode 100644\nindex 0000000000000000000000000000000000000001..0000000000000000000000000000000000000000\n--- a/a_test.go\n+++ /dev/null\n@@ -1 +0,0 @@\n-func TestA(t *testing.T) { t.Error() }\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := Find(bytes.NewReader(in))
		if err != nil || len(out.List) > maxFindings || out.Problem != "" && len(out.List) > 0 {
			t.Errorf("%q: %+v, %v", in, out, err)
		}
	})
}

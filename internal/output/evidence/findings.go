package evidence

import (
	"bytes"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/output/flags/patch"
)

// The kinds of findings. Each is about one file of tests.
const (
	FileRemoved       = "file-removed"       // the patch removes it
	TestsDropped      = "tests-dropped"      // it takes away more lines that declare tests than it brings
	AssertionsDropped = "assertions-dropped" // the same of lines that assert
	SkipsAdded        = "skips-added"        // it brings more lines that skip tests than it takes away
	FocusAdded        = "focus-added"        // the same of lines that leave out every other test
)

// maxFindings bounds how many findings are listed, maxFiles how many files of
// tests are looked at.
const (
	maxFindings = 100
	maxFiles    = 20_000
)

// Finding is what the patch does to one file of tests.
type Finding struct {
	Kind    string `json:"kind"`
	Path    string `json:"path"` // as git writes names
	Removed int    `json:"removed"`
	Added   int    `json:"added"`
}

// Findings are what a patch does to the files of tests. The rules are plain: a
// file is one of tests by its name; a line asserts, declares a test or skips one by
// the words that common test libraries use for that; comments don't count; what is
// removed and what is added is counted, a file at a time, whichever lines they are. A
// file that is removed where one of the same base name is added was moved, and the two
// count as one. Data that tests compare with (golden files) is not looked at.
type Findings struct {
	List    []Finding
	More    int    // that are not listed
	Problem string // why there are none; empty: all of the patch was read
}

// Find reads a patch as bytes that a stranger wrote. Errors are those of from.
func Find(from io.Reader) (Findings, error) {
	v := visitor{rules: ruleSet(), files: map[string]*counts{}}
	err := patch.Read(from, &v)
	var wrong *patch.Error
	switch {
	case errors.As(err, &wrong):
		return Findings{Problem: wrong.Error()}, nil
	case err != nil:
		return Findings{}, err
	case v.over:
		return Findings{Problem: "it changes more files of tests than are looked at"}, nil
	}
	return v.findings(), nil
}

// tally counts lines of one kind.
type tally struct{ removed, added int }

// counts is one file of tests.
type counts struct {
	removed, added bool
	rules          [4]tally
	lines          int // that were removed
}

type rule struct {
	kind  string
	line  *regexp.Regexp
	adds  bool // added lines weaken, not removed ones
	index int
}

// ruleSet are the rules of lines.
func ruleSet() []rule {
	return []rule{
		{kind: TestsDropped, line: regexp.MustCompile(`^\s*func (?:Test|Fuzz|Example)\w*\(|\bt\.Run\(|^\s*(?:async )?def test\w*\(|\b(?:it|test|describe|specify)(?:\.\w+)*\(|#\[(?:\w+::)*test\b|@(?:Test|ParameterizedTest|RepeatedTest)\b|\[(?:Fact|Theory|Test|TestMethod)\b|^\s*TEST(?:_F|_P)?\(|\bsubtest\b`), index: 0},
		{kind: AssertionsDropped, line: regexp.MustCompile(`(?i:\bassert\w*)|\bexpect\w*\s*[({]|\brequire\.\w|\bshould\b|\b[tb]\.(?:Error|Fatal|Fail)\w*\(|\bverify\(|\b(?:ok|is|isnt|is_deeply|like|unlike|cmp_ok|cmp\.Diff)\s*\(|\b(?:EXPECT|ASSERT|CHECK|REQUIRE)_?\w*\(|\bXCTAssert\w*`), index: 1},
		{kind: SkipsAdded, adds: true, line: regexp.MustCompile(`\b[tb]\.Skip(?:f|Now)?\(|\bpytest\.(?:mark\.)?(?:skip|xfail|importorskip)|@(?:unittest\.)?(?:skip|expectedFailure)|\bskipTest\(|\b(?:it|test|describe|specify)\.(?:skip|todo|fails?)\b|\bx(?:it|describe|test|specify)\(|@(?:Disabled|Ignore)\b|#\[ignore\b|\bGTEST_SKIP\b|\bskip_all\b|\bSKIP:|\bskip:\s*['"t]|^//go:build\b`), index: 2},
		{kind: FocusAdded, adds: true, line: regexp.MustCompile(`\b(?:it|test|describe|specify)\.only\b|\bf(?:it|describe)\(|\bonly:\s*true`), index: 3},
	}
}

type visitor struct {
	rules []rule
	files map[string]*counts
	at    *counts
	over  bool
}

// File begins a file.
func (v *visitor) File(f patch.File) {
	v.at = nil
	name := f.Name()
	if !IsTest(f.Old) && !IsTest(f.New) {
		return
	}
	if len(v.files) >= maxFiles {
		v.over = true
		return
	}
	c := &counts{removed: f.New == "" || IsTest(f.Old) && !IsTest(f.New), added: f.Old == ""}
	v.files[name], v.at = c, c
}

// Line counts a line of it.
func (v *visitor) Line(l patch.Line) {
	if v.at == nil || l.Op == ' ' {
		return
	}
	if l.Op == '-' {
		v.at.lines++
	}
	for _, r := range v.rules {
		// The constraint of a build is a comment that acts.
		if comment(l.Text) && !(r.kind == SkipsAdded && bytes.HasPrefix(l.Text, []byte("//go:build"))) || !r.line.Match(l.Text) {
			continue
		}
		if l.Op == '-' {
			v.at.rules[r.index].removed++
		} else {
			v.at.rules[r.index].added++
		}
	}
}

// End ends a file.
func (v *visitor) End() { v.at = nil }

func comment(line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	for _, mark := range []string{"//", "/*", "*", "--", "# ", "<!--"} {
		if bytes.HasPrefix(line, []byte(mark)) {
			return true
		}
	}
	return bytes.Equal(line, []byte("#"))
}

func (v *visitor) findings() Findings {
	v.join()
	names := make([]string, 0, len(v.files))
	for name := range v.files {
		names = append(names, name)
	}
	slices.Sort(names)
	var out Findings
	add := func(f Finding) {
		if len(out.List) >= maxFindings {
			out.More++
			return
		}
		f.Path = patch.Quoted(f.Path)
		out.List = append(out.List, f)
	}
	for _, name := range names {
		c := v.files[name]
		if c.removed {
			add(Finding{Kind: FileRemoved, Path: name, Removed: c.lines})
			continue
		}
		for _, r := range v.rules {
			n := c.rules[r.index]
			if r.adds && n.added > n.removed || !r.adds && n.removed > n.added {
				add(Finding{Kind: r.kind, Path: name, Removed: n.removed, Added: n.added})
			}
		}
	}
	return out
}

// join takes a removed and an added file of one base name for one that was moved,
// where there is one of each.
func (v *visitor) join() {
	gone, came := map[string][]string{}, map[string][]string{}
	for name, c := range v.files {
		switch base := path.Base(name); {
		case c.removed:
			gone[base] = append(gone[base], name)
		case c.added:
			came[base] = append(came[base], name)
		}
	}
	for base, from := range gone {
		to := came[base]
		if len(from) != 1 || len(to) != 1 {
			continue
		}
		old, now := v.files[from[0]], v.files[to[0]]
		for i := range now.rules {
			now.rules[i].removed += old.rules[i].removed
		}
		delete(v.files, from[0])
	}
}

// IsTest says whether a file is one of tests, by its name.
func IsTest(name string) bool {
	if name == "" {
		return false
	}
	base := path.Base(name)
	ext := path.Ext(base)
	stem := strings.TrimSuffix(base, ext)
	switch ext {
	case ".go", ".py", ".rb", ".rs", ".c", ".cc", ".cpp", ".php", ".ex", ".exs":
		if strings.HasSuffix(stem, "_test") || strings.HasSuffix(stem, "_spec") || strings.HasPrefix(stem, "test_") || base == "conftest.py" || stem == "tests" {
			return true
		}
	case ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx":
		if inner := path.Ext(stem); inner == ".test" || inner == ".spec" {
			return true
		}
	case ".java", ".kt", ".kts", ".scala", ".groovy", ".cs", ".swift":
		for _, end := range []string{"Test", "Tests", "Spec", "IT", "TestCase"} {
			if strings.HasSuffix(stem, end) {
				return true
			}
		}
	case ".t":
		return true
	case "":
		return false
	}
	// Whatever has lines of code in a folder of tests.
	for _, folder := range strings.Split(path.Dir(name), "/") {
		switch folder {
		case "test", "tests", "__tests__", "spec", "specs":
			return !slices.Contains([]string{".md", ".txt", ".json", ".yaml", ".yml", ".snap", ".golden", ".xml", ".html", ".csv"}, ext)
		}
	}
	return false
}

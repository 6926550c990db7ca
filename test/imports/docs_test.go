package imports

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The pages name files and folders that exist.
func TestDocsNameWhatExists(t *testing.T) {
	file := regexp.MustCompile("`([a-z][a-z0-9_/-]*\\.go)`")
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	decisions, _ := filepath.Glob("../../docs/decisions/*.md")
	pages = append(pages, decisions...)
	for _, name := range []string{"README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md", "internal/README.md"} {
		pages = append(pages, "../../"+name)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
		if !strings.HasSuffix(page, "life-of-a-task.md") {
			continue
		}
		for _, m := range file.FindAllStringSubmatch(string(text), -1) {
			found := false
			for _, dir := range []string{"", "internal", "internal/sandbox/gvisor", "internal/guest/agent", "internal/egress/splice"} {
				if _, err := os.Stat(filepath.Join("../..", dir, m[1])); err == nil {
					found = true
				}
			}
			if !found {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
}

// Each direct dependency has its line, and no line is of one that is gone.
func TestDependenciesAreExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	direct := map[string]bool{}
	for _, file := range []string{"../../go.mod", "../../engine/go.mod"} {
		mod, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(mod)) {
			f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
			if len(f) == 2 && strings.Contains(f[0], ".") && strings.HasPrefix(f[1], "v") && !strings.Contains(line, "// indirect") {
				direct[f[0]] = true
			}
		}
	}
	if len(direct) < 10 {
		t.Fatalf("only %d direct dependencies were read", len(direct))
	}
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z][a-z0-9.-]*\\.[a-z]+/[^`]+|pgregory.net/rapid|gocloud.dev)`").FindAllStringSubmatch(string(page), -1) {
		explained[m[1]] = true
	}
	for module := range direct {
		prefix := module
		for !explained[prefix] && strings.Contains(prefix, "/") {
			prefix = prefix[:strings.LastIndex(prefix, "/")]
		}
		if !explained[prefix] {
			t.Errorf("docs/dependencies.md does not say why %s is here", module)
		}
	}
	for module := range explained {
		if !direct[module] {
			t.Errorf("docs/dependencies.md explains %s, which is no direct dependency", module)
		}
	}
}

// A test that a page names is there: pages say what holds a promise.
func TestDocsNameTestsThatAreThere(t *testing.T) {
	begins := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)\(`)
	there := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range begins.FindAllSubmatch(text, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil || len(there) < 100 {
		t.Fatalf("%d tests were found: %v", len(there), err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]+)`")
	for _, pattern := range []string{"../../docs/*.md", "../../docs/decisions/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range named.FindAllStringSubmatch(string(text), -1) {
				if !there[m[1]] {
					t.Errorf("%s names %s, which is not there", page, m[1])
				}
			}
		}
	}
}

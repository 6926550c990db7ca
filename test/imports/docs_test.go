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

// Package boundary holds docs/data-boundary.md to what there is: every table of
// the database and every folder that the programs make must be on the page.
package boundary

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/store"
)

const root = "../.."

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "data-boundary.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryTableIsOnThePage(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var tables []string
	err = s.Base().Read.NewRaw("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").Scan(t.Context(), &tables)
	if err != nil || len(tables) < 20 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	text := page(t)
	for _, name := range tables {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the table %s is not on the page: say what it holds, how long, and what removes it", name)
		}
	}
	// And no row speaks of a table that is gone.
	section, _, _ := strings.Cut(text[strings.Index(text, "## Tables"):], "\n## ")
	for _, line := range strings.Split(section, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			if !strings.Contains("\n"+strings.Join(tables, "\n")+"\n", "\n"+m[1]+"\n") {
				t.Errorf("the page has a table %s that does not exist", m[1])
			}
		}
	}
}

// made says where programs name the folders that they make: in which file, by
// which words, beneath which folder.
var made = []struct{ files, words, beneath string }{
	{"internal/supervise/layout.go", `\{l\.path\("([^"]+)"\), 0o7`, ""},
	{"cmd/cofferdamd/*.go", `filepath\.Join\(p\.dir, "([^".]+)"`, "cofferdamd/"},
	{"internal/store/*.go", `filepath\.Join\([os]\.[dD]ir, "([^".]+)"`, "cofferdamd/"},
	{"cmd/cofferdam-worker/*.go", `filepath\.Join\((?:m\.)?dir, "([^".]+)"\)`, "worker/"},
	{"internal/sandbox/gvisor/*.go", `filepath\.Join\(d\.cfg\.Dir, "([^".]+)"\)`, "worker/"},
	{"cmd/cofferdam-gateway/run.go", `filepath\.Join\(dir, "([^".]+)"\)`, "gateway/"},
}

// file is what is named among the folders and is none.
var file = map[string]bool{"worker/id": true, "worker/stop": true, "worker/token": true}

func TestEveryFolderIsOnThePage(t *testing.T) {
	text := page(t)
	for _, m := range made {
		names, err := filepath.Glob(filepath.Join(root, m.files))
		if err != nil {
			t.Fatal(err)
		}
		met := 0
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range regexp.MustCompile(m.words).FindAllStringSubmatch(string(source), -1) {
				met++
				folder := m.beneath + found[1]
				if !file[folder] && !strings.Contains(text, "`"+folder+"`") {
					t.Errorf("%s makes the folder %s, which is not on the page: say what is in it, how long, and what removes it", name, folder)
				}
			}
		}
		if met == 0 {
			t.Errorf("%s names no folder by %s any longer: this test must learn how it does", m.files, m.words)
		}
	}
}

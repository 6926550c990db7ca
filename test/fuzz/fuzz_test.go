// Package fuzz holds which fuzz targets run with every change to what there is:
// the list is test/fuzz/targets, and test/fuzz/run runs it.
package fuzz

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each target is there, and has inputs to begin with; whatever a boundary reads
// has one.
func TestTargets(t *testing.T) {
	raw, err := os.ReadFile("targets")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		if len(fields) < 3 {
			t.Errorf("%q: a line is a package, a target and what it reads", line)
			continue
		}
		all.WriteString(strings.Join(fields[2:], " ") + "\n")
		if !seeded(t, fields[0], fields[1]) {
			t.Errorf("%s: no target %s with inputs to begin with", fields[0], fields[1])
		}
	}
	for _, what := range []string{"raw frames", "names", "ClientHello", "HTTP rules", "signatures of AWS", "start-up of PostgreSQL", "policy files"} {
		if !strings.Contains(all.String(), what) {
			t.Errorf("nothing is fuzzed that reads %s", what)
		}
	}
}

func seeded(t *testing.T, dir, target string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	begins := regexp.MustCompile(`(?m)^func ` + target + `\(f \*testing\.F\) \{$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := begins.FindIndex(text)
		if at == nil {
			continue
		}
		body, _, _ := strings.Cut(string(text[at[1]:]), "\n}\n")
		return strings.Contains(body, "f.Add(") || strings.Contains(body, "seeds(f)")
	}
	return false
}

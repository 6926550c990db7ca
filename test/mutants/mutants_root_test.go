//go:build root

package mutants

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each mutant builds, and each is killed.
func TestMutantsAreKilled(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			file := filepath.Join(root, m.file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), m.old); n != 1 {
				t.Fatalf("the place in %s stands there %d times, want once", m.file, n)
			}
			dir := t.TempDir()
			patched := filepath.Join(dir, filepath.Base(m.file))
			if err := os.WriteFile(patched, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: patched}})
			if err != nil {
				t.Fatal(err)
			}
			list := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(list, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := run(root, "build", "-overlay", list, m.tests); err != nil {
				t.Fatalf("the mutant does not build: %v\n%s", err, out)
			}
			// What a property test remembers of a failure is the mutant's, not the tree's.
			defer forget(t, root)
			out, err := run(root, "test", "-count=1", "-timeout=5m", "-overlay", list, m.tests)
			if err == nil || !strings.Contains(out, "--- FAIL") {
				t.Errorf("the mutant lives: no test of %s failed (%v)\n%s", m.tests, err, out)
			}
		})
	}
}

func run(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func forget(t *testing.T, root string) {
	for _, depth := range []string{"*", "*/*", "*/*/*"} {
		found, err := filepath.Glob(filepath.Join(root, "internal", depth, "testdata", "rapid"))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range found {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
			_ = os.Remove(filepath.Dir(dir)) // stays when there is other data
		}
	}
}

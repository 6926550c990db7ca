//go:build root && slow

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	suite "github.com/cofferdam/cofferdam/internal/attack"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// weaken builds the programs with their fault, beside the others as they are.
func weaken(t *testing.T, w weakening) string {
	t.Helper()
	root := testenv.Root(t)
	dir := t.TempDir()
	list, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "bin")
	texts, replace := map[string]string{}, map[string]string{}
	var programs []string
	for _, p := range w.places() {
		file := filepath.Join(root, p.file)
		if _, ok := texts[file]; !ok {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file], replace[file] = string(text), filepath.Join(dir, fmt.Sprintf("patched%d.go", len(texts)))
		}
		if n := strings.Count(texts[file], p.old); n != 1 {
			t.Fatalf("the place in %s stands there %d times, want once", p.file, n)
		}
		texts[file] = strings.Replace(texts[file], p.old, p.new, 1)
		if !slices.Contains(programs, p.program) {
			programs = append(programs, p.program)
		}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	written := map[string][]byte{list: overlay}
	for file, text := range texts {
		written[replace[file]] = []byte(text)
	}
	for name, data := range written {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", "-rs", testenv.Bin(t), bin).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v\n%s", err, out)
	}
	// Users without rights run some of the programs.
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range programs {
		if err := os.Remove(filepath.Join(bin, program)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "build", "-overlay", list, "-o", filepath.Join(bin, program), "./cmd/"+program)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("the weakened program does not build: %v\n%s", err, out)
		}
	}
	return bin
}

// fallen fails the test unless the check fell.
func fallen(t *testing.T, rep suite.Report, code int, id string) {
	t.Helper()
	for _, c := range rep.Checks {
		if c.ID != id {
			continue
		}
		if c.Outcome != suite.Fell || code == 0 || rep.OK {
			t.Errorf("the check stands, and it ends with %d: %+v", code, c)
		}
		t.Logf("%s: %s", c.ID, c.Happened)
		return
	}
	t.Errorf("there is no check %s in %+v", id, rep)
}

// Each defence that is taken away makes its check fall: the suite can fail.
func TestAttackSeesWeakenings(t *testing.T) {
	for _, w := range weakenings() {
		t.Run(w.name, func(t *testing.T) {
			bin := weaken(t, w)
			e := testenv.Start(t, testenv.Config{Flags: []string{"--bin", bin}})
			rep, code := assault(t, e, "--only", w.only, "--bin", bin, "--within", "10m")
			fallen(t, rep, code, w.falls)
		})
	}
}

// What the operator opens on the machine is open: the canaries can be reached, and
// say so.
func TestAttackSeesWhatTheOperatorOpened(t *testing.T) {
	port := testenv.FreePort(t)
	address := hostAddress(t)
	e := testenv.Start(t, testenv.Config{OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: '%s', ports: [%d]}\n", address, port)})
	rep, code := assault(t, e, "--only", "host.addresses", "--canary-port", fmt.Sprint(port))
	fallen(t, rep, code, "host.addresses-named")
}

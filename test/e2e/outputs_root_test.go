//go:build root

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// What a task leaves is fetched by the command line; a task that is removed
// leaves no byte, and its receipt verifies.
func TestOutputsAndRemoval(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	dir := small(t)
	agent := `echo 42 > answer.txt; mkdir -p out/deep; echo unmistakable-bytes > out/deep/x.txt; ln -s /etc/passwd out/link
printf odd > "$(printf 'out/\377')"; cat .git/config`
	verify := `printf '<testsuite><testcase name="t"/></testsuite>' > report.xml`
	out, err := e.CLI("run", "--repo", dir, "--verify", verify, "--report", "report.xml", "--files", "out/**", "--json", "--", "sh", "-c", agent)
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	list, err := e.Client.Tasks(context.Background(), 1, "")
	if err != nil || len(list.Tasks) != 1 {
		t.Fatalf("tasks: %v, %v", list, err)
	}
	tk := list.Tasks[0]
	must(t, e, tk, api.Succeeded, "")
	if text := string(output(t, e, tk.ID, "report")); !strings.Contains(text, `"tests":1`) {
		t.Errorf("report %s", text)
	}
	if text := string(output(t, e, tk.ID, "file/out/deep/x.txt")); text != "unmistakable-bytes\n" {
		t.Errorf("a kept file is %q", text)
	}
	if text := string(output(t, e, tk.ID, "file/out/_")); text != "odd" {
		t.Errorf("a file whose name is no UTF-8 is %q", text)
	}
	if table, err := e.CLI("task", "outputs", tk.ID); err != nil || strings.Contains(table, "file/out/link") || !strings.Contains(table, `\xff`) {
		t.Errorf("outputs: %v\n%s", err, table)
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	if text, err := e.CLI("output", "get", tk.ID, "bundle", "-o", bundle); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	git(t, dir, "fetch", "-q", bundle, "cofferdam/"+tk.ID)
	if got := git(t, dir, "log", "-1", "--format=%an %P", "FETCH_HEAD"); got != "Cofferdam agent "+tk.Commit {
		t.Errorf("the bundle's commit is %q", got)
	}

	if text, err := e.CLI("task", "rm", tk.ID); err != nil || !strings.Contains(text, "stays: its receipt") {
		t.Fatalf("rm: %v\n%s", err, text)
	}
	if _, err := e.CLI("task", "show", tk.ID); testenv.ExitCode(err) != 2 {
		t.Errorf("a removed task is shown: %v", err)
	}
	receipt := filepath.Join(t.TempDir(), "receipt.json")
	text, err := e.CLI("task", "receipt", tk.ID)
	if err != nil {
		t.Fatalf("receipt: %v\n%s", err, text)
	}
	if err := os.WriteFile(receipt, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := e.CLI("audit", "key")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := e.CLI("audit", "verify", "--key", strings.TrimSpace(key), receipt); err != nil {
		t.Errorf("verify: %v\n%s", err, text)
	}
	// Blobs that were pinned by a repeated step go with a later pass.
	testenv.Until(t, 3*time.Minute, "the bytes of the removed task are gone", func() bool {
		found, _ := exec.Command("grep", "-rl", "unmistakable-bytes", filepath.Join(e.Data, "cofferdamd", "blobs"), filepath.Join(e.Data, "cofferdamd", "logs")).Output()
		return len(found) == 0
	})
}

// A patch of more than fifty megabytes, of text and of bytes, is verified, is got
// whole and applies.
func TestLargePatch(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	dir := small(t)
	got := run(t, e, api.TaskRequest{
		Repo:   bundle(t, e, dir),
		Agent:  sh(`set -e; head -c 24000000 /dev/urandom | od -An -v -tx1 | tr -d ' ' > big.txt; head -c 4000000 /dev/urandom > big.bin; sha256sum big.txt big.bin > sums; echo 42 > answer.txt`),
		Verify: "./check.sh && sha256sum -c sums",
	})
	must(t, e, got, api.Succeeded, "")
	patch := output(t, e, got.ID, "patch")
	if len(patch) < 50_000_000 {
		t.Errorf("the patch has %d bytes", len(patch))
	}
	file := filepath.Join(t.TempDir(), "patch")
	if err := os.WriteFile(file, patch, 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "apply", "--whitespace=nowarn", file)
	sums := exec.Command("sha256sum", "-c", "sums")
	sums.Dir = dir
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
}

//go:build root && slow

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// A repository of 200,000 files goes through every stage.
func TestManyFiles(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(in, "blob\nmark :1\ndata 2\nx\n\ncommit refs/heads/main\ncommitter T <t@t.invalid> 1 +0000\ndata 3\none\n")
	for i := range 200_000 {
		fmt.Fprintf(in, "M 100644 :1 d%d/f%d\n", i/1000, i)
	}
	fmt.Fprintln(in)
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	out, err := e.CLI("run", "--repo", dir, "--verify", `test "$(git ls-files | wc -l)" = 200001 && grep y d0/f0`, "--json", "--", "sh", "-c", "echo y > d0/f0; echo new > new; git add new")
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	list, err := e.Client.Tasks(context.Background(), 1, "")
	if err != nil || len(list.Tasks) != 1 {
		t.Fatalf("tasks: %v, %v", list, err)
	}
	must(t, e, list.Tasks[0], api.Succeeded, "")
	if patch := string(output(t, e, list.Tasks[0].ID, "patch")); strings.Count(patch, "diff --git") != 2 {
		t.Errorf("the patch has %d files", strings.Count(patch, "diff --git"))
	}
}

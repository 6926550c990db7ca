//go:build root

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// planted is an agent's work of several kinds that bite.
const planted = `set -e
mkdir -p .github/workflows .husky && echo 'on: push' > .github/workflows/x.yml && echo id > .husky/pre-commit
echo 'all: ; id' > Makefile; printf '{"scripts":{"postinstall":"id"}}\n' > package.json; echo 'obey me' > AGENTS.md
ln -s ../../etc/passwd up; ln -s . 'dir'; printf 'if admin:\342\200\256 # \342\201\246\n' > t.py; printf 'p\320\260y = 1\n' > p.py
printf 'token: ghp_q7Xk2LmP9vRt4WzB8nYc''3HdJ6FsG1aTeUoVi # gitleaks:allow\n' > k.txt; printf '\000\001' > b.bin
printf x > "$(printf 'n\033[2J')"; echo '#!/bin/sh' > run.sh && chmod +x run.sh`

// What bites in a patch is told by the API, on the terminal and in the receipt,
// without the secret; what the policy refuses ends the task and keeps the patch.
func TestOutputsThatBite(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	source := bundle(t, e, small(t))
	got := run(t, e, api.TaskRequest{Repo: source, Agent: sh(planted), Policy: "version: 1\noutput: {flags: {build: allow}}\n"})
	must(t, e, got, api.Succeeded, "")
	patch := patchOf(t, got)
	var ids []string
	for _, f := range patch.Findings {
		ids = append(ids, f.ID+" "+f.Path)
	}
	want := []string{
		"secret.github-pat k.txt", "link.outside up", "git.hook .husky/pre-commit", "workflow.github .github/workflows/x.yml", "agent.codex AGENTS.md", "text.homoglyph p.py", "text.bidi t.py",
		"build.make Makefile", "build.npm package.json", `name.control "n\033[2J"`, "binary.content b.bin", "mode.executable run.sh",
	}
	if !slices.Equal(ids, want) || patch.Verdict != "approve" {
		t.Errorf("%s\ngot  %q\nwant %q", patch.Verdict, ids, want)
	}
	shown := string(stdout(t, e, "task", "show", got.ID))
	for _, want := range []string{"FOUND", "workflow.github", ".github/workflows/x.yml", "approve", `"n\033[2J"`} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	if strings.ContainsAny(shown, "\x1b\u202e") {
		t.Errorf("what is shown is not escaped: %q", shown)
	}

	receipt := stdout(t, e, "task", "receipt", got.ID)
	everything := shown + string(receipt) + string(stdout(t, e, "task", "show", "--json", got.ID)) + string(stdout(t, e, "audit", "export"))
	if strings.Contains(everything, "q7Xk2LmP9") {
		t.Error("the secret is told")
	}
	var body struct {
		Body struct {
			Outputs []struct {
				Name, Verdict string
				Findings      []api.Finding
			}
		}
		Records []struct {
			Kind  string
			Facts json.RawMessage
		}
	}
	if err := json.Unmarshal(receipt, &body); err != nil {
		t.Fatal(err)
	}
	kept := slices.ContainsFunc(body.Body.Outputs, func(o struct {
		Name, Verdict string
		Findings      []api.Finding
	}) bool {
		return o.Name == "patch" && o.Verdict == "approve" && len(o.Findings) == len(want)
	})
	recorded := slices.ContainsFunc(body.Records, func(r struct {
		Kind  string
		Facts json.RawMessage
	}) bool {
		return r.Kind == "patch.flagged" && strings.Contains(string(r.Facts), patch.Digest) && strings.Contains(string(r.Facts), `{"flag":"build","verdict":"allow"}`)
	})
	if !kept || !recorded {
		t.Errorf("in the receipt: findings %t, record %t", kept, recorded)
	}
	verifies(t, e, receipt)

	refused := run(t, e, api.TaskRequest{Repo: source, Agent: sh(planted), Verify: "true", Policy: "version: 1\noutput: {flags: {workflow: refuse}}\n"})
	must(t, e, refused, api.Failed, "policy.output")
	if patch := patchOf(t, refused); patch.Verdict != "refuse" || len(output(t, e, refused.ID, "patch")) == 0 {
		t.Errorf("%+v", patch)
	}
	if testenv.Stage(refused, "verify").State != "skipped" || slices.ContainsFunc(refused.Outputs, func(o api.Output) bool { return o.Kind == "bundle" }) {
		t.Errorf("it went on: %+v", refused.Stages)
	}
	verifies(t, e, stdout(t, e, "task", "receipt", refused.ID))
}

func patchOf(t *testing.T, got api.Task) api.Output {
	t.Helper()
	for _, o := range got.Outputs {
		if o.Name == "patch" {
			return o
		}
	}
	t.Fatalf("no patch in %+v", got.Outputs)
	return api.Output{}
}

// verifies judges a receipt by the command line.
func verifies(t *testing.T, e *testenv.Env, receipt []byte) {
	t.Helper()
	dir := t.TempDir()
	for name, b := range map[string][]byte{"receipt": receipt, "key": stdout(t, e, "audit", "key")} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := e.Command("audit", "verify", "--key", filepath.Join(dir, "key"), filepath.Join(dir, "receipt")).CombinedOutput(); err != nil {
		t.Errorf("the receipt doesn't verify: %v\n%s", err, out)
	}
}

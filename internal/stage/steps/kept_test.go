package steps

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage/steps/verified"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (h *house) outputOf(name string) task.Output {
	h.t.Helper()
	for _, o := range h.task.Outputs {
		if o.Name == name {
			return o
		}
	}
	h.t.Fatalf("no output %q in %+v", name, h.task.Outputs)
	return task.Output{}
}

func (h *house) has(name string) bool {
	return slices.ContainsFunc(h.task.Outputs, func(o task.Output) bool { return o.Name == name })
}

func (h *house) textOf(name task.StageName) string {
	h.t.Helper()
	for _, st := range h.task.Stages {
		if st.Name == name {
			return st.Text
		}
	}
	h.t.Fatalf("no stage %q", name)
	return ""
}

// The bundle is one commit on the task's branch upon the base, and plain git
// fetches it.
func TestBundleIsFetched(t *testing.T) {
	h := start(t, task.Spec{Agent: shell("echo fixed > answer; git commit -qam 'the agent commits, too'; echo more > other")})
	succeeds(t, h.through(task.Export, 1))
	dir := t.TempDir()
	source, made := filepath.Join(dir, "source"), filepath.Join(dir, "made")
	for path, text := range map[string]string{source: string(h.blobs[h.task.Spec.Repo.Bundle]), made: h.bytes("bundle")} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	branch := "cofferdam/" + taskID
	script := `git clone -q "$1" "$2/repo" && cd "$2/repo" && git fetch -q "$3" "$4:$4" && git log --format='%an %ae %P' "$4" -1 && git rev-parse HEAD && git rev-list --count HEAD.."$4" && git diff --name-only HEAD "$4"`
	c := exec.Command("sh", "-euc", script, "sh", source, dir, made, branch)
	c.Env = append(os.Environ(), gitEnv()...)
	out, err := c.CombinedOutput()
	want := "Cofferdam agent agent@cofferdam.invalid " + h.task.Commit + "\n" + h.task.Commit + "\n1\nanswer\nother\n"
	if err != nil || string(out) != want {
		t.Fatalf("%v\n%s\nwant\n%s", err, out, want)
	}
	first := h.outputOf("bundle").Digest
	h.task.Stages = slices.DeleteFunc(h.task.Stages, func(s task.Stage) bool { return s.Name == task.Export })
	succeeds(t, h.do(task.Export, 1))
	if got := h.outputOf("bundle"); got.Digest != first || got.Kind != "bundle" {
		t.Errorf("made again it is %+v, not %s", got, first)
	}
}

func TestEmptyPatchHasNoBundle(t *testing.T) {
	h := start(t, task.Spec{Agent: shell("true")})
	succeeds(t, h.through(task.Export, 1))
	if h.has("bundle") {
		t.Error("a bundle without a commit")
	}
}

func TestFilesAreKeptByGlobs(t *testing.T) {
	h := start(t, task.Spec{
		Files: []string{"dist/**", "*.log", "**/cover.out"},
		Agent: shell(`mkdir -p dist/deep a/b; echo one > dist/one; echo two > dist/deep/two; ln dist/one dist/hard
ln -s /etc/passwd dist/passwd; ln -s /etc dist/etc; ln -s deep dist/inner; mkfifo dist/fifo; mkdir dist/.git; echo x > dist/.git/config
echo l > x.log; echo l > a/x.log; echo c > a/b/cover.out; echo dist > .gitignore
printf bytes > "$(printf 'dist/\377\033[2J')"; printf b2 > 'dist/a b'; printf b3 > 'dist/a_b'`),
	})
	succeeds(t, h.through(task.Export, 1))
	var got []string
	for _, o := range h.task.Outputs {
		if o.Kind == "file" {
			got = append(got, o.Name+"="+strings.TrimSpace(string(h.blobs[o.Digest])))
		}
	}
	slices.Sort(got)
	want := []string{
		"file/a/b/cover.out=c", "file/dist/_", "file/dist/a_b=b", "file/dist/a_b~2=b",
		"file/dist/deep/two=two", "file/dist/hard=one", "file/dist/one=one", "file/x.log=l",
	}
	if len(got) != len(want) {
		t.Fatalf("kept %q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("kept %q, want %q", got[i], want[i])
		}
	}
	odd := h.outputOf("file/dist/___2J")
	if string(odd.Path) != "dist/\xff\x1b[2J" || !slices.Contains(odd.Flags, flagRenamed) || string(h.blobs[odd.Digest]) != "bytes" {
		t.Errorf("a name of any bytes is kept as %+v", odd)
	}
	if text := h.textOf(task.Export); !strings.Contains(text, "3 links that match files were left out") {
		t.Errorf("the stage says %q", text)
	}
}

func TestKeptFilesAreLimited(t *testing.T) {
	h := start(t, task.Spec{Files: []string{"out/**"}, Agent: shell("mkdir out; echo 123456789 > out/a; echo 1 > out/b; echo 2 > out/c; echo 3 > out/d; head -c 300 /dev/zero > out/big")})
	h.plan.plan.Limits = task.Limits{Kept: 100, KeptFiles: 3}
	succeeds(t, h.through(task.Export, 1))
	kept := 0
	for _, o := range h.task.Outputs {
		if o.Kind == "file" {
			kept++
			if o.Name == "file/out/big" {
				t.Error("a file that is larger than all may be together was kept")
			}
		}
	}
	text := h.textOf(task.Export)
	if kept != 3 || !strings.Contains(text, "limits.keptFiles") || !strings.Contains(text, string(task.LimitSize)) {
		t.Errorf("%d kept; the stage says %q", kept, text)
	}
	h = start(t, task.Spec{Files: []string{"nothing/**"}, Agent: shell("true")})
	succeeds(t, h.through(task.Export, 1))
	if text := h.textOf(task.Export); !strings.Contains(text, "no file of the workspace matches") {
		t.Errorf("the stage says %q", text)
	}
}

func TestLargePatchNamesItsLimit(t *testing.T) {
	h := start(t, task.Spec{Agent: shell("head -c 100000 /dev/urandom > big")})
	h.plan.plan.Limits = task.Limits{Patch: 50000}
	fails(t, h.through(task.Export, 1), task.LimitSize, "limits.patch")
}

func TestJUnitReport(t *testing.T) {
	write := func(text string) string { return "printf '%s' '" + text + "' > out.xml" }
	for name, c := range map[string]struct {
		verify, report, note string
		flags                []string
		kept                 bool
	}{
		"good":      {write(`<testsuite><testcase name="a"/></testsuite>`), `"tests":{"path":"out.xml","form":"junit","tests":1,"failures":0,"errors":0,"skipped":0}`, "", []string{}, true},
		"disagrees": {write(`<testsuite><testcase name="a"><failure/></testcase></testsuite>`), `"failed":["a"]`, "its report has failures", []string{verified.FlagFailing, verified.FlagDisagrees}, true},
		"hostile":   {write(`<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuite/>`), `document type`, "the exit code stands for it", []string{verified.FlagUnread}, true},
		"missing":   {"true", "left no file", "left no file", nil, false},
		"link":      {"ln -s /etc/passwd out.xml", "left no file", "left no file", nil, false},
		"folder":    {"mkdir out.xml", "left no file", "left no file", nil, false},
		"large":     {"head -c 17000000 /dev/zero > out.xml", "limit.size", "limit.size", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, task.Spec{Agent: shell("true"), Verify: c.verify, Report: "out.xml"})
			succeeds(t, h.through(task.Verify, 1))
			if got := h.bytes("report"); !strings.Contains(got, c.report) || !strings.Contains(got, `"exitCode":0`) {
				t.Errorf("report %s", got)
			}
			if text := h.textOf(task.Verify); c.note == "" && text != "" || !strings.Contains(text, c.note) {
				t.Errorf("the stage says %q", text)
			}
			if h.has("report.junit") != c.kept || c.kept && !slices.Equal(h.outputOf("report.junit").Flags, c.flags) {
				t.Errorf("outputs %+v", h.task.Outputs)
			}
		})
	}
	h := start(t, task.Spec{Agent: shell("true"), Verify: write(`<testsuite><testcase name="bad"><error/></testcase></testsuite>`) + "; exit 3", Report: "out.xml"})
	fails(t, h.through(task.Verify, 1), task.VerifyFailed, "exited with 3")
	if got := h.bytes("report"); !strings.Contains(got, `"errors":1`) || !strings.Contains(got, `"exitCode":3`) {
		t.Errorf("report %s", got)
	}
}

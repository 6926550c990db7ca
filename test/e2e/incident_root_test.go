//go:build root

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// procedure is the commands of docs/incident.md, in order: the lines of its fenced
// blocks.
func procedure(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "incident.md"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	in := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "```sh":
			in = true
		case line == "```":
			in = false
		case in && line != "":
			lines = append(lines, line)
		}
	}
	return lines
}

// incident is a platform with a task that streams under a lent key.
type incident struct {
	*testing.T
	e      *testenv.Env
	k      *keyed
	dir    string // where the procedure is followed
	task   api.Task
	box    string
	worker string
	before []string // the machine without the task
	token  string   // before the rotation
}

// shell runs one line of the page as who follows it would.
func (i *incident) shell(line string) (string, error) {
	cmd := exec.Command("sh", "-euc", line)
	cmd.Dir = i.dir
	cmd.Env = append(os.Environ(), "PATH="+testenv.Bin(i)+":"+os.Getenv("PATH"), "HOME="+i.e.Data, "XDG_CONFIG_HOME="+i.e.Data+"/config",
		"SANDBOX="+i.box, "TASK="+i.task.ID, "WORKER="+i.worker, "DATA="+i.e.Data)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// client is one with the token that the command line has now.
func (i *incident) client() *client.Client {
	i.Helper()
	var conf struct{ URL, Token string }
	text, err := os.ReadFile(filepath.Join(i.e.Data, "config", "cofferdam", "client.json"))
	if err == nil {
		err = json.Unmarshal(text, &conf)
	}
	if err != nil {
		i.Fatal(err)
	}
	c, err := client.New(conf.URL, conf.Token)
	if err != nil {
		i.Fatal(err)
	}
	return c
}

func (i *incident) read(name string) string {
	i.Helper()
	text, err := os.ReadFile(filepath.Join(i.dir, name))
	if err != nil {
		i.Fatal(err)
	}
	return string(text)
}

// found gives the entries of an archive of evidence.
func (i *incident) found(name string) map[string][]byte {
	i.Helper()
	return entries(i.T, strings.NewReader(i.read(name)))
}

func entries(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for in := tar.NewReader(from); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = text
	}
}

// TestIncidentProcedure follows docs/incident.md line by line. What each line must
// have done is looked at; a line without a look, or a look without a line, fails.
func TestIncidentProcedure(t *testing.T) {
	k, e := serveKeyed(t, "--issuer", "https://issuer.test")
	i := &incident{T: t, e: e, k: k, dir: t.TempDir(), before: e.Census(), token: e.Token}
	k.addKey(t, e)
	i.task = submit(t, e, k.task(bundle(t, e, small(t)), "", `echo marked > found.txt
ln -s /etc/passwd link
(while :; do date +%N >> /tmp/ticks; sleep 0.05; done) &
curl -sN -m 600 -H "X-Api-Key: $API_KEY" https://api.test:PORT/ok/stream
sleep 1000`))
	<-k.held
	list, err := e.Client.Sandboxes(context.Background())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	i.box, i.worker = list[0].ID, list[0].Worker

	t.Cleanup(func() { // before the platform ends: what is kept would stay
		if t.Failed() {
			_, _ = i.shell("cofferdam sandbox rm --evidence $SANDBOX")
		}
	})
	looks := i.looks()
	for _, line := range procedure(t) {
		what := slices.IndexFunc(looks, func(l look) bool { return strings.HasPrefix(line, l.line) })
		if what < 0 {
			t.Fatalf("nothing looks at what %q did", line)
		}
		var out string
		if looks[what].instead != nil {
			looks[what].instead()
		} else if out, err = i.shell(line); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		t.Logf("%s\n%s", line, out)
		looks[what].at(out)
		looks = slices.Delete(looks, what, what+1)
		if t.Failed() {
			t.FailNow()
		}
	}
	for _, l := range looks {
		t.Errorf("the page has no line %q", l.line)
	}
	e.Unchanged(i.before)
}

// look is what a line of the page must have done.
type look struct {
	line    string // how it begins
	instead func() // run in its place
	at      func(out string)
}

func (i *incident) looks() []look {
	return slices.Concat(i.atOnce(), i.keys(), i.account(), i.after())
}

func (i *incident) has(out string, words ...string) {
	i.Helper()
	for _, w := range words {
		if !strings.Contains(out, w) {
			i.Errorf("no %q in %q", w, out)
		}
	}
}

// atOnce are the steps up to the machine's.
func (i *incident) atOnce() []look {
	return []look{
		{line: "cofferdam audit key --all >", at: func(string) { i.has(i.read("kept.pub"), "cofferdam-") }},
		{line: "cofferdam credential revoke --all --keys", at: func(out string) {
			<-i.k.cut // the stream that was open
			list, err := i.client().Credentials(context.Background())
			if err != nil || len(list) != 1 || list[0].Revoked == nil {
				i.Errorf("credentials %+v, %v", list, err)
			}
			identity, err := i.client().RunIdentity(context.Background())
			if err != nil || len(identity.Keys) != 1 {
				i.Errorf("identity %+v, %v", identity, err)
			}
		}},
		{line: "cofferdam sandbox freeze", at: func(out string) {
			i.has(out, i.box, "frozen", "ends as cancelled")
			if got := i.e.WaitTask(i.task.ID, patience); got.State != api.Cancelled {
				i.Errorf("the task is %s: %s", got.State, got.Reason)
			}
			i.frozen()
		}},
		{line: "cofferdam sandbox frozen", at: func(out string) { i.has(out, i.box, i.task.ID, "what we saw") }},
		{line: "cofferdam sandbox evidence $SANDBOX", at: func(string) { i.archive() }},
		{line: "cofferdam sandbox evidence --check", at: func(out string) {
			i.has(out, "verified", i.box, "files/workspace.tar", "left out: memory")
			if err := os.WriteFile(filepath.Join(i.dir, "bad.tar"), bytes.Replace([]byte(i.read("found.tar")), []byte("marked"), []byte("mocked"), 1), 0o600); err != nil {
				i.Fatal(err)
			}
			if out, err := i.shell("cofferdam sandbox evidence --check bad.tar --key kept.pub"); testenv.ExitCode(err) != 1 || !strings.Contains(out, "was altered") {
				i.Errorf("an altered archive: %v\n%s", err, out)
			}
		}},
		{line: "cofferdam worker quarantine", at: func(string) {
			workers, err := i.client().Workers(context.Background())
			if err != nil || len(workers) != 1 || workers[0].Mark == nil || workers[0].Mark.State != "quarantined" {
				i.Errorf("%+v, %v", workers, err)
			}
		}},
	}
}

// frozen looks at a sandbox that is kept: it is there after its task, and nobody
// gets at it, as a restarted worker and control plane know too.
func (i *incident) frozen() {
	i.Helper()
	i.e.Reborn("worker", i.e.Kill("worker"))
	i.e.Reborn("cofferdamd", i.e.Kill("cofferdamd"))
	testenv.Until(i.T, patience, "the frozen sandbox over a restart", func() bool {
		box, err := i.client().Sandbox(context.Background(), i.box)
		return err == nil && box.State == "frozen"
	})
	for _, line := range []string{"cofferdam sandbox rm $SANDBOX", "cofferdam sandbox exec $SANDBOX -- true"} {
		if out, err := i.shell(line); err == nil {
			i.Errorf("%s was let through: %s", line, out)
		}
	}
}

// archive looks at what was taken, twice: nothing ran between the two.
func (i *incident) archive() {
	i.Helper()
	have := i.found("found.tar")
	for _, name := range []string{"frozen.json", "task.json", "spec.json", "policy/task.yaml", "audit.jsonl", "receipt.json", "sandbox.json", "processes.json", "egress.jsonl", "manifest.json", "manifest.note"} {
		if len(have[name]) == 0 {
			i.Errorf("no %s", name)
		}
	}
	i.has(string(have["egress.jsonl"]), "api.test")
	i.has(string(have["audit.jsonl"]), "sandbox.frozen", "sandbox.kept")
	i.has(string(have["processes.json"]), `"state": "T"`)
	if strings.Contains(string(have["processes.json"]), `"state": "R"`) {
		i.Errorf("something runs: %s", have["processes.json"])
	}
	workspace := entries(i.T, bytes.NewReader(have["files/workspace.tar"]))
	if string(workspace["workspace/found.txt"]) != "marked\n" {
		i.Errorf("the workspace has %v", slices.Sorted(mapKeys(workspace)))
	}
	for name, text := range have {
		if bytes.Contains(text, []byte(keyValue)) || bytes.Contains(text, []byte("root:x:0:0")) && name == "files/workspace.tar" {
			i.Errorf("%s has the key, or followed a link", name)
		}
	}
	if out, err := i.shell("cofferdam sandbox evidence $SANDBOX -o again.tar"); err != nil {
		i.Fatalf("%v\n%s", err, out)
	}
	ticks := entries(i.T, bytes.NewReader(have["files/tmp.tar"]))["tmp/ticks"]
	if again := entries(i.T, bytes.NewReader(i.found("again.tar")["files/tmp.tar"]))["tmp/ticks"]; len(ticks) == 0 || !bytes.Equal(ticks, again) {
		i.Errorf("%d bytes became %d: something runs", len(ticks), len(again))
	}
	if out, err := i.shell("cofferdam sandbox evidence $SANDBOX -o found.tar"); err == nil {
		i.Errorf("an archive was written over another: %s", out)
	}
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// keys are the steps about them.
func (i *incident) keys() []look {
	files := func() map[string]string {
		out := map[string]string{}
		for _, name := range []string{"cofferdamd/keys/vault.key", "cofferdamd/keys/audit.key", "cofferdamd/keys/engine.key", "cofferdamd/keys/identity.json", "cofferdamd/keys/admin.token", "cofferdamd/keys/worker.token", "worker/token"} {
			text, err := os.ReadFile(filepath.Join(i.e.Data, name))
			if err != nil {
				i.Fatal(err)
			}
			out[name] = string(text)
		}
		return out
	}
	var before map[string]string
	return []look{
		{line: "cofferdam key ls", at: func(out string) {
			i.has(out, "vault", "audit", "engine", "identity", "tokens", "engine-token", "gateway-seal", "stopped")
			before = files()
			for name, text := range before {
				if strings.Contains(out, strings.TrimSpace(text)) {
					i.Errorf("%s is printed", name)
				}
			}
		}},
		{line: "cofferdam key rotate --all --now", at: func(out string) {
			i.has(out, "key vault: made anew", "key audit: made anew", "key engine: made anew", "key identity: made anew", "key tokens: made anew", "key gateway-seal: left as it is")
			testenv.Until(i.T, patience, "new keys in every file", func() bool {
				for name, text := range files() {
					if text == before[name] {
						return false
					}
				}
				return true
			})
			old, err := client.New(i.e.URL, i.token)
			if err != nil {
				i.Fatal(err)
			}
			var p *api.Problem
			if _, err := old.Workers(context.Background()); !errors.As(err, &p) || p.Code != "input.unauthorized" {
				i.Errorf("the old token: %v", err)
			}
			testenv.Until(i.T, patience, "the worker with its new token", func() bool {
				workers, err := i.client().Workers(context.Background())
				return err == nil && len(workers) == 1 && workers[0].State == "connected"
			})
			for name, text := range before {
				if name != "cofferdamd/keys/identity.json" && strings.Contains(i.e.Logs(), strings.TrimSpace(text)) {
					i.Errorf("%s is in a log", name)
				}
			}
		}},
		{line: "cofferdam audit key >>", at: func(string) {
			if n := strings.Count(i.read("kept.pub"), "\n"); n != 2 {
				i.Errorf("%d keys are kept", n)
			}
		}},
	}
}

// account are the steps that verify.
func (i *incident) account() []look {
	return []look{
		{line: "cofferdam task receipt", at: func(string) { i.has(i.read("receipt.json"), i.task.ID, "sandbox.frozen") }},
		{line: "cofferdam audit export", at: func(string) {
			i.has(i.read("account.jsonl"), "audit.key_rotated", "key.rotated", "token.renew", "sandbox.exported")
		}},
		{line: "cofferdam audit verify", at: func(out string) {
			i.has(out, "verified")
			if out, err := i.shell("tail -1 kept.pub > new.pub; cofferdam audit verify --key new.pub receipt.json"); testenv.ExitCode(err) != 1 || !strings.Contains(out, "wrong-key") {
				i.Errorf("the receipt of before under the new key: %v\n%s", err, out)
			}
		}},
	}
}

// after are the last steps.
func (i *incident) after() []look {
	running := func(string) {}
	return []look{
		{line: "cofferdam sandbox rm --evidence", at: func(string) {
			list, err := i.client().Sandboxes(context.Background())
			if err != nil || len(list) != 0 {
				i.Errorf("%+v, %v", list, err)
			}
			if left, _ := filepath.Glob(filepath.Join(i.e.Data, "worker", "frozen", "*")); len(left) > 0 {
				i.Errorf("left: %q", left)
			}
		}},
		{line: "cofferdam worker release", at: func(string) {
			// The platform works as before, with every key new.
			i.e.Client = i.client()
			got := run(i.T, i.e, api.TaskRequest{Repo: bundle(i.T, i.e, small(i.T)), Agent: sh("echo 42 > answer.txt"), Verify: "sh check.sh"})
			must(i.T, i.e, got, api.Succeeded, "")
			receipt, err := i.shell("cofferdam task receipt " + got.ID + " > after.json; cofferdam audit verify --key new.pub after.json")
			if err != nil {
				i.Errorf("a receipt under the new key: %v\n%s", err, receipt)
			}
		}},
		{line: "cofferdam down", at: running},
		{line: "cofferdam key rotate engine-token", at: func(string) {
			if _, err := os.Lstat(filepath.Join(i.e.Data, "engine", "token")); err == nil {
				i.Error("the engine's token is still there")
			}
		}},
		{line: "cofferdam key rotate gateway-seal", at: func(string) {
			if _, err := os.Lstat(filepath.Join(i.e.Data, "gateway", "seal.key")); err == nil {
				i.Error("the gateway's key is still there")
			}
		}},
		{line: "cofferdam up", instead: i.e.Up, at: func(string) {
			got := run(i.T, i.e, api.TaskRequest{Repo: bundle(i.T, i.e, small(i.T)), Agent: sh("echo 42 > answer.txt"), Verify: "sh check.sh"})
			must(i.T, i.e, got, api.Succeeded, "")
			if out, err := i.shell("cofferdam key rotate engine-token --data $DATA"); err == nil || !strings.Contains(out, "cofferdam down") {
				i.Errorf("while it runs: %v\n%s", err, out)
			}
		}},
	}
}

// TestForgottenWorker: a machine that never returns is given up; what it had is lost
// at once, and it is refused until it is released.
func TestForgottenWorker(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	w := newSecond(t, e)
	w.start()
	testenv.Until(t, patience, "the second worker's name", func() bool { return w.name() != "" })
	connected(t, e, w.name())
	var box api.Sandbox
	for box.Worker != w.name() {
		if box = sandboxOf(t, e, api.SandboxRequest{}); box.ID == "" {
			t.Fatal("no sandbox")
		}
	}
	if out, err := e.CLI("worker", "forget", w.name()); err == nil || !strings.Contains(out, "is connected") {
		t.Errorf("one that is connected: %v\n%s", err, out)
	}
	w.kill()
	testenv.Until(t, patience, "the worker to be away", func() bool {
		list, err := e.Client.Workers(context.Background())
		return err == nil && slices.ContainsFunc(list, func(x api.Worker) bool { return x.Name == w.name() && x.State == "lost" })
	})
	out, err := e.CLI("worker", "forget", w.name(), "--reason", "it burned")
	if err != nil || !strings.Contains(out, "forgotten; sandboxes lost with it: 1") {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := e.CLI("sandbox", "exec", box.ID, "--", "true"); err == nil || !strings.Contains(out, "forgotten") {
		t.Errorf("a command in what is lost: %v\n%s", err, out)
	}
	// Over a restart of the control plane too.
	e.Reborn("cofferdamd", e.Kill("cofferdamd"))
	w.start()
	testenv.Until(t, patience, "the worker to be refused", func() bool {
		return strings.Contains(e.Logs(), "it was forgotten")
	})
	if out, err := e.CLI("worker", "ls"); err != nil || !strings.Contains(out, "forgotten by admin: it burned") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := e.CLI("worker", "release", w.name()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	connected(t, e, w.name())
	if out, status := execIn(t, e, box.ID, "echo back"); out != "back\n" || status.ExitCode != 0 {
		t.Errorf("%q %+v", out, status)
	}
}

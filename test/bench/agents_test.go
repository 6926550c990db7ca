//go:build bench

package bench

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/agent/claude"
	"github.com/cofferdam/cofferdam/internal/agent/codex"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// agents measures from a harness's start to its first event: in a live sandbox,
// through the gateway, and outside with the same server and arguments.
func (b *bench) agents() []row {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	port := l.Addr().(*net.TCPAddr).Port
	certificate, authority, err := modeltest.Certificate("model.test", "127.0.0.1")
	b.must(err)
	roots := filepath.Join(b.dir, "models.pem")
	b.must(os.WriteFile(roots, authority, 0o644))
	server := &http.Server{Handler: modeltest.New(modeltest.Options{Steps: []modeltest.Step{{Text: "Done."}}}), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	go server.ServeTLS(l, "", "")
	defer server.Close()
	e := testenv.Start(b.t, testenv.Config{
		DNS: testenv.Names(b.t, map[string]string{"model.test.": "127.0.0.1"}).Addr, Flags: []string{"--roots", roots},
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: model.test, ports: [%d]}\n", port),
	})
	b.host(b.dir, "mkdir agents && cd agents && echo x > x"+strings.ReplaceAll(toBundle, "../bundle", "../agents.bundle"))
	var rows []row
	for _, c := range []struct {
		name, path string
		make       func(task.AgentSpec) (stage.Harness, error)
	}{{"claude", "", claude.New}, {"codex", "/v1", codex.New}} {
		if out, err := e.CLI("agent", "install", c.name); err != nil {
			b.t.Fatalf("agent install %s: %v\n%s", c.name, err, out)
		}
		spec := task.AgentSpec{Name: c.name, Model: "scripted", ModelURL: fmt.Sprintf("https://model.test:%d%s", port, c.path)}
		inside := b.started(c.make, spec)
		spec.ModelURL = fmt.Sprintf("https://127.0.0.1:%d%s", port, c.path)
		outside := b.started(c.make, spec)
		ours := b.within(e, c.name, inside, port)
		peer := b.native(e, c.name, outside, roots)
		if ours == nil || peer == nil {
			continue // told already; the other rows are still of use
		}
		rows = append(rows, row{"start → first event of " + c.name + " in a live sandbox against the bare program", ours.String(), peer.String(), ratio(ours, peer), "≤ 1.25 ×"})
	}
	return rows
}

// started is what a harness runs.
func (b *bench) started(make func(task.AgentSpec) (stage.Harness, error), spec task.AgentSpec) stage.HarnessStart {
	h, err := make(spec)
	b.must(err)
	start, err := h.Start(stage.HarnessRun{Prompt: "Say that you are done.", Silence: time.Minute})
	b.must(err)
	return start
}

// timed runs "$@" eight times, with the prompt as its input, and writes how many
// microseconds each took until its first line.
const timed = `for i in 1 2 3 4 5 6 7 8; do
  begun=${EPOCHREALTIME/./}
  "$@" <"$HOME/.cofferdam/prompt" 2>/dev/null | { read -r line && echo "took $((${EPOCHREALTIME/./} - begun))" >&2; cat >/dev/null; }
done`

// figures reads what timed wrote. The first two rounds warm the caches.
func (b *bench) figures(out string) figure {
	var all figure
	for _, m := range regexp.MustCompile(`took ([0-9]+)`).FindAllStringSubmatch(out, -1) {
		n, err := strconv.Atoi(m[1])
		b.must(err)
		all = append(all, time.Duration(n)*time.Microsecond)
	}
	if len(all) != 8 {
		b.t.Errorf("%d of 8 runs had a first line:\n%s", len(all), out)
		return nil
	}
	return all[2:]
}

// within measures in the sandbox of a task: only such a one has the agent's
// program. The task's agent is the measuring script, which speaks no protocol, so
// the task fails in the end.
func (b *bench) within(e *testenv.Env, name string, start stage.HarnessStart, port int) figure {
	file, err := os.Open(filepath.Join(b.dir, "agents.bundle"))
	b.must(err)
	defer file.Close()
	info, err := file.Stat()
	b.must(err)
	blob, err := e.Client.UploadBundle(b.ctx, file, info.Size())
	b.must(err)
	prepare := "cd \"$HOME\"\n"
	for _, f := range start.Files {
		prepare += fmt.Sprintf("mkdir -p %s && base64 -d >%s <<<'%s'\n", filepath.Dir(f.Path), f.Path, base64.StdEncoding.EncodeToString(f.Data))
	}
	prepare += "cd /workspace\n" + timed
	argv := append([]string{"env"}, start.Env...)
	argv = append(append(argv, "bash", "-c", prepare, "bash"), start.Argv...)
	created, _, err := e.Client.CreateTask(b.ctx, api.TaskRequest{
		Repo: api.Repo{Bundle: blob.Digest, Name: "bench"}, Agent: api.Agent{Name: "acp", Version: name, Argv: argv},
		Policy: fmt.Sprintf("version: 1\nagent: {network: {allow: [{host: model.test, ports: [%d], paths: [\"/**\"]}]}}\n", port),
	}, "")
	b.must(err)
	e.WaitTask(created.ID, 10*time.Minute)
	out, err := e.CLI("task", "logs", "--stage", "agent", "--raw", created.ID)
	b.must(err)
	return b.figures(out)
}

// native measures outside, with the files that the worker installed.
func (b *bench) native(e *testenv.Env, name string, start stage.HarnessStart, roots string) figure {
	home, err := os.MkdirTemp("/var/tmp", "bench-") // codex refuses to work beneath /tmp
	b.must(err)
	defer os.RemoveAll(home)
	for _, f := range start.Files {
		file := filepath.Join(home, f.Path)
		b.must(os.MkdirAll(filepath.Dir(file), 0o755))
		b.must(os.WriteFile(file, f.Data, 0o644))
	}
	known, _ := catalog.Find(name)
	from := filepath.Join(e.Data, "worker", "agents", name, known.Version)
	argv := []string{"-c", timed, "bash"}
	for _, a := range start.Argv {
		argv = append(argv, strings.ReplaceAll(a, catalog.Inside+"/"+name, from))
	}
	cmd := exec.Command("bash", argv...)
	cmd.Dir = home
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "IS_SANDBOX=1", "NO_PROXY=127.0.0.1", "NODE_EXTRA_CA_CERTS=" + roots, "SSL_CERT_FILE=" + roots, "CODEX_CA_CERTIFICATE=" + roots,
	}, start.Env...)
	for i, v := range cmd.Env {
		cmd.Env[i] = strings.Replace(v, "/home/agent", home, 1)
	}
	out, err := cmd.CombinedOutput()
	b.must(err)
	return b.figures(string(out))
}

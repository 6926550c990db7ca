//go:build bench

package bench

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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
		box, end := b.waiting(e, c.name, port)
		var ours, peer figure
		for i := range 8 {
			native, within := b.native(e, c.name, outside, roots), b.within(e, box, inside)
			if i >= 2 { // the first ones warm the caches
				ours, peer = append(ours, within), append(peer, native)
			}
		}
		end()
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

// waiting is the sandbox of a task whose agent does nothing: it has the agent's
// program, and may reach the model.
func (b *bench) waiting(e *testenv.Env, name string, port int) (box string, end func()) {
	file, err := os.Open(filepath.Join(b.dir, "agents.bundle"))
	b.must(err)
	defer file.Close()
	info, err := file.Stat()
	b.must(err)
	blob, err := e.Client.UploadBundle(b.ctx, file, info.Size())
	b.must(err)
	created, _, err := e.Client.CreateTask(b.ctx, api.TaskRequest{
		Repo:   api.Repo{Bundle: blob.Digest, Name: "bench"},
		Agent:  api.Agent{Name: "acp", Version: name, Argv: []string{"sh", "-c", "echo waiting; exec sleep 3600"}},
		Policy: fmt.Sprintf("version: 1\nlimits: {time: 2h}\nagent: {network: {allow: [{host: model.test, ports: [%d]}]}}\n", port),
	}, "")
	b.must(err)
	testenv.Until(b.t, 2*time.Minute, "the agent's stage", func() bool {
		got, err := e.Client.Task(b.ctx, created.ID)
		b.must(err)
		if got.Ended() {
			b.t.Fatalf("the task that should wait ended: %s %s", got.Reason, got.Text)
		}
		box = testenv.Stage(got, "agent").Sandbox
		return box != "" && testenv.Stage(got, "agent").State == "running"
	})
	return box, func() {
		b.must(e.Client.CancelTask(b.ctx, created.ID))
		e.WaitTask(created.ID, 2*time.Minute)
	}
}

// within runs it in the sandbox.
func (b *bench) within(e *testenv.Env, box string, start stage.HarnessStart) time.Duration {
	script := "mkdir -p \"$HOME/.cofferdam\" && printf %s 'Say that you are done.' > \"$HOME/.cofferdam/prompt\""
	if res, err := e.Client.Exec(b.ctx, box, api.ExecRequest{Argv: []string{"sh", "-c", script}, Wait: true}); err != nil || res.Command.ExitCode != 0 {
		b.t.Fatalf("%+v, %v", res, err)
	}
	env := map[string]string{}
	for _, v := range start.Env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	begun := time.Now()
	res, err := e.Client.Exec(b.ctx, box, api.ExecRequest{Argv: start.Argv, Env: env})
	b.must(err)
	var took time.Duration
	status, err := e.Client.ExecStream(b.ctx, box, res.Command.ID, 0, func(f api.Frame) error {
		if took == 0 && f.Fd == 1 {
			took = time.Since(begun)
		}
		return nil
	})
	if err != nil || status.ExitCode != 0 || took == 0 {
		b.t.Fatalf("%v: %+v, %v", start.Argv, status, err)
	}
	return took
}

// native runs it outside, from the files that the worker installed.
func (b *bench) native(e *testenv.Env, name string, start stage.HarnessStart, roots string) time.Duration {
	home := b.t.TempDir()
	for _, f := range start.Files {
		file := filepath.Join(home, f.Path)
		b.must(os.MkdirAll(filepath.Dir(file), 0o755))
		b.must(os.WriteFile(file, f.Data, 0o644))
	}
	row, _ := catalog.Find(name)
	from := filepath.Join(e.Data, "worker", "agents", name, row.Version)
	var argv []string
	for _, a := range start.Argv {
		argv = append(argv, strings.ReplaceAll(a, catalog.Inside+"/"+name, from))
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = home
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "IS_SANDBOX=1", "NO_PROXY=127.0.0.1", "NODE_EXTRA_CA_CERTS=" + roots, "SSL_CERT_FILE=" + roots, "CODEX_CA_CERTIFICATE=" + roots,
	}, start.Env...)
	return b.firstByte(cmd)
}

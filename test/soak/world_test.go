//go:build soak

package soak

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

const modelKey = "sk-ant-api03-REAL-0123456789abcdef0123456789abcdef"

// world is the platform and what it may reach: a server that counts runs and one
// that is a model.
type world struct {
	e      *testenv.Env
	api    *client.Client
	source api.Repo
	policy string
	model  string // its URL
	port   int    // of the counter

	mu   sync.Mutex
	runs map[string]map[string]bool // job → the numbers that its runs drew
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{runs: map[string]map[string]bool{}}
	w.port = serve(t, http.HandlerFunc(w.began), nil)
	certificate, authority, err := modeltest.Certificate("model.test")
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, authority, 0o644); err != nil {
		t.Fatal(err)
	}
	// The script is the same for all; what differs is in a file that setup leaves.
	model := modeltest.New(modeltest.Options{Key: modelKey, Steps: []modeltest.Step{
		{Text: "I look around.", Calls: []modeltest.ToolCall{{Name: "shell", Input: `{"command":"sh /tmp/soak.sh 2>&1"}`}, {Name: "read", Input: `{"path":"answer.txt"}`}}},
		{Calls: []modeltest.ToolCall{{Name: "edit", Input: `{"path":"answer.txt","old":"41","new":"42"}`}}},
		{Text: "Done."},
	}})
	modelPort := serve(t, model, &tls.Config{Certificates: []tls.Certificate{certificate}})
	w.model = fmt.Sprintf("https://model.test:%d", modelPort)
	names := testenv.Names(t, map[string]string{"counter.test.": "127.0.0.1", "model.test.": "127.0.0.1"})
	w.e = testenv.Start(t, testenv.Config{
		DNS: names.Addr, Flags: []string{"--roots", roots},
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: counter.test, ports: [%d]}\n  - {host: model.test, ports: [%d]}\n", w.port, modelPort),
	})
	w.policy = fmt.Sprintf("version: 1\nagent: {network: {allow: [{host: counter.test, ports: [%d]}]}}\n", w.port)
	w.api = w.e.Client // Env.Up makes another one for the same address
	add := w.e.Command("credential", "add", "anthropic", "--header", "X-Api-Key", "--host", "model.test", "--port", fmt.Sprint(modelPort))
	add.Stdin = strings.NewReader(modelKey)
	if out, err := add.CombinedOutput(); err != nil {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
	w.source = w.upload(t)
	return w
}

// serve starts a server on the loopback and returns its port.
func serve(t *testing.T, h http.Handler, config *tls.Config) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if config != nil {
		l = tls.NewListener(l, config)
	}
	srv := &http.Server{Handler: h}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return port
}

// began takes what a run tells.
func (w *world) began(_ http.ResponseWriter, r *http.Request) {
	job, run := r.FormValue("job"), r.FormValue("run")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[job] == nil {
		w.runs[job] = map[string]bool{}
	}
	w.runs[job][run] = true
}

// ran is how many runs of a job began.
func (w *world) ran(job string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.runs[job])
}

// upload makes the repository, whose test fails until answer.txt says 42.
func (w *world) upload(t *testing.T) api.Repo {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"answer.txt": "41\n", "check.sh": "#!/bin/sh\n[ \"$(cat answer.txt)\" = 42 ]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "repo.bundle")
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "base"}, {"bundle", "create", "-q", file, "HEAD", "main"}} {
		git := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=s", "-c", "user.email=s@example.com"}, args...)...)
		git.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	blob, err := w.api.UploadBundle(t.Context(), bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return api.Repo{Bundle: blob.Digest, Name: "soak"}
}

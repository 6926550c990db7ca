//go:build record

package modeltest_test

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/agent/claude"
	"github.com/cofferdam/cofferdam/internal/agent/codex"
	"github.com/cofferdam/cofferdam/internal/agent/gemini"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/agent/opencode"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// TestRecord runs the real harnesses, as plain processes of this machine, against
// the scripted server and writes what they wrote into their folders' testdata:
//
//	COFFERDAM_AGENTS=DATA/worker/agents go test -tags record ./internal/agent/modeltest
//
// It is run by hand when a pinned version changes.
func TestRecord(t *testing.T) {
	packages := os.Getenv("COFFERDAM_AGENTS")
	if packages == "" {
		t.Fatal("COFFERDAM_AGENTS names no folder of installed agents")
	}
	only := os.Getenv("COFFERDAM_ONLY")
	set := agent.Set{"claude": claude.New, "codex": codex.New, "opencode": opencode.New, "gemini": gemini.New}
	for _, name := range []string{"claude", "codex", "opencode", "gemini"} {
		if only != "" && only != name {
			continue
		}
		for _, c := range []struct {
			name  string
			fault modeltest.Fault
			after int
		}{
			{"good", modeltest.None, 0},
			{"400", "400", 0},
			{"401", "401", 0},
			{"429", "429", 0},
			{"500", "500", 0},
			{"silent", modeltest.Silent, 0},
			{"empty", modeltest.Empty, 0},
			{"garbage", modeltest.Garbage, 1},
			{"cut", modeltest.Cut, 1},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) { record(t, set, packages, name, c.name, c.fault, c.after) })
		}
	}
}

func record(t *testing.T, set agent.Set, packages, name, kind string, fault modeltest.Fault, after int) {
	server := modeltest.New(modeltest.Options{
		Key: "placeholder-of-the-lease", Fault: fault, After: after,
		Steps: []modeltest.Step{{Shell: "echo hello > hello.txt && cat hello.txt"}, {Shell: "ls /no/such/folder"}, {Text: "All done."}},
	})
	listening := httptest.NewServer(server)
	defer listening.Close()
	url := listening.URL
	if name == "codex" || name == "opencode" {
		url += "/v1"
	}
	h, err := set.Find(task.AgentSpec{Name: name, Model: model(name), ModelURL: url})
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("/var/tmp", "record-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	work := filepath.Join(home, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	session := ""
	for _, round := range []string{"", "resumed"} {
		if round != "" && (session == "" || kind != "good") {
			break
		}
		out, exit := run(t, h, packages, home, work, stage.HarnessRun{
			Prompt: `Write "hello" into a file.`, Placeholder: "placeholder-of-the-lease", Session: session, Silence: 3 * time.Second,
		})
		file := filepath.Join("..", name, "testdata", strings.TrimSuffix(kind+"-"+round, "-")+".txt")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		text := strings.NewReplacer(home, "/home/agent", listening.URL, "http://model.test", packages, catalog.Inside,
			strings.TrimPrefix(listening.URL, "http://"), "model.test").Replace(shorten(out))
		if err := os.WriteFile(file, []byte("exit "+strconv.Itoa(exit)+"\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
		r := h.Read(stage.HarnessRun{}, func(task.AgentEvent) {})
		r.Output(1, []byte(out))
		session = r.End(exit).Session
		t.Logf("%s: exit %d, session %q, %d requests", file, exit, session, len(server.Seen()))
	}
}

// shorten leaves out stack traces, and what comes after forty lines.
func shorten(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "2|    at ") && len(kept) < 40 {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func model(name string) string {
	if name == "gemini" {
		return ""
	}
	return "scripted"
}

func run(t *testing.T, h stage.Harness, packages, home, work string, r stage.HarnessRun) (string, int) {
	start, err := h.Start(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range start.Files {
		path := filepath.Join(home, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	name, version, _ := strings.Cut(h.Package(), "@")
	for i, a := range start.Argv {
		start.Argv[i] = strings.Replace(a, catalog.Inside+"/"+name, filepath.Join(packages, name, version), 1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, start.Argv[0], start.Argv[1:]...)
	cmd.Dir = work
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "IS_SANDBOX=1", "NO_PROXY=127.0.0.1"}, start.Env...)
	for i, e := range cmd.Env {
		cmd.Env[i] = strings.Replace(e, "/home/agent", home, 1)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	err = cmd.Run()
	exit := 0
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		exit = ended.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for line := range strings.Lines(notes.String()) {
		text += "2|" + line
	}
	return text, exit
}

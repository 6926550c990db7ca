package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cofferdam/cofferdam/internal/cli/show"
)

func TestMain(m *testing.M) {
	// A holder goes by the name of what it will become.
	if len(os.Args) > 1 && (os.Args[1] == "hold" || filepath.Base(os.Args[0]) == "cofferdam" && (os.Args[1] == "up" || os.Args[1] == "down")) {
		os.Exit(ExitCode(Execute(context.Background(), "test", os.Args[1:], Stdio{os.Stdin, os.Stdout, os.Stderr})))
	}
	if isDaemon(filepath.Base(os.Args[0])) {
		os.Exit(ExitCode(daemon(filepath.Base(os.Args[0]), os.Args[1:])))
	}
	testscript.Main(m, map[string]func(){
		"cofferdam": func() {
			os.Exit(ExitCode(Execute(context.Background(), "test", os.Args[1:], Stdio{os.Stdin, os.Stdout, os.Stderr})))
		},
	})
}

// The scripts run the real program against a small working server.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			dir := filepath.Join(env.WorkDir, ".server")
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			s := newSite(dir)
			env.Defer(s.Close)
			env.Values["site"] = s
			if err := s.keepAccount(env.WorkDir); err != nil {
				return err
			}
			home := filepath.Join(env.WorkDir, ".home")
			for name, value := range map[string]string{
				"COFFERDAM_URL": s.URL, "COFFERDAM_TOKEN": fakeToken, "HOME": home, "XDG_CONFIG_HOME": "", "SERVER": dir,
				"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com",
				"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
			} {
				env.Setenv(name, value)
			}
			return os.Mkdir(home, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":     scriptCode,
			"json":     scriptJSON,
			"stopsite": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Value("site").(*site).Close() },
			"sick":     scriptSick,
			"waitfile": scriptWaitFile,
		},
	})
}

// code N CMD ARGS runs a command that must end with exit code N.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N CMD ARGS")
	}
	want := 0
	for _, c := range args[0] {
		want = want*10 + int(c-'0')
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		got = -1
		var ee interface{ ExitCode() int }
		if asExit(err, &ee) {
			got = ee.ExitCode()
		}
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func asExit(err error, to *interface{ ExitCode() int }) bool {
	ee, ok := err.(interface{ ExitCode() int })
	if ok {
		*to = ee
	}
	return ok
}

// json: the standard output of the command before is exactly one document.
func scriptJSON(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile("stdout")
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		ts.Fatalf("not one JSON document: %v\n%s", err, text)
	}
	for _, c := range text {
		if c != '\n' && !show.Plain(c) {
			ts.Fatalf("holds %q, which is not harmless to show", c)
		}
	}
}

// sick makes the server's doctor find something.
func scriptSick(ts *testscript.TestScript, _ bool, _ []string) {
	s := ts.Value("site").(*site)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doctor.OK = false
	s.doctor.Checks = append(s.doctor.Checks, leftoverForTest())
}

// waitfile PATH waits until a file is there; then, with a signal and the name
// of a background command, nothing more is needed.
func scriptWaitFile(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			break
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not appear", path)
		}
	}
	if len(args) > 1 {
		for _, cmd := range ts.BackgroundCmds() {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				ts.Fatalf("signal: %v", err)
			}
		}
	}
}

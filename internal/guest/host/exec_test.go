package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

func TestCommandEndsAsItEnded(t *testing.T) {
	c := newPlace(t).dial()
	for _, test := range []struct {
		name         string
		cmd          guest.Command
		stdout       string
		stderr       string
		code, signal int
		failed       string
	}{
		{"success", sh("a", "echo out; echo err >&2"), "out\n", "err\n", 0, 0, ""},
		{"code", sh("b", "exit 255"), "", "", 255, 0, ""},
		{"signal", sh("c", "kill -TERM $$"), "", "", -1, int(unix.SIGTERM), ""},
		{"no standard input", sh("d", "cat; echo $?"), "0\n", "", 0, 0, ""},
		{"environment", guest.Command{ID: "e", Argv: []string{"sh", "-c", "echo $HOME $X"}, Env: []string{"X=1", "X=2"}}, "/home/agent 2\n", "", 0, 0, ""},
		{"no program", guest.Command{ID: "f", Argv: []string{"no-such-program"}}, "", "", 127, 0, "no such program: no-such-program"},
		{"no path", guest.Command{ID: "g", Argv: []string{"/no/such"}}, "", "", 127, 0, "no such program: /no/such"},
		{"no folder", guest.Command{ID: "h", Argv: []string{"true"}, Dir: "/no/such"}, "", "", 126, 0, "no such folder: /no/such"},
		{"not executable", guest.Command{ID: "i", Argv: []string{"/etc/passwd"}}, "", "", 126, 0, "not permitted: /etc/passwd"},
		{"large request", guest.Command{ID: "j", Argv: []string{"sh", "-c", `echo ${#1}`, "sh", strings.Repeat("p", 100_000)}}, "100000\n", "", 0, 0, ""},
	} {
		stdout, stderr, s := run(t, c, test.cmd)
		if stdout != test.stdout || stderr != test.stderr || s.ExitCode != test.code || s.Signal != test.signal || s.Phase != guest.Exited {
			t.Errorf("%s: %q, %q, %+v", test.name, stdout, stderr, s)
		}
		if !strings.HasPrefix(s.Error, test.failed) || test.failed == "" && s.Error != "" {
			t.Errorf("%s: error %q, want %q", test.name, s.Error, test.failed)
		}
		if s.Output != int64(len(stdout)+len(stderr)) {
			t.Errorf("%s: output %d", test.name, s.Output)
		}
	}
	if _, err := c.Attach(t.Context(), "nobody", 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("attach to an unknown command: %v", err)
	}
	if err := c.Signal(t.Context(), "nobody", 9); !errors.Is(err, ErrNotFound) {
		t.Errorf("signal to an unknown command: %v", err)
	}
	for _, id := range []string{"", "../x", ".hidden", strings.Repeat("a", 129), "a/b"} {
		if _, err := c.Start(t.Context(), sh(id, "true")); err == nil {
			t.Errorf("id %q was taken", id)
		}
	}
	if got := len(c.Statuses()); got != 10 {
		t.Errorf("%d statuses", got)
	}
}

func TestOneIDStartsOnce(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	var wait sync.WaitGroup
	var mu sync.Mutex
	started, pids := 0, map[int]bool{}
	for range 50 {
		wait.Go(func() {
			s, err := c.Start(soon(t), sh("same", "echo x >> count; cat count"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if s.Started {
				started++
			}
			pids[s.PID] = true
		})
	}
	wait.Wait()
	stdout, _, _ := attach(t, c.Journals(), "same")
	if started != 1 || len(pids) != 1 || stdout != "x\n" {
		t.Errorf("started %d times, pids %v, %q", started, pids, stdout)
	}
	c.Close()
	again := p.dial()
	s, err := again.Start(soon(t), sh("same", "echo y >> count"))
	if err != nil || s.Started || !s.Ended() {
		t.Errorf("after a restart: %+v, %v", s, err)
	}
	if stdout, _, _ := attach(t, again.Journals(), "same"); stdout != "x\n" {
		t.Errorf("after a restart: %q", stdout)
	}
	if text, _ := os.ReadFile(p.workspace("count")); string(text) != "x\n" {
		t.Errorf("the command ran as often as %q", text)
	}
}

// TestBackgroundChildDoesNotHoldTheCommand is B31 and its kinds: however a child
// left, the command ends when its main process does, and a signal reaches the
// child.
func TestBackgroundChildDoesNotHoldTheCommand(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	for i, script := range []string{
		"sleep 300 & echo hi",
		"nohup sleep 300 >/dev/null 2>&1 & echo hi",
		"setsid sleep 300 & echo hi",
		"(setsid sh -c '(sleep 300 &) ; exit' &) ; echo hi; sleep 0.2",
		`sh -c 'trap "" TERM INT HUP; while :; do sleep 300; done' & echo hi`,
	} {
		id := fmt.Sprintf("bg%d", i)
		began := time.Now()
		stdout, _, s := run(t, c, sh(id, script))
		if stdout != "hi\n" || s.ExitCode != 0 || s.Reason != "" {
			t.Errorf("%q: %q, %+v", script, stdout, s)
		}
		if d := time.Since(began); d > time.Minute {
			t.Errorf("%q: reported after %v", script, d)
		}
		if len(s.Children) == 0 {
			t.Errorf("%q: no children are listed", script)
		}
		if err := c.Signal(soon(t), id, int(unix.SIGKILL)); err != nil {
			t.Errorf("%q: %v", script, err)
		}
		for _, pid := range s.Children {
			if alive(pid) {
				t.Errorf("%q: process %d lives", script, pid)
			}
		}
	}
	eventually(t, "no child of the guest is left", func() bool { return len(childrenOf(p.guest.Process.Pid)) == 0 })
}

func TestLaterOutputIsKept(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	stdout, _, _ := run(t, c, sh("late", "(until [ -e go ]; do sleep 0.01; done; echo later) & echo now"))
	if stdout != "now\n" {
		t.Errorf("got %q", stdout)
	}
	if err := os.WriteFile(p.workspace("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "later output is in the journal", func() bool {
		stdout, _, _ := attach(t, c.Journals(), "late")
		return stdout == "now\nlater\n"
	})
}

// TestTimeLimit is B32: a command that doesn't want to end is ended, and so is
// its tree.
func TestTimeLimit(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	var wait sync.WaitGroup
	for i, script := range []string{
		"while :; do :; done",
		"trap '' TERM INT HUP; while :; do sleep 1; done",
		"setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & sleep 300",
		"kill -STOP $$",
		"while :; do sleep 0.01 & done",
	} {
		wait.Go(func() {
			cmd := sh(fmt.Sprintf("limit%d", i), script)
			cmd.Timeout = 300 * time.Millisecond
			if _, err := c.Start(soon(t), cmd); err != nil {
				t.Error(err)
				return
			}
			_, _, s := attach(t, c.Journals(), cmd.ID)
			if !s.TimedOut || s.Reason != guest.ReasonTime || len(s.Children) != 0 || s.Signal == 0 {
				t.Errorf("%q: %+v", script, s)
			}
			if took := s.EndedAt.Sub(s.StartedAt); took > time.Minute {
				t.Errorf("%q: ended after %v", script, took)
			}
		})
	}
	wait.Wait()
	eventually(t, "no child of the guest is left", func() bool { return len(childrenOf(p.guest.Process.Pid)) == 0 })
}

func TestOutputLimit(t *testing.T) {
	c := newPlace(t).dial()
	cmd := sh("flood", "yes & yes")
	cmd.MaxOutput = 300_001
	stdout, _, s := run(t, c, cmd)
	if len(stdout) != 300_001 || s.Reason != guest.ReasonOutput || s.Output != 300_001 || len(s.Children) != 0 {
		t.Errorf("%d bytes, %+v", len(stdout), s)
	}
}

// TestNoZombies is B33: every process is reaped, and no exit code is lost to it.
func TestNoZombies(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	var wait sync.WaitGroup
	slots := make(chan struct{}, 20)
	count := 1000
	if testing.Short() {
		count = 100
	}
	for i := range count {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			code := i % 256
			_, _, s := run(t, c, sh("z"+strconv.Itoa(i), "sleep 0.1 & exit "+strconv.Itoa(code)))
			if s.ExitCode != code {
				t.Errorf("command %d: exit code %d", i, s.ExitCode)
			}
		})
	}
	wait.Wait()
	eventually(t, "no zombie is left", func() bool { return len(childrenOf(p.guest.Process.Pid)) == 0 })
}

func TestWorkloadHasNoPowers(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	stdout, _, _ := run(t, c, sh("caps", "grep -E '^(Cap(Prm|Eff|Amb|Inh)|NoNewPrivs)' /proc/self/status; id -u"))
	for line := range strings.SplitSeq(strings.TrimSpace(stdout), "\n") {
		key, value, _ := strings.Cut(line, ":\t")
		if strings.HasPrefix(key, "Cap") && os.Geteuid() == 0 && strings.Trim(value, "0") != "" {
			t.Errorf("the workload has %s", line)
		}
		if key == "NoNewPrivs" && value != "1" {
			t.Errorf("the workload has %s", line)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	if !strings.HasSuffix(stdout, "\n1000\n") {
		t.Errorf("the workload is user %q", stdout)
	}
	script := fmt.Sprintf("cd /proc/%d; cat environ; cat mem; ls fd; cat maps; kill -9 %d", p.guest.Process.Pid, p.guest.Process.Pid)
	stdout, _, s := run(t, c, sh("peek", script))
	if stdout != "" || s.ExitCode == 0 {
		t.Errorf("the workload sees of the guest: %q, %+v", stdout, s)
	}
	if err := c.Ping(soon(t)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestConfigure(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	cfg := guest.Config{AuthorityPEM: []byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"), BaseEnv: []string{"A=b", "PATH=/usr/bin:/bin"}}
	for range 2 {
		if err := c.Configure(soon(t), cfg); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"root/etc/cofferdam/ca.pem", "root/etc/ssl/certs/ca-certificates.crt"} {
		text, err := os.ReadFile(p.folder + "/" + name)
		if err != nil || string(text) != string(cfg.AuthorityPEM) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	stdout, _, _ := run(t, c, sh("env", "echo $A $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS $PATH"))
	if stdout != "b /etc/ssl/certs/ca-certificates.crt /etc/cofferdam/ca.pem /usr/bin:/bin\n" {
		t.Errorf("environment: %q", stdout)
	}
}

func TestShutdownEndsEverything(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	if _, err := c.Start(soon(t), sh("s", "setsid sleep 300 & sleep 300")); err != nil {
		t.Fatal(err)
	}
	if err := c.Shutdown(soon(t)); err != nil {
		t.Fatal(err)
	}
	if _, _, s := attach(t, c.Journals(), "s"); s.Signal != int(unix.SIGKILL) {
		t.Errorf("%+v", s)
	}
	eventually(t, "no child of the guest is left", func() bool { return len(childrenOf(p.guest.Process.Pid)) == 0 })
}

func TestProcessLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without another user the limit counts the tester's own processes")
	}
	c := newPlace(t).dial()
	cmd := sh("bomb", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 60 & done")
	cmd.NProc = 12
	_, stderr, s := run(t, c, cmd)
	if s.Reason != guest.ReasonPIDs || s.ExitCode == 0 {
		t.Errorf("%q, %+v", stderr, s)
	}
	if err := c.Signal(soon(t), "bomb", int(unix.SIGKILL)); err != nil {
		t.Error(err)
	}
}

package testenv

import (
	"bufio"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// holdSocket starts a process that listens on a Unix socket until the test ends. It is
// marked by its environment, or its arguments, or not at all.
func holdSocket(t *testing.T, name string, env []string, args ...string) {
	t.Helper()
	script := "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.bind('\\0'+sys.argv[1])\ns.listen()\nprint('listens',flush=True)\nsys.stdin.read()"
	cmd := exec.Command("python3", append([]string{"-c", script, name}, args...)...)
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "listens\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

// A census has what our installation left, by its arguments or its environment,
// and nothing of an installation beside it, even when its name begins alike.
func TestCensusKnowsOwners(t *testing.T) {
	e := &Env{T: t, Data: "/tmp/cfd4711"}
	before := e.Census()
	path := []string{"PATH=/usr/bin:/bin"}
	holdSocket(t, "cfd-test-ours-by-argument", path, "/tmp/cfd4711/worker")
	holdSocket(t, "cfd-test-ours-by-environment", append(path, "HOME=/tmp/cfd4711"))
	holdSocket(t, "cfd-test-another", path, "/tmp/cfd47112/worker")
	l, err := net.Listen("unix", "\x00cfd-test-of-the-test")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	added, _ := Diff(before, e.Census())
	added = slices.DeleteFunc(added, func(s string) bool { return !strings.Contains(s, "cfd-test-") })
	want := []string{"socket @cfd-test-ours-by-argument", "socket @cfd-test-ours-by-environment"}
	if !slices.Equal(added, want) {
		t.Errorf("added %q, want %q", added, want)
	}
}

func TestOwnersOfPaths(t *testing.T) {
	o := &owners{data: "/tmp/cfd4711"}
	for path, want := range map[string]owner{
		"/tmp/cfd4711": ours, "/tmp/cfd4711/worker/x": ours, "/tmp/cfd47112/worker/x": another,
		"/tmp/TestX/001": another, "/run/netns/x": unknown, "/": unknown,
	} {
		if got := o.path(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if got := parent([]byte("7 (a ) b) S 42 7 7 0")); got != 42 {
		t.Errorf("the parent is %d", got)
	}
}

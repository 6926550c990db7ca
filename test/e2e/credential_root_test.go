//go:build root

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

const keyValue = "sk-ant-api03-REALVALUE0123456789abcdefREALVALUE"

// keyed is an API outside, over TLS, that notes what each request carried.
type keyed struct {
	port int
	hold chan struct{} // /ok/hold answers when it closes
	held chan struct{} // receives when a request is held or streams
	cut  chan struct{} // receives when a stream was cut

	mu   sync.Mutex
	seen map[string][]string // by path: the key's header
	all  bytes.Buffer        // every header and body
}

// serveKeyed serves api.test and other.test, and starts a platform that trusts
// and reaches them.
func serveKeyed(t *testing.T, flags ...string) (*keyed, *testenv.Env) {
	t.Helper()
	k := &keyed{hold: make(chan struct{}), held: make(chan struct{}, 100), cut: make(chan struct{}, 100), seen: map[string][]string{}}
	far := egresstest.NewFar(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k.port = l.Addr().(*net.TCPAddr).Port
	egresstest.Serve(t, l, far.Certificate(t, "api.test", time.Now().Add(time.Hour)), true, k)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, far.PEM, 0o644); err != nil {
		t.Fatal(err)
	}
	ns := testenv.Names(t, map[string]string{"api.test.": "127.0.0.1", "other.test.": "127.0.0.1"})
	return k, testenv.Start(t, testenv.Config{
		DNS: ns.Addr, Flags: append([]string{"--roots", roots}, flags...),
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: api.test, ports: [%d]}\n  - {host: other.test, ports: [%d]}\n", k.port, k.port),
	})
}

// ServeHTTP answers; what it was sent it repeats on /ok/echo alone.
func (k *keyed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	k.seen[r.URL.Path] = append(k.seen[r.URL.Path], strings.Join(r.Header.Values("X-Api-Key"), "|"))
	_ = r.Write(&k.all)
	k.mu.Unlock()
	switch r.URL.Path {
	case "/ok/echo":
		repeat(w, r.Header.Get("X-Api-Key"))
		return
	case "/ok/hold":
		k.held <- struct{}{}
		select {
		case <-k.hold:
		case <-r.Context().Done():
		}
	case "/ok/stream":
		fmt.Fprintln(w, "begun")
		_ = http.NewResponseController(w).Flush()
		k.held <- struct{}{}
		<-r.Context().Done()
		k.cut <- struct{}{}
		return
	}
	fmt.Fprintln(w, "fine")
}

func (k *keyed) at(path string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string{}, k.seen[path]...)
}

// addKey puts the key into the vault as a person would: on the standard input.
func (k *keyed) addKey(t *testing.T, e *testenv.Env) {
	t.Helper()
	cmd := e.Command("credential", "add", "key", "--host", "api.test", "--port", strconv.Itoa(k.port), "--path", "/ok/**", "--header", "X-Api-Key", "--env", "API_KEY")
	cmd.Stdin = strings.NewReader(keyValue + "\n")
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte(keyValue)) {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
}

// task is a request whose agent may use the key at api.test.
func (k *keyed) task(r api.Repo, setup, agent string) api.TaskRequest {
	return api.TaskRequest{
		Repo: r, Setup: setup, Agent: sh(strings.ReplaceAll(agent, "PORT", strconv.Itoa(k.port))),
		Policy: fmt.Sprintf("version: 1\nagent:\n  network:\n    allow:\n      - {host: api.test, ports: [%d], credential: key}\n      - {host: other.test, ports: [%d], protocol: http}\n", k.port, k.port),
	}
}

// The model of all that credentials promise: the upstream sees the key and
// never the placeholder, the sandbox and every file of the installation see the
// placeholder or nothing, and only bound requests carry it.
func TestCredentialIsUsedAndNeverSeen(t *testing.T) {
	k, e := serveKeyed(t)
	k.addKey(t, e)
	source := bundle(t, e, small(t))
	task := submit(t, e, k.task(source, `test -z "$API_KEY"`, `set -u
echo "key $API_KEY"
curl -s -m 100 -H "X-Api-Key: $API_KEY" https://api.test:PORT/ok/hold
curl -s -m 60 -H "X-Api-Key: $API_KEY" https://api.test:PORT/ok/with
curl -s -m 60 https://api.test:PORT/ok/without
curl -s -m 60 -H "X-Api-Key: $API_KEY" https://api.test:PORT/elsewhere; echo
curl -s -m 60 -H "X-Other: $API_KEY" https://api.test:PORT/ok/otherheader; echo
curl -s -m 60 -H "X-Api-Key: $API_KEY" https://other.test:PORT/ok/otherhost; echo
curl -s -m 60 -H "X-Api-Key: mine" https://api.test:PORT/ok/own; echo
env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'
`))
	<-k.held
	// Killed while the stage runs, the control plane comes to the same lease.
	e.Reborn("cofferdamd", e.Kill("cofferdamd"))
	testenv.Until(t, time.Minute, "the control plane to answer", func() bool {
		got, err := e.Client.Task(context.Background(), task.ID)
		return err == nil && len(got.Leases) == 1 && got.Leases[0].Until == nil
	})
	notDumpable(t, e)
	close(k.hold)
	got := e.WaitTask(task.ID, patience)
	must(t, e, got, api.Succeeded, "")

	for path, want := range map[string]string{"/ok/hold": keyValue, "/ok/with": keyValue, "/ok/without": keyValue} {
		if seen := k.at(path); len(seen) != 1 || seen[0] != want {
			t.Errorf("%s carried %q", path, seen)
		}
	}
	for _, path := range []string{"/elsewhere", "/ok/otherheader", "/ok/otherhost", "/ok/own"} {
		if seen := k.at(path); len(seen) != 0 {
			t.Errorf("%s reached the upstream with %q", path, seen)
		}
	}
	if k.all.Len() == 0 || strings.Contains(k.all.String(), "placeholder") {
		t.Errorf("the upstream saw a placeholder:\n%s", k.all.String())
	}
	text := log(t, e, task.ID, "agent")
	if !strings.Contains(text, "key sk-ant-api03-placeholder") || strings.Count(text, "fine") != 3 || strings.Count(text, "policy.credential") != 4 {
		t.Errorf("the agent's log:\n%s", text)
	}
	if len(got.Leases) != 1 || got.Leases[0].Stage != "agent" || got.Leases[0].Ended != "stage" || got.Leases[0].Until == nil {
		t.Errorf("the task shows the leases %+v", got.Leases)
	}
	shown, err := e.CLI("task", "show", task.ID)
	if err != nil || !strings.Contains(shown, "LENT") || !strings.Contains(shown, "api.test") {
		t.Errorf("task show: %v\n%s", err, shown)
	}
	export, err := e.CLI("audit", "export")
	for _, kind := range []string{"credential.add", "credential.lent", "credential.given", "credential.ended"} {
		n := 0
		for line := range strings.Lines(export) {
			if strings.Contains(line, `"type":"record"`) && strings.Contains(line, `"kind":"`+kind+`"`) {
				n++
			}
		}
		if err != nil || n != 1 {
			t.Errorf("%d records of %s, %v", n, kind, err)
		}
	}
	receipt, err := e.CLI("task", "receipt", task.ID)
	if err != nil || !strings.Contains(receipt, "credential.ended") {
		t.Errorf("the receipt has no end of the lease: %v", err)
	}
	listed, err := e.CLI("credential", "ls", "--json")
	if err != nil {
		t.Error(err)
	}
	for what, s := range map[string]string{"log": text, "task show": shown, "export": export, "receipt": receipt, "credential ls": listed, "logs": e.Logs()} {
		if strings.Contains(s, keyValue) {
			t.Errorf("%s has the value", what)
		}
	}
	valueNowhere(t, e.Data, keyValue)
}

// valueNowhere looks for bytes in every file beneath a folder.
func valueNowhere(t *testing.T, dir, value string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		if info, err := d.Info(); err != nil || info.Size() > 256<<20 {
			return nil // an image of the machine's toolchains
		}
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		files++
		if bytes.Contains(text, []byte(value)) {
			t.Errorf("%s holds the value", path)
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Errorf("looked into %d files: %v", files, err)
	}
}

// notDumpable: the processes that hold values leave no core file, and no other
// process of their user can look into them.
func notDumpable(t *testing.T, e *testenv.Env) {
	t.Helper()
	for _, daemon := range []string{"cofferdamd", "gateway"} {
		boot, err := e.Boot(daemon)
		if err != nil {
			t.Fatal(err)
		}
		// The kernel gives the files of a process that is not dumpable to root.
		info, err := os.Stat(fmt.Sprintf("/proc/%d/environ", boot.PID))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s can be dumped: %v", daemon, err)
		}
		for _, file := range []string{"environ", "cmdline"} {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", boot.PID, file)); err != nil || bytes.Contains(text, []byte(keyValue)) {
				t.Errorf("%s of %s: %v", file, daemon, err)
			}
		}
	}
}

// Revoking ends what is lent at once, also on a connection that streams.
func TestRevokedCredentialIsCut(t *testing.T) {
	k, e := serveKeyed(t)
	k.addKey(t, e)
	task := submit(t, e, k.task(bundle(t, e, small(t)), "", `
curl -s -N -m 100 -H "X-Api-Key: $API_KEY" https://api.test:PORT/ok/stream; echo "cut $?"
curl -s -m 60 -H "X-Api-Key: $API_KEY" https://api.test:PORT/ok/after; echo
`))
	<-k.held
	end, err := e.Client.RevokeCredential(context.Background(), "key")
	if err != nil || end.Leases != 1 || !end.Cut {
		t.Fatalf("revoked: %+v, %v", end, err)
	}
	<-k.cut
	got := e.WaitTask(task.ID, patience)
	must(t, e, got, api.Succeeded, "")
	if seen := k.at("/ok/after"); len(seen) != 0 {
		t.Errorf("after it was revoked: %q", seen)
	}
	if text := log(t, e, task.ID, "agent"); !strings.Contains(text, "begun\ncut ") || strings.Contains(text, "cut 0") || !strings.Contains(text, "policy.credential") {
		t.Errorf("the agent's log:\n%s", text)
	}
	if len(got.Leases) != 1 || got.Leases[0].Ended != "revoked" {
		t.Errorf("leases %+v", got.Leases)
	}
	// And the next task is told before anything runs.
	_, _, err = e.Client.CreateTask(context.Background(), k.task(bundle(t, e, small(t)), "", "true"), "")
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != "policy.credential" || !strings.Contains(p.Detail, "agent.network.allow[0].credential") {
		t.Errorf("a task with a revoked credential: %v", err)
	}
	valueNowhere(t, e.Data, keyValue)
}

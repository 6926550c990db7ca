//go:build root

package gvisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
)

// tool is what somebody does inside, and what must come of it.
type tool struct {
	name   string
	needs  []string // programs of the host
	script string   // run by bash -e as user agent, in a folder of its own
	want   string   // part of what it prints
}

// tools are the programs that must work inside as they do outside.
var tools = []tool{
	{name: "postgres", needs: []string{"postgres"}, script: `
export PATH="$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH"
initdb -D data -A trust -U agent >/dev/null
pg_ctl -D data -w -l log -o "-k $PWD -h 127.0.0.1 -c fsync=on -c full_page_writes=on" start >/dev/null
psql -h "$PWD" -U agent postgres -c 'create table t(x int)' -c 'insert into t select generate_series(1,10000)' -c checkpoint >/dev/null
psql -h 127.0.0.1 -U agent postgres -Atc 'show fsync; select sum(x) from t'
pg_ctl -D data -m immediate stop >/dev/null
pg_ctl -D data -w -l log -o "-k $PWD -h 127.0.0.1" start >/dev/null
psql -h "$PWD" -U agent postgres -Atc 'select count(*) from t'
pg_ctl -D data -m fast stop >/dev/null`, want: "on\n50005000\n10000\n"},
	{
		name: "sqlite WAL", needs: []string{"python3"}, script: `
cat > w.py <<'P'
import sqlite3, sys
c = sqlite3.connect("db", timeout=60, isolation_level=None)
for i in range(100): c.execute("insert into t values(?)", (i,))
P
# Becoming WAL wants the file alone and doesn't wait for it (sqlite.org/wal.html), so it comes before the two.
python3 - <<'P'
import sqlite3
c = sqlite3.connect("db", isolation_level=None)
assert c.execute("pragma journal_mode=wal").fetchone()[0] == "wal"
c.execute("create table t(x)")
P
python3 w.py & a=$!; python3 w.py & b=$!; wait $a; wait $b
python3 -c 'import sqlite3; c=sqlite3.connect("db"); print(c.execute("select count(*), sum(x) from t").fetchone(), c.execute("pragma integrity_check").fetchone())'`,
		want: "(200, 9900) ('ok',)",
	},
	{name: "strace", needs: []string{"strace"}, script: `strace -f -o trace sh -c 'true; /bin/true; exit 3' || echo code $?; grep -q 'execve("/bin/true"' trace && echo followed; tail -1 trace`, want: "code 3\nfollowed\n"},
	{name: "gdb", needs: []string{"gdb", "gcc"}, script: `
printf 'int f(int x){ return x*2; }\nint main(void){ return f(21)-42; }\n' > a.c; gcc -g -O0 -o a a.c
gdb -batch -ex 'break f' -ex run -ex 'print x' -ex bt -ex continue ./a 2>&1`, want: "$1 = 21"},
	{name: "go test -race", needs: []string{"go", "gcc"}, script: `
export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=1
printf 'module x\ngo 1.22\n' > go.mod
cat > x_test.go <<'G'
package x
import ("sync"; "testing")
func TestRace(t *testing.T) { var n int; var g sync.WaitGroup; for range 2 { g.Add(1); go func() { n++; g.Done() }() }; g.Wait() }
G
go test -race . 2>&1 || true`, want: "WARNING: DATA RACE"},
	{name: "inotify and truncate", needs: []string{"inotifywait"}, script: `
echo text > f
coproc W { inotifywait -m --format "%e %f" -e modify,create,delete,moved_to . 2>&1; }
watcher=$W_PID
event() { read -r -u "${W[0]}" line; echo "$1: $line"; }
until [ "$line" = "Watches established." ]; do event starting >/dev/null; done
truncate -s 0 f; event truncate
touch g; mv g h; rm h; until [ "$line" = "DELETE h" ]; do event later; done
echo text > i; until [ "$line" = "MODIFY i" ]; do event later >/dev/null; done
: > i; event O_TRUNC
kill $watcher`, want: "truncate: MODIFY f\nlater: CREATE g\nlater: MOVED_TO h\nlater: DELETE h\nO_TRUNC: MODIFY i\n"},
	// Its own loop is counted, between two events of its own: about 175 calls in
	// five seconds, natively too. One that spins makes tens of thousands.
	{name: "tmux idle", needs: []string{"tmux", "strace"}, script: `
export TMUX_TMPDIR=$PWD
strace -ff -o calls tmux -f /dev/null new-session -d -s s cat & t=$!
until tmux has-session -t s 2>err; do kill -0 $t; done
p=$(tmux display-message -p '#{pid}')
tmux send-keys -t s hello Enter; until tmux capture-pane -p -t s | grep -q hello; do :; done
a=$(wc -l < calls.$p)
tmux run-shell -b -d 5 'tmux wait-for -S rung'
tmux wait-for rung
b=$(wc -l < calls.$p)
tmux kill-server; wait $t
echo "$((b-a)) calls"; [ $((b-a)) -le 1000 ] && echo idle`, want: "idle\n"},
	{name: "java", needs: []string{"javac"}, script: `
printf 'public class A { public static void main(String[] a) throws Exception { var t = new Thread(() -> System.out.println("java " + (6*7))); t.start(); t.join(); } }\n' > A.java
javac A.java && java A`, want: "java 42\n"},
	{name: "node", needs: []string{"node"}, script: `
cat > a.js <<'J'
const {Worker} = require('worker_threads'), cp = require('child_process'), http = require('http'), fs = require('fs');
const s = http.createServer((q, r) => r.end('served')).listen(0, '127.0.0.1', () => http.get({port: s.address().port}, r => r.on('data', d => {
  console.log(String(d), cp.execFileSync('/bin/echo', ['child']).toString().trim());
  const w = new Worker('require("worker_threads").parentPort.postMessage(7)', {eval: true});
  w.on('message', m => { console.log('worker', m); s.close(); s.closeAllConnections(); });
})));
J
node a.js`, want: "served child\nworker 7\n"},
	{name: "pnpm", needs: []string{"npm"}, script: `
export HOME=$PWD
node /tmp/pnpm/package/bin/pnpm.cjs --version
mkdir lib app; printf '{"name":"lib","version":"1.0.0","main":"i.js"}' > lib/package.json; echo 'module.exports="linked"' > lib/i.js
printf '{"name":"app","version":"1.0.0","dependencies":{"lib":"file:../lib"}}' > app/package.json
cd app; node /tmp/pnpm/package/bin/pnpm.cjs install --offline >log 2>&1 || cat log; node -e 'console.log(require("lib"))'`, want: "linked\n"},
	{name: "python venv and multiprocessing", needs: []string{"python3"}, script: `
python3 -m venv --without-pip v
cat > m.py <<'P'
import multiprocessing as mp, sys
from multiprocessing import shared_memory
def f(x): return x*x
if __name__ == "__main__":
    for how in ("fork", "spawn", "forkserver"):
        with mp.get_context(how).Pool(2) as p: assert p.map(f, range(10)) == [x*x for x in range(10)]
    s = shared_memory.SharedMemory(create=True, size=1 << 20); s.buf[0] = 7; s.close(); s.unlink()
    with mp.Manager() as m: d = m.dict(); d["x"] = 1
    print("pools", sys.prefix)
P
v/bin/python m.py`, want: "pools /workspace/"},
	{name: "pip install --user", needs: []string{"pip3"}, script: `
cd
python3 - <<'P'
import zipfile
with zipfile.ZipFile("hello_user-1.0-py3-none-any.whl", "w") as z:
    z.writestr("hello_user.py", "def main(): print('from', __file__)\n")
    z.writestr("hello_user-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hello-user\nVersion: 1.0\n")
    z.writestr("hello_user-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("hello_user-1.0.dist-info/entry_points.txt", "[console_scripts]\nhello-user = hello_user:main\n")
    z.writestr("hello_user-1.0.dist-info/RECORD", "")
P
python3 -m pip install -q --user --break-system-packages --no-index ./hello_user-1.0-py3-none-any.whl
hello-user`, want: "from /home/agent/.local/lib/python3"},
	{name: "npx of a local package", needs: []string{"npx"}, script: `
mkdir lib app; printf '{"name":"hello-npx","version":"1.0.0","bin":{"hello-npx":"b.js"}}' > lib/package.json
printf '#!/usr/bin/env node\nconsole.log("npx", process.argv[2])\n' > lib/b.js; chmod +x lib/b.js
cd app; echo '{}' > package.json; npm install --offline --no-audit --no-fund ../lib >/dev/null
npx hello-npx installed; cd ..; npx --yes --offline ./lib once`, want: "npx installed\nnpx once\n"},
	// What doesn't work must say so, and at once.
	{name: "ssh-agent", needs: []string{"ssh-agent"}, script: `
eval "$(ssh-agent)" >/dev/null; ssh-keygen -q -t ed25519 -N "" -C key-of-the-test -f k
ssh-add -q k; ssh-add -l; ssh-agent -k >/dev/null`, want: " key-of-the-test (ED25519)\n"},
	{name: "cargo", needs: []string{"cargo"}, script: `export CARGO_HOME=$PWD/ch; cargo init -q --vcs none --name x . && cargo build -q --offline && ./target/debug/x`, want: "Hello, world!\n"},
	{name: "chromium", needs: []string{"chromium"}, script: `
echo '<p id=p>x</p><script>p.textContent="dom "+(6*7)</script>' > a.html
for i in 1 2 3; do timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir=$PWD/u --dump-dom file://$PWD/a.html 2>err || tail -5 err; done`, want: "dom 42"},
	{name: "unix sockets", needs: []string{"python3"}, script: `
cat > u.py <<'P'
import socket, os, array
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
    for name in ("/tmp/u.%d" % kind, "\0abstract.%d" % kind):
        s = socket.socket(socket.AF_UNIX, kind); s.bind(name)
        c = socket.socket(socket.AF_UNIX, kind)
        if kind != socket.SOCK_DGRAM: s.listen()
        c.connect(name); c.send(b"hi")
        if kind != socket.SOCK_DGRAM: s, _ = s.accept()
        assert s.recv(9) == b"hi"
a, b = socket.socketpair(); r, w = os.pipe()
socket.send_fds(a, [b"x"], [w]); _, fds, _, _ = socket.recv_fds(b, 1, 1); os.write(fds[0], b"passed"); print(os.read(r, 9))
print(a.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8] == os.getuid().to_bytes(4, "little"))
P
python3 u.py`, want: "b'passed'\nTrue\n"},
	{name: "localhost", needs: []string{"python3"}, script: `
cat > l.py <<'P'
import socket
for host in ("127.0.0.1", "::1", "localhost"):
    fam = socket.AF_INET6 if ":" in host else socket.AF_INET
    s = socket.socket(fam); s.bind((host, 0)); s.listen()
    c = socket.create_connection((host, s.getsockname()[1])); p, _ = s.accept(); c.sendall(b"hi"); assert p.recv(9) == b"hi"
print("all", socket.gethostname(), socket.gethostbyname(socket.gethostname()))
P
python3 l.py`, want: "all sandbox 127.0.0.1\n"},
	{
		name: "locks, shared maps and copies", needs: []string{"python3"}, script: `
cat > f.py <<'P'
import fcntl, mmap, os, subprocess, sys
f = open("f", "w+b"); f.write(b"a" * 8192); f.flush()
fcntl.flock(f, fcntl.LOCK_EX)
t = "import fcntl,sys\nf=open('f','r+b')\ntry: fcntl.%s(f, fcntl.LOCK_EX|fcntl.LOCK_NB); print('got')\nexcept OSError as e: print('held', e.errno)"
for kind in ("flock", "lockf"):
    if kind == "lockf": fcntl.lockf(f, fcntl.LOCK_EX)
    print(kind, subprocess.check_output([sys.executable, "-c", t % kind], text=True).strip())
m = mmap.mmap(f.fileno(), 8192, mmap.MAP_SHARED)
if os.fork() == 0: m[4096:4100] = b"kid!"; m.flush(); os._exit(0)
os.wait(); print(m[4096:4100], os.pread(f.fileno(), 4, 4096))
g = open("g", "w+b"); print("copy_file_range", os.copy_file_range(f.fileno(), g.fileno(), 8192, 0, 0), os.pread(g.fileno(), 4, 4096))
os.truncate("f", 100); print("truncated", os.fstat(f.fileno()).st_size)
r, w = os.pipe(); print("pipe", fcntl.fcntl(w, 1031, 1 << 18))
P
python3 f.py; cp --reflink=auto f h && cmp f h && echo same; cat /proc/sys/fs/pipe-max-size`,
		want: "flock held 11\nlockf held 11\nb'kid!' b'kid!'\ncopy_file_range 8192 b'kid!'\ntruncated 100\npipe 262144\nsame\n",
	},
	{name: "terminal", needs: []string{"script"}, script: `script -qec 'stty -isig -echo; stty rows 40 cols 100; stty -a' /dev/null < /dev/null`, want: "-isig"},
}

// TestTools runs ordinary programs inside.
func TestTools(t *testing.T) {
	d := onImages(t)
	info := sandboxtest.Create(t, d, sandbox.Spec{})
	for _, tool := range tools {
		t.Run(tool.name, func(t *testing.T) {
			for _, program := range tool.needs {
				if !insideHas(program) {
					t.Fatalf("%s is not below /usr on this machine; run .ci/packages", program)
				}
			}
			if tool.name == "pnpm" {
				putPnpm(t, d, info.ID)
			}
			folder := "/workspace/" + strings.ReplaceAll(tool.name, " ", "_")
			start := time.Now()
			got := sandboxtest.Shell(t, d, info.ID, "mkdir -p "+folder+" && cd "+folder+" && bash -e <<'COFFERDAM_TOOL'\n"+tool.script+"\nCOFFERDAM_TOOL")
			t.Logf("%v", time.Since(start).Round(time.Millisecond))
			if got.ExitCode != 0 || !strings.Contains(got.Stdout, tool.want) {
				t.Errorf("want %q:\n%s\n%s\ncode %d %s", tool.want, got.Stdout, got.Stderr, got.ExitCode, got.Reason)
			}
		})
	}
}

func insideHas(program string) bool {
	for _, pattern := range []string{"/usr/bin/", "/usr/local/bin/", "/usr/local/go/bin/", "/usr/lib/postgresql/*/bin/"} {
		if found, err := filepath.Glob(pattern + program); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// pnpmVersion is what the test unpacks: pnpm is one file and needs nothing.
const pnpmVersion = "10.20.0"

func putPnpm(t *testing.T, d *Driver, id string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("npm", "pack", "--silent", "pnpm@"+pnpmVersion)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "npm_config_cache="+dir+"/cache", "npm_config_update_notifier=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm pack: %v\n%s", err, out)
	}
	if out, err := exec.Command("gunzip", filepath.Join(dir, "pnpm-"+pnpmVersion+".tgz")).CombinedOutput(); err != nil {
		t.Fatalf("gunzip: %v\n%s", err, out)
	}
	file, err := os.Open(filepath.Join(dir, "pnpm-"+pnpmVersion+".tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := d.Put(t.Context(), id, "/tmp/pnpm", file); err != nil {
		t.Fatal(err)
	}
}

// TestEnvironment looks at what programs find around them.
func TestEnvironment(t *testing.T) {
	d := onImages(t)
	a := sandboxtest.Create(t, d, sandbox.Spec{})
	for _, check := range []struct{ name, script, want string }{
		{"locale", `locale charmap; python3 -c 'import sys,locale; locale.setlocale(locale.LC_ALL,""); print(sys.getfilesystemencoding())'; printf 'ä' | wc -m`, "UTF-8\nutf-8\n1\n"},
		{"time zone", `date -d @0 +%Z; TZ=Europe/Berlin date -d @0 +%H%Z; TZ=America/New_York python3 -c 'import time; print(time.tzname[0])'`, "UTC\n01CET\nEST\n"},
		{"names", `hostname; getent hosts sandbox | awk '{print $1; exit}'; getent hosts localhost >/dev/null && echo localhost`, "sandbox\n"},
		{"user", `id -un; id -gn; getent passwd agent; echo ~; cd; touch x && echo writable; rm x`, "agent\nagent\nagent:x:1000:1000:agent:/home/agent:/bin/bash\n/home/agent\nwritable\n"},
		{"temporary folders", `stat -c '%a %u' /tmp /var/tmp /dev/shm; touch /tmp/x /var/tmp/x /dev/shm/x && rm /tmp/x /var/tmp/x /dev/shm/x && echo writable`, "1777 0\n1777 0\n1777 0\nwritable\n"},
		{"shared memory", `df -B1 --output=size /dev/shm | tail -1 | tr -d ' '; dd if=/dev/zero of=/dev/shm/y bs=1M count=256 status=none && rm /dev/shm/y && echo room`, fmt.Sprintf("%d\nroom\n", sharedMemory(a.Limits.Memory))},
		{"name server", `cat /etc/resolv.conf`, "nameserver " + gatewayIPv4 + "\n"},
		{"authorities", `test -s /etc/ssl/certs/ca-certificates.crt && openssl crl2pkcs7 -nocrl -certfile /etc/ssl/certs/ca-certificates.crt | openssl pkcs7 -print_certs -noout | grep -c subject= | awk '$1>50{print "many"}'`, "many\n"},
		{"core dumps", `ulimit -c; sh -c 'kill -SEGV $$'; echo $?; ls core* 2>/dev/null | wc -l`, "0\n139\n0\n"},
		{"devices", `head -c 4 /dev/urandom | wc -c; echo x > /dev/null; test -c /dev/tty && test -c /dev/full && test -d /dev/pts && test -d /dev/fd && readlink /dev/stdin >/dev/null && echo there`, "4\nthere\n"},
	} {
		t.Run(check.name, func(t *testing.T) {
			got := sandboxtest.Shell(t, d, a.ID, check.script)
			if !strings.Contains(got.Stdout, check.want) {
				t.Errorf("want %q:\n%s\n%s\ncode %d", check.want, got.Stdout, got.Stderr, got.ExitCode)
			}
		})
	}
	t.Run("machine id", func(t *testing.T) {
		b := sandboxtest.Create(t, d, sandbox.Spec{})
		seen := map[string]bool{}
		if host, err := os.ReadFile("/etc/machine-id"); err == nil {
			seen[strings.TrimSpace(string(host))] = true
		}
		for _, id := range []string{a.ID, b.ID} {
			got := strings.TrimSpace(sandboxtest.Shell(t, d, id, "cat /etc/machine-id").Stdout)
			if len(got) != 32 || strings.Trim(got, "0123456789abcdef") != "" || seen[got] {
				t.Errorf("machine-id %q of %s: not a new one", got, id)
			}
			seen[got] = true
		}
	})
	t.Run("en_US", func(t *testing.T) {
		out, err := exec.Command("locale", "-a").Output()
		if err != nil || !strings.Contains(string(out), "en_US.utf8") {
			t.Fatalf("the machine has no en_US locale (%v); run .ci/packages", err)
		}
		got := sandboxtest.Shell(t, d, a.ID, "LC_ALL=en_US.UTF-8 locale charmap")
		if got.Stdout != "UTF-8\n" || got.Stderr != "" {
			t.Errorf("%+v", got)
		}
	})
}

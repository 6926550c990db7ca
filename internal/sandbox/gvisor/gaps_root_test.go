//go:build root

package gvisor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
)

// TestGaps is docs/life-of-a-task.md's list of what doesn't work inside, and how a
// program learns of it: at once, by an error.
func TestGaps(t *testing.T) {
	d := onImages(t)
	info := sandboxtest.Create(t, d, sandbox.Spec{})
	call := func(number int, args string) string {
		return fmt.Sprintf(`python3 -c 'import ctypes; l=ctypes.CDLL(None,use_errno=True); r=l.syscall(%d,%s); print("errno", ctypes.get_errno() if r<0 else 0)'`, number, args)
	}
	for _, gap := range []struct{ name, script, want string }{
		{"io_uring", call(425, `8, ctypes.create_string_buffer(512)`), "errno 38\n"},
		{"perf events", call(298, `ctypes.create_string_buffer(128), 0, -1, -1, 0`), "errno 19\n"},
		{"bpf", call(321, `0, ctypes.create_string_buffer(128), 128`), "errno 1\n"},
		{"userfaultfd", call(323, `0`), "errno 38\n"},
		{"fanotify", call(300, `0, 0`), "errno 38\n"},
		{"kernel modules", call(313, `0, b"", 0`), "errno 1\n"},
		{"raw sockets", `python3 -c 'import socket
try: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
except OSError as e: print("errno", e.errno)'`, "errno 1\n"},
		{"ping", `python3 -c 'import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
try: s.sendto(b"\x08" + bytes(7), ("192.0.2.1", 0)); print("made")
except OSError as e: print("errno", e.errno)'`, "errno 101\n"},
		{"tracing what is no child", `python3 -c 'import os, time, ctypes
if (p := os.fork()) == 0: os.setsid(); time.sleep(1000)
q = os.fork()
if q == 0:
    l = ctypes.CDLL(None, use_errno=True); print("made" if l.ptrace(0x4206, p, 0, 0) == 0 else "errno %d" % ctypes.get_errno(), flush=True); os._exit(0)
os.waitpid(q, 0); os.kill(p, 9)'`, "errno 1\n"},
		{"writing to the toolchains", `touch /usr/x /opt/x 2>&1 | grep -c "Read-only file system"`, "2\n"},
		{"other address families", `python3 -c 'import socket
for family in (socket.AF_VSOCK, socket.AF_ALG, socket.AF_BLUETOOTH):
    try: socket.socket(family, socket.SOCK_STREAM); print("made")
    except OSError as e: print("errno", e.errno)'`, "errno 97\nerrno 97\nerrno 97\n"},
		{"mounts", `mount -t tmpfs x /mnt 2>&1; mount -t overlay o -o lowerdir=/usr,upperdir=/tmp,workdir=/var/tmp /mnt 2>&1; ls -A /mnt`, "mount: /mnt: must be superuser to use mount."},
		{"devices of the host", `ls /dev/kvm /dev/mem /dev/vda 2>&1 | grep -c "No such file"`, "3\n"},
		{"docker", `python3 -c 'import socket
for path in ("/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock"):
    try: socket.socket(socket.AF_UNIX).connect(path); print("made")
    except OSError as e: print("errno", e.errno)'`, "errno 2\nerrno 2\nerrno 2\n"},
		{"reflinks", `cd /workspace; echo x > a; cp --reflink=always a b 2>&1; cp --reflink=auto a c && cat c`, "x\n"},
		{"core dumps", `ulimit -c unlimited 2>&1; ulimit -c`, "0\n"},
	} {
		t.Run(gap.name, func(t *testing.T) {
			got := sandboxtest.Shell(t, d, info.ID, gap.script)
			if !strings.Contains(got.Stdout, gap.want) || strings.Contains(got.Stdout, "made") {
				t.Errorf("want %q:\n%s\n%s", gap.want, got.Stdout, got.Stderr)
			}
		})
	}
	t.Run("namespaces of its own", func(t *testing.T) {
		got := sandboxtest.Shell(t, d, info.ID, `unshare -Ur id -u; cat /proc/self/uid_map | head -1`)
		if !strings.HasPrefix(got.Stdout, "0\n") {
			t.Errorf("%+v", got)
		}
	})
}

// TestHostSocketsCantBeReached tries a host's socket that lies in what a sandbox
// sees, through a view and through an image, and one without a path.
func TestHostSocketsCantBeReached(t *testing.T) {
	path := filepath.Join("/usr/local/share", fmt.Sprintf("cofferdam-test-%d.sock", os.Getpid()))
	abstract := fmt.Sprintf("\x00cofferdam-test-%d", os.Getpid())
	for _, name := range []string{path, abstract} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			if c, err := l.Accept(); err == nil {
				t.Errorf("somebody reached %q", name)
				c.Close()
			}
		}()
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	d := open(t, testConfig(t, testDir(t)))
	info := sandboxtest.Create(t, d, sandbox.Spec{})
	got := sandboxtest.Shell(t, d, info.ID, fmt.Sprintf(`test -S %s && echo seen; python3 -c 'import socket
for name in ("%s", "\0%s"):
    try: socket.socket(socket.AF_UNIX).connect(name); print("reached")
    except OSError as e: print("errno", e.errno)'`, path, path, abstract[1:]))
	if got.Stdout != "seen\nerrno 111\nerrno 111\n" {
		t.Errorf("%+v", got)
	}
}

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// minFree is the least room on the disk that Up starts with.
const minFree = 512 << 20

func checkRoot(what string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return fault(CodeMachine, "cofferdam %s must be run as root, since the worker makes namespaces, mounts and cgroups (the other daemons then drop to users without rights); run it with sudo", what)
}

// checkPrograms makes sure that every program is there and that its user can
// reach it.
func checkPrograms(bin string, u users) error {
	var missing []string
	for _, name := range []string{"cofferdamd", "cofferdam-worker", "cofferdam-gateway", "cofferdam-engine", "cofferdam-guest", "runsc"} {
		info, err := os.Stat(filepath.Join(bin, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fault(CodeMachine, "missing in %s: %s; build them with `make build`, or name their folder with --bin", bin, strings.Join(missing, ", "))
	}
	for _, who := range []owner{u.service, u.gateway} {
		for _, name := range []string{"cofferdamd", "cofferdam-gateway", "cofferdam-engine"} {
			if err := reachable(filepath.Join(bin, name), who); err != nil {
				return err
			}
		}
	}
	return nil
}

// reachable says whether a user without rights may pass through every folder
// of the path and execute, or enter, its end.
func reachable(path string, who owner) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return faultOf(CodeMachine, err, "%s", path)
	}
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return faultOf(CodeMachine, err, "%s", at)
		}
		st := info.Sys().(*syscall.Stat_t)
		bits := st.Mode & 0o1
		switch {
		case int(st.Uid) == who.uid:
			bits = st.Mode & 0o100
		case int(st.Gid) == who.gid:
			bits = st.Mode & 0o010
		}
		if bits == 0 {
			return fault(CodeMachine, "uid %d, which a daemon runs as, can't reach %s because of the mode of %s; put it elsewhere, or allow passing with chmod o+x %s", who.uid, path, at, at)
		}
		if at == "/" {
			return nil
		}
	}
}

// checkMachine looks for what the worker and the gateway will need.
func checkMachine(l Layout) error {
	info, err := os.Stat("/dev/net/tun")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault(CodeMachine, "this machine has no /dev/net/tun, which the sandboxes' network devices are made with; load it with `modprobe tun`, or give the container or VM that device")
	case err != nil:
		return faultOf(CodeMachine, err, "/dev/net/tun")
	case info.Mode()&fs.ModeCharDevice == 0:
		return fault(CodeMachine, "/dev/net/tun is not a device; remove it and load the real one with `modprobe tun`")
	}
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		return faultOf(CodeMachine, err, "/dev/net/tun can't be opened; load the module with `modprobe tun`, or allow the device to this container")
	} else {
		f.Close()
	}
	return checkDisk(l.Data)
}

func checkDisk(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return faultOf(CodeStorage, err, "disk of %s", dir)
	}
	if free := st.Bavail * uint64(st.Bsize); free < minFree {
		return fault(CodeStorage, "the disk of %s has %d MiB left, and %d MiB are the least to start with; make room, or choose another folder with --data", dir, free>>20, minFree>>20)
	}
	if st.Files > 0 && st.Ffree < 10_000 {
		return fault(CodeStorage, "the disk of %s has room for %d more files only (inodes); make room, or choose another folder with --data", dir, st.Ffree)
	}
	return nil
}

// listenAddress checks --listen and gives it a port when it has none.
func listenAddress(listen string, public bool) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fault(CodeInvalid, "--listen %s: not HOST:PORT, such as 127.0.0.1:7070", listen)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", fault(CodeInvalid, "--listen %s: %q is not a port", listen, port)
	}
	ip := net.ParseIP(host)
	if host == "localhost" {
		ip = net.IPv4(127, 0, 0, 1)
		host = "127.0.0.1"
	}
	if host != "" && ip == nil {
		return "", fault(CodeInvalid, "--listen %s: give an address, not a name", listen)
	}
	if !public && (ip == nil || !ip.IsLoopback()) {
		return "", fault(CodeInvalid, "--listen %s: other machines could reach it, and its tokens would travel unencrypted; put a TLS proxy before a loopback address, or say --listen-public if that is what you want", listen)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return "", listenFault(listen, port, err)
	}
	defer l.Close()
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", fmt.Errorf("listen address: %w", err)
	}
	return net.JoinHostPort(host, port), nil
}

func listenFault(listen, port string, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		who := "another process"
		if s := holderOf(port); s != "" {
			who = s
		}
		return fault(CodeMachine, "--listen %s: the address is in use by %s; end that, or choose another port with --listen", listen, who)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fault(CodeMachine, "--listen %s: this machine does not have that address", listen)
	}
	return faultOf(CodeMachine, err, "--listen %s: can't listen there", listen)
}

// holderOf names the process that listens on a TCP port, as far as it can be
// found.
func holderOf(port string) string {
	n, err := strconv.Atoi(port)
	if err != nil {
		return ""
	}
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			// 0A is the state of a socket that listens.
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil || len(inodes) == 0 {
		return ""
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && inodes[to] {
			pid := strings.Split(link, "/")[2]
			exe, _ := os.Readlink("/proc/" + pid + "/exe")
			return fmt.Sprintf("process %s (%s)", pid, filepath.Base(exe))
		}
	}
	return ""
}

// reachURL is the address at which this machine reaches a listener.
func reachURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "http://" + listen
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

package inside

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func kernel() map[string]func(*try) verdict {
	return map[string]func(*try) verdict{
		"kernel.mount":      func(*try) verdict { return refused("mount", unix.Mount("none", "/mnt", "tmpfs", 0, "")) },
		"kernel.mount-proc": func(*try) verdict { return refused("mount", unix.Mount("proc", "/mnt", "proc", 0, "")) },
		"kernel.remount-usr": func(*try) verdict {
			return refused("remount", unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
		},
		"kernel.unmount-usr":      func(*try) verdict { return refused("umount", unix.Unmount("/usr", unix.MNT_DETACH)) },
		"kernel.pivot-root":       func(*try) verdict { return refused("pivot_root", unix.PivotRoot("/", "/mnt")) },
		"kernel.chroot":           func(*try) verdict { return refused("chroot", unix.Chroot("/workspace")) },
		"kernel.become-root":      func(*try) verdict { return becomeRoot() },
		"kernel.setgroups":        func(*try) verdict { return refused("setgroups", unix.Setgroups([]int{0})) },
		"kernel.setuid-programs":  func(*try) verdict { return setuidPrograms() },
		"kernel.capabilities":     func(*try) verdict { return capabilities() },
		"kernel.new-privileges":   func(*try) verdict { return newPrivileges() },
		"kernel.load-module":      func(*try) verdict { return call("init_module", unix.SYS_INIT_MODULE, 0, 0, 0) },
		"kernel.load-module-file": func(*try) verdict { return call("finit_module", unix.SYS_FINIT_MODULE, 0, 0, 0) },
		"kernel.remove-module":    func(*try) verdict { return call("delete_module", unix.SYS_DELETE_MODULE, 0, 0, 0) },
		"kernel.kexec":            func(*try) verdict { return call("kexec_load", unix.SYS_KEXEC_LOAD, 0, 0, 0) },
		"kernel.reboot":           func(*try) verdict { return refused("reboot", unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF)) },
		"kernel.bpf":              func(*try) verdict { return call("bpf", unix.SYS_BPF, 0, attribute(), 72) },
		"kernel.perf": func(*try) verdict {
			return call("perf_event_open", unix.SYS_PERF_EVENT_OPEN, attribute(), 0, ^uintptr(0))
		},
		"kernel.userfaultfd": func(*try) verdict { return call("userfaultfd", unix.SYS_USERFAULTFD, 0, 0, 0) },
		"kernel.io-uring":    func(*try) verdict { return call("io_uring_setup", unix.SYS_IO_URING_SETUP, 1, attribute(), 0) },
		"kernel.open-by-handle": func(*try) verdict {
			return call("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, uintptr(3), attribute(), 0)
		},
		"kernel.fanotify":   func(*try) verdict { return call("fanotify_init", unix.SYS_FANOTIFY_INIT, 0, 0, 0) },
		"kernel.swap":       func(*try) verdict { return call("swapon", unix.SYS_SWAPON, name("/workspace"), 0, 0) },
		"kernel.accounting": func(*try) verdict { return call("acct", unix.SYS_ACCT, name("/tmp/acct"), 0, 0) },
		"kernel.ports":      func(*try) verdict { return call("ioperm", unix.SYS_IOPERM, 0x80, 1, 1) },
		"kernel.iopl":       func(*try) verdict { return call("iopl", unix.SYS_IOPL, 3, 0, 0) },
		"kernel.host-name":  func(*try) verdict { return refused("sethostname", unix.Sethostname([]byte("attack"))) },
		"kernel.clock":      func(*try) verdict { return clock() },
		"kernel.make-device": func(*try) verdict {
			return refused("mknod", unix.Mknod("/tmp/disk", unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0))))
		},
		"kernel.join-namespace": func(*try) verdict { return joinNamespace() },
		"kernel.user-namespace": func(t *try) verdict { return t.userNamespace() },
		"kernel.trace-first":    func(*try) verdict { return refused("ptrace", unix.PtraceSeize(1)) },
		"kernel.end-first":      func(*try) verdict { return refused("kill", unix.Kill(1, unix.SIGKILL)) },
		"kernel.stop-first":     func(*try) verdict { return refused("kill", unix.Kill(1, unix.SIGSTOP)) },
		"kernel.host-process":   func(t *try) verdict { return t.hostProcess() },
		"kernel.raise-limits":   func(*try) verdict { return raiseLimits() },
		"kernel.own-sentry":     func(*try) verdict { return kernelIsOurs() },
	}
}

// refused judges the error of a call that must have failed.
func refused(what string, err error) verdict {
	if err != nil {
		return held("%s: %v", what, err)
	}
	return fell("%s succeeded", what)
}

// call makes a system call that only a refusal may answer: that there is no such
// call or device, or no right to it. Another complaint would be of its arguments.
func call(what string, number, a, b, c uintptr) verdict {
	_, _, errno := unix.Syscall6(number, a, b, c, ^uintptr(0), 0, 0)
	switch errno {
	case 0:
		return fell("%s succeeded", what)
	case unix.EPERM, unix.EACCES, unix.ENOSYS, unix.ENODEV, unix.EOPNOTSUPP:
		return held("%s: %v", what, errno)
	default:
		return fell("%s was not refused, only its arguments were: %v", what, errno)
	}
}

// attribute is 128 zero bytes for a call to read.
func attribute() uintptr {
	b := make([]byte, 4096)
	runtime.KeepAlive(b)
	return uintptr(unsafe.Pointer(&b[0])) //nolint:gosec // G103: an argument of a system call
}

func name(path string) uintptr {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return 0
	}
	return uintptr(unsafe.Pointer(p)) //nolint:gosec // G103: an argument of a system call
}

func becomeRoot() verdict {
	if os.Getuid() == 0 {
		return fell("the check runs as root already")
	}
	for what, f := range map[string]func() error{
		"setuid": func() error { return syscall.Setuid(0) }, "setgid": func() error { return syscall.Setgid(0) }, "setresuid": func() error { return syscall.Setresuid(0, 0, 0) },
	} {
		if err := f(); err == nil {
			return fell("%s(0) succeeded", what)
		}
	}
	return held("setuid, setgid and setresuid of 0 were refused")
}

// setuidPrograms runs what would make it root.
func setuidPrograms() verdict {
	n := 0
	for _, p := range []string{"sudo", "su", "mount", "umount", "newgrp", "passwd", "pkexec", "chsh", "gpasswd"} {
		file, err := exec.LookPath(p)
		if err != nil {
			continue
		}
		n++
		args := map[string][]string{"sudo": {"-n", "id", "-u"}, "su": {"-c", "id -u"}}[p]
		if args == nil {
			continue
		}
		out, err := exec.Command(file, args...).Output() //nolint:gosec // G204: the names are above
		if err == nil && strings.TrimSpace(string(out)) == "0" {
			return fell("%s made it root", file)
		}
	}
	return held("%d programs with the set-user-ID bit gave nothing", n)
}

func status(key string) string {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func capabilities() verdict {
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		value, err := strconv.ParseUint(status(set), 16, 64)
		if err != nil {
			return untried("%s can't be read: %v", set, err)
		}
		if value != 0 {
			return fell("%s is %x", set, value)
		}
	}
	return held("no capability is inherited, permitted, effective or ambient")
}

func newPrivileges() verdict {
	if v := status("NoNewPrivs"); v != "1" {
		return fell("a program may gain privileges: NoNewPrivs is %q", v)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil {
		return fell("no_new_privs could be taken off")
	}
	return held("no_new_privs is set and stays")
}

func clock() verdict {
	var tv unix.Timeval
	if err := unix.Gettimeofday(&tv); err != nil {
		return untried("the time can't be read: %v", err)
	}
	return refused("settimeofday", unix.Settimeofday(&tv))
}

func joinNamespace() verdict {
	kinds := []string{"mnt", "pid", "net", "ipc", "uts"}
	return each(kinds, func(kind string) verdict {
		f, err := os.Open("/proc/1/ns/" + kind)
		if err != nil {
			return held("%v", err)
		}
		defer f.Close()
		return refused("setns "+kind, unix.Setns(int(f.Fd()), 0)) //nolint:gosec // G115: a descriptor
	})
}

// userNamespace becomes root of a namespace of its own and tries what that root
// might do to the machine: its disks, its files, its kernel's settings.
func (t *try) userNamespace() verdict {
	script := `for d in /dev/sda /dev/vda /dev/nvme0n1; do mknod /tmp/d$$ b 8 0 2>/dev/null && head -c 1 /tmp/d$$ 2>/dev/null && echo DISK; done
mount -o remount,rw /usr 2>/dev/null && touch /usr/attack-` + t.plan.Nonce + ` 2>/dev/null && echo USR
for f in ` + strings.Join(t.plan.Files, " ") + `; do cat $f /proc/1/root$f 2>/dev/null; done
echo 1 >/proc/sys/kernel/sysrq 2>/dev/null && echo SYSRQ
echo end`
	out, err := exec.Command("unshare", "-Urm", "sh", "-c", script).CombinedOutput() //nolint:gosec // G204: made of our own plan
	switch text := string(out); {
	case errors.Is(err, exec.ErrNotFound):
		return untried("there is no unshare")
	case strings.Contains(text, "DISK"), strings.Contains(text, "USR"), strings.Contains(text, "SYSRQ"), strings.Contains(text, t.plan.Nonce):
		return fell("as root of its own namespace: %s", text)
	case strings.Contains(text, "end"):
		return held("a namespace of its own gave no disk, no file and no setting of the machine")
	default:
		return held("no namespace of its own: %v %s", err, text)
	}
}

// hostProcess looks for the process outside that began this.
func (t *try) hostProcess() verdict {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", t.plan.Process))
	if err == nil && strings.Contains(string(text), "doctor") {
		return fell("the process %d of the machine is seen", t.plan.Process)
	}
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(all) == 0 {
		return untried("/proc can't be listed: %v", err)
	}
	for _, f := range all {
		if text, err := os.ReadFile(f); err == nil && (strings.Contains(string(text), "runsc") || strings.Contains(string(text), "cofferdamd") || strings.Contains(string(text), "cofferdam-gateway")) {
			return fell("%s is %q", f, text)
		}
	}
	return held("%d processes are seen, none of the machine", len(all))
}

func raiseLimits() verdict {
	for what, id := range map[string]int{"processes": unix.RLIMIT_NPROC, "open files": unix.RLIMIT_NOFILE} {
		var r unix.Rlimit
		if err := unix.Getrlimit(id, &r); err != nil {
			return untried("%s: %v", what, err)
		}
		if r.Max == unix.RLIM_INFINITY {
			return fell("%s: there is no limit", what)
		}
		r.Max++
		if err := unix.Setrlimit(id, &r); err == nil {
			return fell("%s: the limit was raised", what)
		}
	}
	return held("the limits of processes and open files can't be raised")
}

// kernelIsOurs says whether the system calls are served by gVisor.
func kernelIsOurs() verdict {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return untried("uname: %v", err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	if !strings.Contains(release, "gvisor") {
		return fell("the kernel is %s, which may be the machine's", release)
	}
	return held("the kernel is %s", release)
}

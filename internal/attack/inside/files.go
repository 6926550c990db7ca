package inside

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func kernelFiles() map[string]func(*try) verdict {
	return map[string]func(*try) verdict{
		"files.machine":        func(t *try) verdict { return t.reads("") },
		"files.through-first":  func(t *try) verdict { return t.reads("/proc/1/root") },
		"files.through-self":   func(t *try) verdict { return t.reads("/proc/self/root/../..") },
		"files.climb":          func(t *try) verdict { return t.reads("/usr/lib/../../../..") },
		"files.through-folder": func(t *try) verdict { return t.throughFolders() },
		"files.by-link":        func(t *try) verdict { return t.byLink() },
		"files.write-usr":      func(t *try) verdict { return t.writes("/usr", "/usr/bin", "/usr/lib", "/usr/local", "/opt") },
		"files.write-usr-program": func(*try) verdict {
			return overwrites("/usr/bin/env", "/usr/bin/sh", "/usr/bin/git", "/usr/lib/os-release")
		},
		"files.write-first":   func(t *try) verdict { return t.writes("/.cofferdam", "/root", "/etc", "/proc/1") },
		"files.hard-link-usr": func(t *try) verdict { return refused("link", os.Link("/usr/bin/env", "/tmp/env-"+t.plan.Nonce)) },
		"files.disks":         func(*try) verdict { return disks() },
		"files.memory-devices": func(*try) verdict {
			return each([]string{"/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore", "/dev/kmsg", "/proc/kmsg"}, opensDevice)
		},
		"files.other-devices": func(*try) verdict {
			return each([]string{"/dev/kvm", "/dev/vhost-net", "/dev/vsock", "/dev/mapper/control", "/dev/loop-control", "/dev/uinput", "/dev/input/event0", "/dev/dri/card0", "/dev/snd/seq"}, opensDevice)
		},
		"files.proc-settings": func(*try) verdict {
			return overwrites("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/sysrq")
		},
		"files.sysrq": func(*try) verdict { return overwrites("/proc/sysrq-trigger") },
		"files.sys-settings": func(*try) verdict {
			return overwrites("/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/module/printk/parameters/time", "/sys/fs/selinux/enforce")
		},
		"files.cgroup-release": func(*try) verdict { return cgroups() },
		"files.security-keys": func(*try) verdict {
			return each([]string{"/proc/keys", "/sys/kernel/security", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/firmware/efi/efivars"}, lists)
		},
		"files.sockets-of-ours": func(*try) verdict { return socketsOfOurs() },
		"files.mounts-tell":     func(t *try) verdict { return t.mountsTell() },
	}
}

// reads looks for the canaries of the machine beneath a prefix.
func (t *try) reads(prefix string) verdict {
	return each(t.plan.Files, func(f string) verdict {
		text, err := os.ReadFile(prefix + f)
		if err != nil {
			return held("%v", err)
		}
		if strings.Contains(string(text), t.plan.Nonce) {
			return fell("%s%s is the machine's, and was read", prefix, f)
		}
		return held("%s%s is another file", prefix, f)
	})
}

// throughFolders climbs from each folder that is open.
func (t *try) throughFolders() verdict {
	for fd := range 64 {
		for _, up := range []string{"", "../../../../../.."} {
			for _, f := range t.plan.Files {
				n, err := unix.Openat(fd, filepath.Join(up, strings.TrimPrefix(f, "/")), unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					continue
				}
				b := make([]byte, 256)
				got, err := unix.Read(n, b)
				unix.Close(n)
				if err == nil && got > 0 && strings.Contains(string(b[:got]), t.plan.Nonce) {
					return fell("descriptor %d leads to the machine's %s", fd, f)
				}
			}
		}
	}
	return held("no open descriptor leads to the machine's files")
}

func (t *try) byLink() verdict {
	return each(t.plan.Files, func(f string) verdict {
		link := filepath.Join(os.TempDir(), "link-"+t.plan.Nonce+filepath.Base(filepath.Dir(f)))
		if err := os.Symlink(f, link); err != nil {
			return untried("%v", err)
		}
		defer os.Remove(link)
		text, err := os.ReadFile(link)
		if err == nil && strings.Contains(string(text), t.plan.Nonce) {
			return fell("a link led to the machine's %s", f)
		}
		return held("a link to %s: %v", f, err)
	})
}

func (t *try) writes(dirs ...string) verdict {
	return each(dirs, func(d string) verdict {
		file := filepath.Join(d, "attack-"+t.plan.Nonce)
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return held("%v", err)
		}
		f.Close()
		os.Remove(file)
		return fell("%s could be written to", d)
	})
}

// overwrites opens files for writing, and writes nothing.
func overwrites(files ...string) verdict {
	return each(files, func(name string) verdict {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return held("%v", err)
		}
		f.Close()
		return fell("%s could be opened for writing", name)
	})
}

func opensDevice(name string) verdict {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return held("%v", err)
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 1)); err != nil && strings.Contains(name, "net/tun") {
		return held("%s opens and gives nothing: %v", name, err)
	}
	return fell("%s could be opened", name)
}

func lists(name string) verdict {
	if all, err := os.ReadDir(name); err == nil && len(all) > 0 {
		return fell("%s lists %d things", name, len(all))
	}
	if text, err := os.ReadFile(name); err == nil && len(text) > 0 {
		return fell("%s says %q", name, text)
	}
	return held("%s has nothing to see", name)
}

func disks() verdict {
	all, err := filepath.Glob("/dev/*")
	if err != nil || len(all) == 0 {
		return untried("/dev can't be listed: %v", err)
	}
	for _, f := range all {
		var st unix.Stat_t
		if err := unix.Stat(f, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
			return fell("%s is a disk", f)
		}
	}
	return held("none of %d names in /dev is a disk", len(all))
}

// cgroups looks for the file that starts a program on the machine.
func cgroups() verdict {
	var seen []string
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*"} {
		for _, file := range []string{"release_agent", "cgroup.procs", "memory.max", "notify_on_release"} {
			some, _ := filepath.Glob(filepath.Join(dir, file))
			seen = append(seen, some...)
		}
	}
	if len(seen) == 0 {
		return held("no control group is seen")
	}
	return overwrites(seen...)
}

func socketsOfOurs() verdict {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 7 && f[3] == "0A" && f[7] == "0" {
				return fell("a socket of root listens: %s", line)
			}
		}
	}
	return held("no program of the installation listens inside")
}

// mountsTell looks for paths of the machine in what is mounted.
func (t *try) mountsTell() verdict {
	for _, file := range []string{"/proc/mounts", "/proc/self/mountinfo", "/proc/1/mountinfo"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, word := range []string{"/var/lib/cofferdam", "lowerdir=", "upperdir=", "/dev/sd", "/dev/vd", "/dev/nvme", "/overlay2/"} {
			if strings.Contains(string(text), word) {
				return fell("%s has %s", file, word)
			}
		}
	}
	return held("what is mounted names no folder and no disk of the machine")
}

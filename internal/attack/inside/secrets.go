package inside

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"
)

// words are what would authenticate somebody.
func words() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(cfd_[a-z0-9]{16,}|COFFERDAM_TOKEN=.|authorization: *bearer +[a-z0-9]|AWS_SECRET_ACCESS_KEY=.|GITHUB_TOKEN=.|gh[ps]_[a-z0-9]{30}|sk-ant-[a-z0-9]|-----BEGIN [A-Z ]*PRIVATE KEY)`)
}

func secrets() map[string]func(*try) verdict {
	return map[string]func(*try) verdict{
		"secrets.first-environment": func(*try) verdict { return reads1("/proc/1/environ") },
		"secrets.first-threads":     func(*try) verdict { return readsAny("/proc/1/task/*/environ") },
		"secrets.first-memory":      func(*try) verdict { return reads1("/proc/1/mem") },
		"secrets.first-memory-call": func(*try) verdict { return memoryCall() },
		"secrets.first-auxiliary":   func(*try) verdict { return reads1("/proc/1/auxv") },
		"secrets.first-descriptors": func(*try) verdict { return descriptors() },
		"secrets.first-program":     func(*try) verdict { return reads1("/proc/1/exe") },
		"secrets.first-folder":      func(*try) verdict { return lists("/.cofferdam") },
		"secrets.take-descriptor":   func(*try) verdict { return takeDescriptor() },
		"secrets.environments":      func(*try) verdict { return told("/proc/[0-9]*/environ") },
		"secrets.arguments":         func(*try) verdict { return told("/proc/[0-9]*/cmdline") },
		"secrets.usual-places": func(*try) verdict {
			return told("/run/secrets/*", "/var/run/secrets/*/*", "/etc/cofferdam/*", "/root/.ssh/*", "/home/*/.ssh/*", "/home/*/.aws/*", "/home/*/.netrc", "/home/*/.git-credentials", "/home/*/.config/*/*", "/home/*/.docker/*", "/etc/ssl/private/*", "/etc/kubernetes/*")
		},
		"secrets.inherited": func(*try) verdict { return inherited() },
		"secrets.core-dump": func(*try) verdict { return dumps() },
		"secrets.shadow":    func(*try) verdict { return readsHash("/etc/shadow", "/etc/gshadow") },
	}
}

// reads1 reads something of the first process.
func reads1(file string) verdict {
	f, err := os.Open(file)
	if err != nil {
		return held("%v", err)
	}
	defer f.Close()
	b := make([]byte, 64)
	n, err := f.Read(b)
	if n > 0 {
		return fell("%s gave %d bytes", file, n)
	}
	return held("%s: %v", file, err)
}

func readsAny(pattern string) verdict {
	all, _ := filepath.Glob(pattern)
	if len(all) == 0 {
		return held("nothing is at %s", pattern)
	}
	return each(all, reads1)
}

// memoryCall reads the first process's memory without a file.
func memoryCall() verdict {
	b := make([]byte, 8)
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	_, err := unix.ProcessVMReadv(1, local, []unix.RemoteIovec{{Base: 0x400000, Len: len(b)}}, 0)
	return refused("process_vm_readv", err)
}

func descriptors() verdict {
	all, err := os.ReadDir("/proc/1/fd")
	if err != nil {
		return held("%v", err)
	}
	return fell("%d descriptors of the first process are seen", len(all))
}

func takeDescriptor() verdict {
	p, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return held("pidfd_open: %v", err)
	}
	defer unix.Close(p)
	_, err = unix.PidfdGetfd(p, 0, 0)
	return refused("pidfd_getfd", err)
}

// told looks for what authenticates somebody in files.
func told(patterns ...string) verdict {
	n, secret := 0, words()
	for _, p := range patterns {
		all, _ := filepath.Glob(p)
		for _, f := range all {
			text, err := os.ReadFile(f)
			if err != nil {
				continue
			}
			n++
			if found := secret.Find(text); found != nil {
				return fell("%s has something like %.12q…", f, found)
			}
		}
	}
	return held("%d files could be read, and nothing in them authenticates anybody", n)
}

// readsHash looks for passwords.
func readsHash(files ...string) verdict {
	return each(files, func(f string) verdict {
		text, err := os.ReadFile(f)
		if err != nil {
			return held("%v", err)
		}
		if bytes.Contains(text, []byte(":$")) {
			return fell("%s has hashes of passwords", f)
		}
		return held("%s has no password", f)
	})
}

// inherited looks at what descriptors commands are started with.
func inherited() verdict {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return untried("%v", err)
	}
	for _, e := range all {
		var st unix.Stat_t
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil || unix.Fstat(fd, &st) != nil {
			continue
		}
		if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFSOCK && fd > 2 {
			return fell("descriptor %d is a socket that this program did not open", fd)
		}
	}
	return held("no socket is inherited")
}

// dumps looks whether the first process would leave its memory in a file.
func dumps() verdict {
	if err := unix.Kill(1, unix.SIGABRT); err == nil {
		return fell("the first process could be told to dump its memory")
	}
	all, _ := filepath.Glob("/core*")
	if len(all) > 0 {
		return fell("there is %s", all[0])
	}
	return held("the first process can't be told to dump its memory, and no dump is there")
}

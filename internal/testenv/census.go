package testenv

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Process is a process whose arguments or files name this installation.
type Process struct {
	PID  int
	Name string // base name of its first argument
	Args string // joined by spaces
}

// Processes lists the processes that carry the data folder in their arguments.
func (e *Env) Processes() []Process {
	var list []Process
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if err != nil || !bytes.Contains(b, []byte(e.Data)) {
			continue
		}
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		list = append(list, Process{PID: pid, Name: filepath.Base(args[0]), Args: strings.Join(args, " ")})
	}
	return list
}

// Census lists, sorted, the host objects that a run could leave: runsc
// processes of this installation, network namespaces (by inode, over all
// processes and the named ones), mounts, cgroups, network links, listening and
// named sockets, and the folders of sandboxes. Two equal censuses mean that
// nothing was left between them.
func (e *Env) Census() []string {
	var list []string
	for _, p := range e.Processes() {
		switch p.Name {
		case "cofferdam", "cofferdamd", "cofferdam-engine", "cofferdam-worker", "cofferdam-gateway":
			list = append(list, "daemon "+p.Name)
		default:
			list = append(list, "process "+p.Name)
		}
	}
	list = append(list, namespaces()...)
	list = append(list, mounts()...)
	list = append(list, cgroups()...)
	list = append(list, links()...)
	list = append(list, sockets()...)
	for _, pattern := range []string{"worker/sandboxes/*", "worker/runsc/*", "worker/network/*"} {
		found, _ := filepath.Glob(filepath.Join(e.Data, pattern))
		for _, f := range found {
			list = append(list, "file "+f)
		}
	}
	sort.Strings(list)
	return list
}

func namespaces() []string {
	seen := map[string]bool{}
	procs, _ := filepath.Glob("/proc/[0-9]*/ns/*")
	for _, ns := range procs {
		if target, err := os.Readlink(ns); err == nil {
			seen["namespace "+target] = true
		}
	}
	named, _ := filepath.Glob("/run/netns/*")
	for _, n := range named {
		seen["named namespace "+n] = true
	}
	return keys(seen)
}

func mounts() []string {
	var list []string
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 {
			list = append(list, "mount "+f[4])
		}
	}
	return list
}

func cgroups() []string {
	var list []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(name string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			list = append(list, "cgroup "+name)
		}
		return nil
	})
	return list
}

func links() []string {
	var list []string
	all, _ := net.Interfaces()
	for _, i := range all {
		list = append(list, "link "+i.Name)
	}
	return list
}

func sockets() []string {
	var list []string
	if f, err := os.Open("/proc/net/unix"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if fields := strings.Fields(s.Text()); len(fields) == 8 && fields[5] == "01" {
				list = append(list, "socket "+fields[7])
			}
		}
	}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" { // TCP_LISTEN
				// By address only: a daemon that was restarted listens on other ports.
				addr, _, _ := strings.Cut(f[1], ":")
				list = append(list, "listener "+addr)
			}
		}
	}
	return list
}

func keys(m map[string]bool) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	return list
}

// Unchanged waits until nothing is there that was not there before and every
// daemon still is, since the kernel takes a moment to drop a dead process's
// namespaces, and fails the test when it does not become so. What else is gone
// was somebody else's.
func (e *Env) Unchanged(before []string) {
	e.T.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		added, gone := Diff(before, e.Census())
		gone = slices.DeleteFunc(gone, func(s string) bool { return !strings.HasPrefix(s, "daemon ") })
		if len(added)+len(gone) == 0 {
			return
		}
		if time.Now().After(deadline) {
			e.T.Errorf("the machine is not as before: added %q, gone %q", added, gone)
			return
		}
		<-time.After(100 * time.Millisecond)
	}
}

// Diff returns what is in after and not in before, and the other way round.
func Diff(before, after []string) (added, gone []string) {
	count := map[string]int{}
	for _, s := range before {
		count[s]--
	}
	for _, s := range after {
		count[s]++
	}
	for s, n := range count {
		for ; n > 0; n-- {
			added = append(added, s)
		}
		for ; n < 0; n++ {
			gone = append(gone, s)
		}
	}
	sort.Strings(added)
	sort.Strings(gone)
	return added, gone
}

package testenv

import (
	"bytes"
	"encoding/json"
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

// Census lists, sorted, the host objects that a run could leave: processes,
// network namespaces and the others (by inode, over all processes and the named
// ones), mounts, cgroups, network links, loop devices, listening and named
// sockets, open lines of the clean-up ledger, and the folders of sandboxes.
// What another installation or test on the machine owns is left out, where its
// owner can be told (see owners). Two equal censuses mean that nothing was left
// between them.
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
	o := e.owners()
	list = append(list, o.namespaces()...)
	list = append(list, o.mounts()...)
	list = append(list, o.cgroups()...)
	list = append(list, o.loops()...)
	list = append(list, links()...)
	list = append(list, o.sockets()...)
	list = append(list, e.open()...)
	for _, pattern := range []string{"worker/sandboxes/*", "worker/runsc/*", "worker/network/*"} {
		found, _ := filepath.Glob(filepath.Join(e.Data, pattern))
		for _, f := range found {
			list = append(list, "file "+f)
		}
	}
	sort.Strings(list)
	return list
}

// open lists the objects that the ledger says may be there.
func (e *Env) open() []string {
	text, _ := os.ReadFile(filepath.Join(e.Data, "worker", "ledger"))
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var l struct {
			Record struct{ Op, Kind, Name, Sandbox string }
		}
		if json.Unmarshal([]byte(line), &l) != nil {
			continue // the line that is being written
		}
		object := "ledger " + l.Record.Kind + " " + l.Record.Name + " " + l.Record.Sandbox
		if delete(count, object); l.Record.Op == "open" {
			count[object] = 1
		}
	}
	return keys(count)
}

func links() []string {
	var list []string
	all, _ := net.Interfaces()
	for _, i := range all {
		list = append(list, "link "+i.Name)
	}
	return list
}

func keys[V any](m map[string]V) []string {
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

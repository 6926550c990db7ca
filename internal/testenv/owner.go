package testenv

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// owner says whose a process or another host object is.
type owner int

const (
	unknown owner = iota // nothing tells: it counts, lest a leak be overlooked
	ours
	another
)

// owners tells the objects of one installation from those of others that run on
// the machine at the same time. The evidence, in this order: an object that names
// the data folder, or is held by a process that does or descends from one that
// does, is ours; one that names another folder of temporary files, or is held only
// by living processes of others, is another's.
type owners struct {
	data  string
	procs map[int]*process
	held  map[string]owner // what processes hold: "net:[1]", "socket:[1]"
	lived map[string]bool  // the namespaces in which a process is
}

type process struct {
	parent int
	marks  []byte // arguments and environment
	owner  owner
	known  bool
}

func (e *Env) owners() *owners {
	o := &owners{data: e.Data, procs: map[int]*process{}, held: map[string]owner{}, lived: map[string]bool{}}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		dir := "/proc/" + entry.Name()
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // gone meanwhile
		}
		args, _ := os.ReadFile(dir + "/cmdline")
		env, _ := os.ReadFile(dir + "/environ")
		o.procs[pid] = &process{parent: parent(stat), marks: append(args, env...)}
	}
	for pid := range o.procs {
		o.hold(pid)
	}
	return o
}

// parent reads the fourth field of a stat line; the second may hold spaces.
func parent(stat []byte) int {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(string(fields[1]))
	return n
}

// of tells whose the process is.
func (o *owners) of(pid int) owner {
	p := o.procs[pid]
	switch {
	case p == nil || pid <= 1:
		return unknown
	case p.known:
		return p.owner
	}
	p.known = true // Before the parent is asked: a loop of parents, read in mid-change, ends.
	switch {
	case pid == os.Getpid():
		p.owner = another // the test's own servers are no leaks
	case o.mentions(p.marks):
		p.owner = ours
	case o.of(p.parent) == ours:
		p.owner = ours
	case len(p.marks) > 0 && (p.parent > 1 || elsewhere.Match(p.marks)):
		// It descends from something that lives and is not ours, or says where it belongs.
		p.owner = another
	default:
		p.owner = o.of(p.parent)
	}
	return p.owner
}

// elsewhere is a path of temporary files in a process's arguments.
var elsewhere = regexp.MustCompile("/tmp/[A-Za-z0-9]")

// mentions says whether the text names the data folder, and not one whose name
// is longer.
func (o *owners) mentions(text []byte) bool {
	for rest := text; ; {
		i := bytes.Index(rest, []byte(o.data))
		if i < 0 {
			return false
		}
		rest = rest[i+len(o.data):]
		if len(rest) == 0 || !(rest[0] >= '0' && rest[0] <= '9') {
			return true
		}
	}
}

// hold notes what a process holds: its namespaces and sockets.
func (o *owners) hold(pid int) {
	who := o.of(pid)
	dir := "/proc/" + strconv.Itoa(pid)
	paths, _ := filepath.Glob(dir + "/ns/*")
	fds, _ := filepath.Glob(dir + "/fd/*")
	for i, path := range slices.Concat(paths, fds) {
		target, err := os.Readlink(path)
		if err != nil || !strings.HasSuffix(target, "]") {
			continue
		}
		o.lived[target] = o.lived[target] || i < len(paths)
		if old, seen := o.held[target]; !seen || who == ours || (who == unknown && old == another) {
			o.held[target] = who
		}
	}
}

// path tells whose an object with the path is.
func (o *owners) path(path string) owner {
	switch {
	case o.mentions([]byte(path)):
		return ours
	case strings.HasPrefix(path, os.TempDir()+"/"):
		return another
	}
	return unknown
}

func (o *owners) namespaces() []string {
	var list []string
	for object, who := range o.held {
		kind, _, ok := strings.Cut(object, ":[")
		switch {
		case !ok || who == another || kind == "socket" || kind == "pipe" || strings.HasPrefix(kind, "anon_inode"):
		case o.lived[object]:
			list = append(list, "namespace "+object)
		default:
			// By kind only: a worker that was restarted holds another one.
			list = append(list, "namespace held open "+kind)
		}
	}
	named, _ := filepath.Glob("/run/netns/*")
	for _, n := range named {
		list = append(list, "named namespace "+n)
	}
	return list
}

func (o *owners) mounts() []string {
	var list []string
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && o.path(f[4]) != another {
			list = append(list, "mount "+f[4])
		}
	}
	return list
}

// foreign is the name of a cgroup of an installation; its tag is a hash of the
// worker's folder.
var foreign = regexp.MustCompile("/cofferdam-([0-9a-f]{8})-")

func (o *owners) cgroups() []string {
	sum := sha256.Sum256([]byte(filepath.Join(o.data, "worker")))
	tag := hex.EncodeToString(sum[:4])
	var list []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if m := foreign.FindStringSubmatch(name); m != nil && m[1] == tag || m == nil && o.within(name) {
			list = append(list, "cgroup "+name)
		}
		return nil
	})
	return list
}

// within says whether a process of ours is in the cgroup. Only such ones count
// among those that no installation has named: service managers make them too.
func (o *owners) within(cgroup string) bool {
	b, _ := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	for line := range strings.Lines(string(b)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && o.of(pid) == ours {
			return true
		}
	}
	return false
}

// loops lists the loop devices that have a file.
func (o *owners) loops() []string {
	var list []string
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && o.path(strings.TrimSpace(string(b))) != another {
			list = append(list, "device "+strings.TrimSpace(string(b)))
		}
	}
	return list
}

func (o *owners) sockets() []string {
	var list []string
	b, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 8 || f[5] != "01" || o.held["socket:["+f[6]+"]"] == another || o.path(f[7]) == another {
			continue
		}
		list = append(list, "socket "+f[7])
	}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" || o.held["socket:["+f[9]+"]"] == another { // TCP_LISTEN
				continue
			}
			// By address only: a daemon that was restarted listens on other ports.
			addr, _, _ := strings.Cut(f[1], ":")
			list = append(list, "listener "+addr)
		}
	}
	return list
}

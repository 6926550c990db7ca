package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Finding is one thing that was looked at on this machine.
type Finding struct {
	ID      string
	Outcome string // "ok", "warning" or "failed"
	Text    string // what was found and, unless ok, what to do
}

// The outcomes of a finding.
const (
	OK      = "ok"
	Warning = "warning"
	Failed  = "failed"
)

// Exists says whether there is an installation in the data folder.
func (l Layout) Exists() bool {
	info, err := os.Stat(l.path("run"))
	return err == nil && info.IsDir()
}

// Inspect looks at an installation from outside: its processes, folders and
// disk. It changes nothing, and needs no server.
func (l Layout) Inspect() []Finding {
	if !l.Exists() {
		return []Finding{{"local.data", Failed, "there is no installation in " + l.Data + "; start one with `cofferdam up --data " + l.Data + "`"}}
	}
	found := []Finding{l.inspectProcess(supervisorName, "supervisor")}
	for _, name := range order() {
		found = append(found, l.inspectProcess(name, name))
	}
	found = append(found, l.inspectFolders(), finding("local.disk", checkDisk(l.Data), "the disk of "+l.Data+" has room"))
	if os.Geteuid() == 0 {
		found = append(found, finding("local.machine", checkMachine(l), "what sandboxes need of this machine is there"))
	}
	return found
}

func finding(id string, err error, fine string) Finding {
	if err != nil {
		return Finding{id, Failed, err.Error()}
	}
	return Finding{id, OK, fine}
}

func (l Layout) inspectProcess(record, title string) Finding {
	id := "local." + title
	r, ok, err := l.readRecord(record)
	switch {
	case err != nil:
		return Finding{id, Failed, err.Error()}
	case ok && r.Alive():
		return Finding{id, OK, fmt.Sprintf("runs as process %d", r.PID)}
	case record == supervisorName:
		return Finding{id, Failed, "nothing supervises the daemons; run `cofferdam up --data " + l.Data + "`, which also takes over daemons that still run"}
	}
	return Finding{id, Failed, title + " does not run; see " + l.LogFile(record) + ", and run `cofferdam up --data " + l.Data + "`"}
}

// inspectFolders checks that no user sees what is another's.
func (l Layout) inspectFolders() Finding {
	const id = "local.folders"
	owners := map[string]uint32{}
	for _, name := range []string{"log", "worker", "engine", "cofferdamd", "gateway"} {
		info, err := os.Lstat(l.path(name))
		if errors.Is(err, fs.ErrPermission) {
			return Finding{id, Warning, "the folders can't be looked at as this user; run `sudo cofferdam doctor` for that"}
		}
		if err != nil || !info.IsDir() {
			return Finding{id, Failed, "folder " + l.path(name) + " is missing; `cofferdam up` makes it"}
		}
		if mode := info.Mode().Perm(); mode != 0o700 {
			return Finding{id, Failed, fmt.Sprintf("folder %s has mode %04o, and others may look into it; chmod 0700 %s", l.path(name), mode, l.path(name))}
		}
		owners[name] = info.Sys().(*syscall.Stat_t).Uid
	}
	switch {
	case owners["worker"] != 0 || owners["log"] != 0:
		return Finding{id, Failed, "folders worker and log in " + l.Data + " must belong to root; chown them"}
	case owners["cofferdamd"] != owners["engine"]:
		return Finding{id, Failed, "folders cofferdamd and engine in " + l.Data + " must belong to the same user; chown them"}
	case owners["gateway"] == 0 || owners["cofferdamd"] == 0 || owners["gateway"] == owners["cofferdamd"]:
		return Finding{id, Failed, "the folders of the gateway and of cofferdamd must belong to two users, none of them root; stop with `cofferdam down` and chown them"}
	}
	return Finding{id, OK, "each daemon's folder is its own"}
}

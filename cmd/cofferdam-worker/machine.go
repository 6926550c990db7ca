package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/boot"
	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor"
	"github.com/cofferdam/cofferdam/internal/sandbox/ledger"
	"github.com/cofferdam/cofferdam/internal/task"
)

var idPattern = regexp.MustCompile(`^w-[0-9a-f]{16}$`)

// machineID reads the worker's id, made at the first start.
func machineID(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		id := strings.TrimSpace(string(text))
		if !idPattern.MatchString(id) {
			return "", task.Fail(task.InfraStorage, path+" holds no worker id; restore it, or remove it when no sandbox of this machine is in use", nil)
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", task.Fail(task.InfraStorage, "the worker's id can't be read", err)
	}
	id := "w-" + boot.NewID()[:16]
	if err := boot.WriteFile(path, []byte(id+"\n")); err != nil {
		return "", task.Fail(task.InfraStorage, "the worker's id can't be written", err)
	}
	return id, nil
}

// facts says what the machine has. What can't be found out stays zero.
func facts(dir string) link.Machine {
	m := link.Machine{Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	if name, err := os.Hostname(); err == nil {
		m.Host = name
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) == nil {
		m.DiskFree = int64(disk.Bavail) * disk.Bsize
	}
	return m
}

// checks looks whether this machine is fit for sandboxes.
func checks(ctx context.Context, config gvisor.Config) []link.Check {
	var checks []link.Check
	for _, finding := range gvisor.Check(ctx, config) {
		check := link.Check{ID: finding.ID, Outcome: link.CheckOK, Text: "as it should be"}
		if !finding.OK {
			check.Outcome, check.Text = link.CheckFailed, finding.Problem
		}
		checks = append(checks, check)
	}
	return checks
}

// imagesDir is where root images lie; empty: none are made.
func imagesDir(flag, dir string) string {
	switch flag {
	case "":
		return filepath.Join(dir, "images")
	case "off":
		return ""
	}
	return flag
}

// imageChecks tells how far the root images are. Without one a sandbox sees the
// folder itself, which is slower and no fault.
func imageChecks(driver *gvisor.Driver) []link.Check {
	statuses := driver.Images()
	if len(statuses) == 0 {
		return []link.Check{{ID: "sandbox.images", Outcome: link.CheckWarn, Text: "root images are switched off (--images off); sandboxes read the machine's folders through a helper, which is slower"}}
	}
	var checks []link.Check
	for _, status := range statuses {
		check := link.Check{ID: "sandbox.image." + status.Name, Outcome: link.CheckOK, Text: "sandboxes stand on an image of it"}
		if !status.Ready {
			check.Outcome, check.Text = link.CheckWarn, status.Text+"; until then sandboxes read the folder through a helper, which is slower"
		}
		checks = append(checks, check)
	}
	return checks
}

// gapsCheck tells what programs that work outside have to do without.
func gapsCheck() link.Check {
	return link.Check{ID: "sandbox.gaps", Outcome: link.CheckOK, Text: "not inside: " + gvisor.Gaps + "; see docs/life-of-a-task.md, chapter 8"}
}

// recorder is a driver that shows its ledger's open entries.
type recorder interface {
	Entries() []ledger.Entry
}

// mirror gives the ledger's open entries the form in which they go to cofferdamd.
func mirror(driver sandbox.Driver) []link.OpenRecord {
	r, ok := driver.(recorder)
	if !ok {
		return []link.OpenRecord{}
	}
	entries := r.Entries()
	records := make([]link.OpenRecord, 0, len(entries))
	for _, e := range entries {
		records = append(records, link.OpenRecord{Kind: e.Kind, Name: e.Name, Sandbox: e.Sandbox, Opened: e.Opened})
	}
	return records
}

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cofferdam/cofferdam/internal/sandbox"
)

// Audit implements sandbox.Driver. It looks at processes, cgroups, folders, the
// runtime's own state, mounts below the worker's folder and named network
// namespaces; at what is left of an image's probe; and at records that no sandbox of
// this driver explains.
func (d *Driver) Audit(ctx context.Context) ([]sandbox.Leftover, error) {
	known := d.explained()
	found := []sandbox.Leftover{}
	add := func(kind, name, id, detail string) {
		if !known[id] {
			found = append(found, sandbox.Leftover{Kind: kind, Name: name, Sandbox: id, Detail: detail})
		}
	}
	processes, err := d.runscProcesses()
	if err != nil {
		return nil, fmt.Errorf("audit: processes: %w", err)
	}
	for _, p := range processes {
		add("process", fmt.Sprint(p.PID), p.Sandbox, p.Title)
	}
	for id, path := range d.cgroups.all() {
		add("cgroup", path, id, "")
	}
	if err := auditFolders(d.sandboxesDir(), func(name string) { add("folder", filepath.Join(d.sandboxesDir(), name), name, "") }); err != nil {
		return nil, err
	}
	if err := auditFolders(d.runscRoot(), func(name string) {
		add("folder", filepath.Join(d.runscRoot(), name), stateOwner(name), "the runtime's record of a sandbox")
	}); err != nil {
		return nil, err
	}
	if err := errors.Join(d.auditMounts(add), d.auditProbe(add)); err != nil {
		return nil, err
	}
	names, err := filepath.Glob("/run/netns/" + cgroupPrefix + "*")
	if err != nil {
		return nil, fmt.Errorf("audit: namespaces: %w", err)
	}
	for _, name := range names {
		add("namespace", name, strings.TrimPrefix(filepath.Base(name), cgroupPrefix), "")
	}
	return append(found, d.auditRecords()...), ctx.Err()
}

// explained are the ids that the ledger has open records of.
func (d *Driver) explained() map[string]bool {
	known := map[string]bool{}
	for _, entry := range d.ledger.Entries() {
		known[entry.Sandbox] = true
	}
	return known
}

// auditRecords finds open records that belong to no sandbox we hold or make:
// objects that a destroy could not remove.
func (d *Driver) auditRecords() []sandbox.Leftover {
	var found []sandbox.Leftover
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, entry := range d.ledger.Entries() {
		_, held := d.boxes[entry.Sandbox]
		_, busy := d.making[entry.Sandbox]
		if !held && !busy {
			found = append(found, sandbox.Leftover{
				Kind: "record", Name: entry.Name, Sandbox: entry.Sandbox,
				Detail: "a " + entry.Kind + " that could not be removed; it is tried again",
			})
		}
	}
	return found
}

func auditFolders(dir string, add func(name string)) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("audit: folders: %w", err)
	}
	for _, entry := range entries {
		add(entry.Name())
	}
	return nil
}

// stateOwner is the sandbox of a file in the runtime's folder.
func stateOwner(name string) string {
	if id, ok := strings.CutPrefix(name, "runsc-"); ok {
		return strings.TrimSuffix(id, ".sock")
	}
	id, _, _ := strings.Cut(name, "_sandbox:")
	return id
}

// auditMounts finds mounts below our folder: there is never one, because
// everything is mounted inside the sandbox's own kernel.
func (d *Driver) auditMounts(add func(kind, name, id, detail string)) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("audit: mounts: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], d.cfg.Dir+"/") {
			add("mount", fields[4], "", "")
		}
	}
	return nil
}

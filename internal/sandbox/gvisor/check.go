package gvisor

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Finding is one look at the machine: what was looked at and, when it is not
// well, what is wrong and what to do.
type Finding struct {
	ID      string `json:"id"`
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
}

// minFree is the free disk space under which a machine is not fit.
const minFree = 1 << 30

// Check looks whether sandboxes can be made here. It needs no Driver and may be
// run beside one.
func Check(ctx context.Context, cfg Config) []Finding {
	checks := []struct {
		id   string
		look func(context.Context, Config) string
	}{
		{"sandbox.root", checkRoot},
		{"sandbox.folder", func(_ context.Context, cfg Config) string { return problem(checkConfig(cfg)) }},
		{"sandbox.disk", checkDisk},
		{"sandbox.tun", checkTUN},
		{"sandbox.cgroups", checkCgroups},
		{"sandbox.guest", checkGuest},
		{"sandbox.runsc", checkRunsc},
	}
	findings := make([]Finding, 0, len(checks))
	for _, check := range checks {
		text := check.look(ctx, cfg)
		findings = append(findings, Finding{ID: check.id, OK: text == "", Problem: text})
	}
	return findings
}

func problem(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func checkRoot(context.Context, Config) string {
	if os.Geteuid() != 0 {
		return "the worker does not run as root; start it as root (sandboxes need namespaces and cgroups)"
	}
	return ""
}

func checkDisk(_ context.Context, cfg Config) string {
	dir := cfg.Dir
	for {
		var stat unix.Statfs_t
		err := unix.Statfs(dir, &stat)
		if err == nil {
			if free := int64(stat.Bavail) * stat.Bsize; free < minFree {
				return fmt.Sprintf("only %d MB are free for %s; free at least %d MB", free>>20, cfg.Dir, minFree>>20)
			}
			return ""
		}
		if dir == filepath.Dir(dir) {
			return fmt.Sprintf("%s: %v", cfg.Dir, err)
		}
		dir = filepath.Dir(dir)
	}
}

func checkTUN(context.Context, Config) string {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Sprintf("/dev/net/tun can't be opened (%v); load it with modprobe tun, sandboxes with network need it", err)
	}
	unix.Close(fd)
	return ""
}

func checkCgroups(_ context.Context, cfg Config) string {
	groups, err := loadCgroups(cfg.Dir)
	if err != nil {
		return err.Error()
	}
	if missing := groups.missing(); len(missing) > 0 {
		return "cgroup controllers that limits need can't be used: " + strings.Join(missing, "; ")
	}
	return ""
}

func checkGuest(_ context.Context, cfg Config) string {
	file, err := elf.Open(cfg.Guest)
	if err != nil {
		return fmt.Sprintf("the guest program %s can't be read (%v); build it and put it beside the worker", cfg.Guest, err)
	}
	defer file.Close()
	if file.Section(".interp") != nil {
		return fmt.Sprintf("the guest program %s is linked dynamically; build it with CGO_ENABLED=0", cfg.Guest)
	}
	return ""
}

// checkRunsc runs a program under gVisor: that the binary is there, or that a
// device opens, proves nothing.
func checkRunsc(ctx context.Context, cfg Config) string {
	if _, err := os.Stat(cfg.Runsc); err != nil {
		return fmt.Sprintf("runsc is not at %s (%v); build cmd/runsc with CGO_ENABLED=0", cfg.Runsc, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	root, err := os.MkdirTemp("", "runsc-")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(root)
	cmd := exec.CommandContext(ctx, cfg.Runsc, "--root="+root, "--platform="+platform, "--network=none",
		"--gofer-network-namespace=new", "--host-settings=ignore", "--ignore-cgroups", "do", "/bin/true")
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("runsc can't run a program here (%v): %s", err, strings.TrimSpace(string(out)))
	}
	return ""
}

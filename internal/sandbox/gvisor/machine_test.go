package gvisor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/lower"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestFindCgroups(t *testing.T) {
	const one = `25 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw
26 25 0:23 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
27 25 0:24 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
28 25 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`
	c := findCgroups(one)
	if c.v2 != "" || c.v1["memory"] != "/sys/fs/cgroup/memory" || c.v1["cpu"] != "/sys/fs/cgroup/cpu,cpuacct" || len(c.dirs) != 2 {
		t.Errorf("version 1: %+v", c)
	}
	missing := c.missing()
	if !slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, "pids") && strings.Contains(m, "mount -t cgroup") }) {
		t.Errorf("pids is not mounted and this does not say so: %q", missing)
	}
	c = findCgroups("28 25 0:25 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n")
	if c.v2 != "/sys/fs/cgroup" || len(c.dirs) != 1 {
		t.Errorf("version 2: %+v", c)
	}
}

func TestKilledForMemory(t *testing.T) {
	dir := t.TempDir()
	id := "sb-aaaaaaaaaaaaaaaa"
	if err := os.Mkdir(filepath.Join(dir, cgroupPrefix+"0123abcd-"+id), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, version := range []struct {
		c    cgroups
		file string
	}{
		{cgroups{tag: "0123abcd", v2: dir, dirs: []string{dir}}, "memory.events"},
		{cgroups{tag: "0123abcd", v1: map[string]string{"memory": dir}, dirs: []string{dir}}, "memory.oom_control"},
	} {
		for text, want := range map[string]bool{
			"low 0\noom_kill 0\n": false, "oom 1\noom_kill 3\noom_group_kill 0\n": true, "": false,
		} {
			if err := os.WriteFile(filepath.Join(dir, cgroupPrefix+"0123abcd-"+id, version.file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := version.c.killedForMemory(id); got != want {
				t.Errorf("%s %q: %v", version.file, text, got)
			}
		}
	}
}

func TestCheckSpec(t *testing.T) {
	now := time.Now()
	spec, err := checkSpec(sandbox.Spec{ID: "sb-abcdefgh234567ab"}, now)
	if err != nil {
		t.Fatal(err)
	}
	if spec.Limits != task.DefaultLimits().OfSandbox() || !spec.Expires.Equal(now.Add(24*time.Hour)) || spec.Root != "host" {
		t.Errorf("defaults: %+v", spec)
	}
	oci := bundle("group", lower.Folder{Path: "/lower"}, spec, "/proc/1/fd/3")
	if *oci.Linux.Resources.Memory.Limit != spec.Limits.Memory || oci.Linux.Resources.Pids.Limit <= 2*spec.Limits.PIDs ||
		*oci.Linux.Resources.CPU.Quota != 200_000 || oci.Linux.CgroupsPath != "/group" {
		t.Errorf("limits: %+v", oci.Linux.Resources)
	}
	for _, mount := range oci.Mounts {
		if mount.Type == "bind" && !slices.Contains(mount.Options, "ro") {
			t.Errorf("a writable view of the host: %+v", mount)
		}
		for _, never := range []string{"/root", "/home", "/var", "/run", "/etc"} {
			if mount.Source == never {
				t.Errorf("a view of %s", never)
			}
		}
	}
}

func TestProcessIdentity(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := lookProcess(cmd.Process.Pid)
	if err != nil || !p.alive() {
		t.Fatalf("a living process: %+v, %v", p, err)
	}
	if (process{PID: p.PID, Start: p.Start + 1}).alive() {
		t.Error("a later process with the same number is taken for it")
	}
	pidfd, err := p.watch()
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	ended := make(chan bool)
	go func() { ended <- waitEnd(pidfd) }()
	p.kill()
	if !<-ended {
		t.Error("its end was not seen")
	}
	if p.alive() { // It is a zombie now: nobody has waited for it.
		t.Error("a zombie is taken for alive")
	}
	cmd.Wait()
	if _, err := p.watch(); !errors.Is(err, errGone) {
		t.Errorf("watching what is gone: %v", err)
	}
}

func TestReleasedWatchEnds(t *testing.T) {
	p, err := lookProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	pidfd, err := p.watch()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() { ended <- waitEnd(pidfd) }()
	pidfd.Close()
	if <-ended {
		t.Error("a living process is said to have ended")
	}
}

func TestConfigIsChecked(t *testing.T) {
	for dir, want := range map[string]string{
		"/" + strings.Repeat("x", 90): "shorter", "/a,b": "comma", "/a:b": "colon",
	} {
		if err := checkConfig(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v", dir, err)
		}
	}
	if err := checkConfig(Config{Dir: "/var/lib/cofferdam/worker"}); err != nil {
		t.Error(err)
	}
}

func TestCheckSaysWhatIsMissing(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Runsc: "/no/such/runsc", Guest: "/no/such/guest"}
	problems := map[string]string{}
	for _, finding := range Check(t.Context(), cfg) {
		if finding.OK != (finding.Problem == "") {
			t.Errorf("%+v", finding)
		}
		problems[finding.ID] = finding.Problem
	}
	if !strings.Contains(problems["sandbox.runsc"], "build cmd/runsc") || !strings.Contains(problems["sandbox.guest"], "build it") {
		t.Errorf("%q", problems)
	}
}

func TestCgroupsOfOthersAreNotOurs(t *testing.T) {
	dir := t.TempDir()
	c := cgroups{tag: "0123abcd", dirs: []string{dir}}
	for _, name := range []string{
		"cofferdam-0123abcd-sb-aaaaaaaaaaaaaaaa", "cofferdam-ffff0000-sb-bbbbbbbbbbbbbbbb", "cofferdam-sb-cccccccccccccccc", "docker",
	} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := c.all()
	if len(all) != 2 || all["sb-aaaaaaaaaaaaaaaa"] == "" || all["sb-cccccccccccccccc"] == "" {
		t.Errorf("got %v", all)
	}
}

//go:build root

package gvisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// TestGVisorIsProved looks from inside, where another kernel speaks, and from
// outside, where a sentry runs and the command does not.
func TestGVisorIsProved(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	info := sandboxtest.Create(t, d, sandbox.Spec{})
	got := sandboxtest.Root(t, d, info.ID, `dmesg; cat /proc/version`)
	if !strings.Contains(got.Stdout, "Starting gVisor") {
		t.Errorf("the kernel's banner: %q %q", got.Stdout, got.Stderr)
	}
	host, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got.Stdout, strings.TrimSpace(string(host))) {
		t.Error("the host's kernel speaks inside")
	}
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", info.PID))
	if err != nil || !strings.HasPrefix(string(argv), "runsc-sandbox\x00") || !strings.Contains(string(argv), info.ID) {
		t.Errorf("process %d: %q, %v", info.PID, argv, err)
	}
	if info.Kernel != "gvisor systrap" {
		t.Errorf("kernel %q", info.Kernel)
	}
	const mark = "987654.25"
	if _, err := d.Start(t.Context(), info.ID, sandbox.Command{ID: "c", Argv: []string{"sleep", mark}}); err != nil {
		t.Fatal(err)
	}
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if text, err := os.ReadFile(entry); err == nil && strings.HasPrefix(string(text), "sleep\x00"+mark) {
			t.Errorf("the command is a process of the host: %s", entry)
		}
	}
}

// TestDiskIsAFile checks that what is written inside lies in the sandbox's own
// file on the host's disk, and not in memory.
func TestDiskIsAFile(t *testing.T) {
	d := open(t, testConfig(t, testDir(t)))
	info := sandboxtest.Create(t, d, sandbox.Spec{})
	blocks := func() int64 {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", info.PID))
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, fd := range fds {
			target, err := os.Readlink(fd)
			if err != nil || !strings.Contains(target, "runsc-filestore") {
				continue
			}
			var stat unix.Stat_t
			if err := unix.Stat(fd, &stat); err != nil {
				t.Fatal(err)
			}
			sum += stat.Blocks * 512
		}
		return sum
	}
	before := blocks()
	for _, path := range []string{"/workspace", "/home/agent", "/tmp", "/var/tmp"} {
		got := sandboxtest.Shell(t, d, info.ID, "dd if=/dev/urandom of="+path+"/f bs=1M count=8 2>&1")
		if got.ExitCode != 0 {
			t.Errorf("%s: %+v", path, got)
		}
		if after := blocks(); after < before+7<<20 {
			t.Errorf("8 MB written to %s are %d bytes on disk", path, after-before)
		} else {
			before = after
		}
	}
}

// TestRestoreKeepsTheChannel freezes a sandbox to disk and thaws it with the same
// FIFOs: a command goes on and its output is whole.
func TestRestoreKeepsTheChannel(t *testing.T) {
	cfg := testConfig(t, testDir(t))
	d := open(t, cfg)
	info := mustCreate(t, d)
	script := `i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo $i; sleep 0.01; done`
	if _, err := d.Start(t.Context(), info.ID, sandbox.Command{ID: "c", Argv: []string{"sh", "-c", script}}); err != nil {
		t.Fatal(err)
	}
	stream, err := d.Attach(t.Context(), info.ID, "c", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	b, err := d.find(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	flags := d.runscFlags(b, false)
	run := func(command *exec.Cmd) {
		t.Helper()
		if command.Stdin == nil {
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("%q: %v\n%s%s", command.Args, err, out, tail(filepath.Join(b.dir, "runsc.log")))
			}
		} else if err := command.Run(); err != nil {
			t.Fatalf("%q: %v\n%s", command.Args, err, tail(filepath.Join(b.dir, "runsc.log")))
		}
	}
	// Let go first, as a worker that dies does: the end of the old sentry is meant.
	d.mu.Lock()
	delete(d.boxes, info.ID)
	d.mu.Unlock()
	b.release()
	image := filepath.Join(b.dir, "image")
	run(exec.Command(cfg.Runsc, append(flags, "checkpoint", "--image-path", image, info.ID)...))
	run(exec.Command(cfg.Runsc, append(flags, "delete", "--force", info.ID)...))
	restore := exec.Command(cfg.Runsc, append(flags, "restore", "--detach", "--image-path", image,
		"--bundle", filepath.Join(b.dir, "bundle"), "--pid-file", filepath.Join(b.dir, "pid"), info.ID)...)
	if err := b.runWithFIFOs(restore); err != nil {
		t.Fatalf("restore: %v\n%s", err, tail(filepath.Join(b.dir, "runsc.log")))
	}
	r := b.record
	if r.Sentry, r.Kernel, err = d.lookSentry(info.ID); err != nil {
		t.Fatal(err)
	}
	if err := writeRecord(b.dir, r); err != nil {
		t.Fatal(err)
	}
	d.Close()
	d = open(t, cfg)
	got := sandboxtest.Follow(t, d, info.ID, "c", 0)
	var want strings.Builder
	for i := range 60 {
		want.WriteString(strconv.Itoa(i+1) + "\n")
	}
	if got.Stdout != want.String() || got.ExitCode != 0 {
		t.Errorf("after the restore: %+v", got)
	}
	if err := d.Destroy(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, d)
}

// TestCensus compares the machine before and after sandboxes have lived on it.
func TestCensus(t *testing.T) {
	cfg := testConfig(t, testDir(t))
	network := &echoNetwork{taps: map[string]*os.File{}}
	cfg.Network = network
	d := open(t, cfg)
	before := census(t, d)
	for range 3 {
		info := sandboxtest.Create(t, d, sandbox.Spec{Network: true, Limits: task.Limits{Disk: 64 << 20}})
		sandboxtest.Shell(t, d, info.ID, "sleep 1000 & echo x >/workspace/x")
		if during := census(t, d); during["cgroups"] == before["cgroups"] || during["processes"] == before["processes"] {
			t.Error("the census does not see a sandbox")
		}
		if err := d.Destroy(t.Context(), info.ID); err != nil {
			t.Fatal(err)
		}
	}
	after := census(t, d)
	for kind, was := range before {
		if kind == "namespaces" {
			continue // The kernel frees them later; looked at below.
		}
		if after[kind] != was {
			t.Errorf("%s before:\n%s\nafter:\n%s", kind, was, after[kind])
		}
	}
	sandboxtest.Eventually(t, "the namespaces are gone", func() bool { return census(t, d)["namespaces"] == before["namespaces"] })
	wantNothing(t, d)
}

// census lists the machine's objects of the kinds a sandbox is made of. Of those
// that another installation may make at the same moment it takes d's.
func census(t *testing.T, d *Driver) map[string]string {
	t.Helper()
	glob := func(pattern string) string {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(names, "\n")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	links, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for line := range strings.Lines(string(links)) {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, strings.TrimSpace(name))
	}
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for line := range strings.Lines(string(sockets)) {
		if strings.Contains(line, d.runscRoot()) {
			named++
		}
	}
	processes, err := d.runscProcesses()
	if err != nil {
		t.Fatal(err)
	}
	spaces := map[string]bool{}
	for _, p := range processes {
		if space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.PID)); err == nil {
			spaces[space] = true
		}
	}
	return map[string]string{
		"mounts": string(mounts), "links": strings.Join(names, " "), "sockets": strconv.Itoa(named),
		"processes": strconv.Itoa(len(processes)), "namespaces": strconv.Itoa(len(spaces)),
		"cgroups": glob("/sys/fs/cgroup/*/" + d.cgroups.name("*")), "names": glob("/run/netns/*"),
		"run": glob("/run/runsc*") + glob("/tmp/runsc*"),
	}
}

// TestCheckFindsThisMachineFit runs the real probe.
func TestCheckFindsThisMachineFit(t *testing.T) {
	for _, finding := range Check(t.Context(), testConfig(t, testDir(t))) {
		if !finding.OK {
			t.Errorf("%+v", finding)
		}
	}
}

package gvisor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/lower"
	"github.com/cofferdam/cofferdam/internal/task"
)

// guestCapabilities is what the guest, the sandbox's root, may do to the sandbox's
// own kernel: own and reach files, become the workload's user, end its processes.
// No raw sockets, no tracing.
var guestCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
	"CAP_SYS_RESOURCE",
}

// ownCapabilities are the guest's alone: it may also mount, to protect files. What
// it starts may not, whoever that runs as: the bounding set lacks it, and the guest
// gives up handing it on before it starts anything.
// With CAP_SETPCAP it makes the bounding set of a workload's root smaller still.
func ownCapabilities() []string {
	return append([]string{"CAP_SYS_ADMIN", "CAP_SETPCAP"}, guestCapabilities...)
}

// bundle returns the OCI configuration of a sandbox.
func bundle(cgroup string, low lower.Folder, spec sandbox.Spec, nsPath string) *specs.Spec {
	limits := spec.Limits
	namespaces := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
	}
	if nsPath != "" {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: nsPath})
	}
	period := uint64(100_000)
	quota := limits.MilliCPU * int64(period) / 1000
	memory := limits.Memory
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: "sandbox",
		Root:     &specs.Root{Path: low.Path},
		Process: &specs.Process{
			Args: []string{lower.Guest},
			Cwd:  "/",
			Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Capabilities: &specs.LinuxCapabilities{
				Bounding: guestCapabilities, Effective: ownCapabilities(), Permitted: ownCapabilities(),
				Inheritable: []string{"CAP_SYS_ADMIN", "CAP_SETPCAP"}, // How a first process gets what is not in its bounding set.
			},
			NoNewPrivileges: true,
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Hard: openFiles(limits.Files), Soft: openFiles(limits.Files)},
				{Type: "RLIMIT_CORE", Hard: 0, Soft: 0},
			},
		},
		Mounts: append([]specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=0755", "size=65536"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{
				"mode=1777", "nosuid", "nodev", "size=" + strconv.FormatInt(sharedMemory(memory), 10),
			}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro", "nosuid", "noexec", "nodev"}},
		}, low.Views...),
		Linux: &specs.Linux{
			CgroupsPath: "/" + cgroup,
			Namespaces:  namespaces,
			Resources: &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: &memory},
				CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
				Pids:   &specs.LinuxPids{Limit: hostThreads(limits.PIDs)},
			},
		},
	}
}

// openFiles is the guest's own limit; what it starts has the sandbox's.
func openFiles(n int64) uint64 { return uint64(max(n, 1<<16)) }

// hostThreads is the limit of the pids cgroup for n processes inside. It counts
// the sentry's host threads (about 22 idle, about 2 a process), so it stands well
// above; the workload's own limit is RLIMIT_NPROC inside.
func hostThreads(n int64) int64 { return 512 + 4*n }

// sharedMemory is the size of /dev/shm: memory, so a part of the memory limit.
func sharedMemory(memory int64) int64 { return min(memory/2, 1<<30) }

// minimum limits under which a sandbox can't start.
const (
	minMemory = 64 << 20
	minDisk   = 1 << 20
	minPIDs   = 8
	minCPU    = 10
	minInodes = 1000
	minFiles  = 64
)

// checkSpec refuses what can't be made and fills in defaults.
func checkSpec(spec sandbox.Spec, now time.Time) (sandbox.Spec, error) {
	invalid := func(format string, args ...any) error {
		return task.Fail(task.InputInvalid, fmt.Sprintf(format, args...), nil)
	}
	if !sandbox.ValidID(spec.ID) {
		return spec, invalid("sandbox id %q is not sb- and 16 characters of a-z and 2-7", spec.ID)
	}
	if spec.Root == "" {
		spec.Root = "host"
	}
	if spec.Root != "host" {
		return spec, invalid("root %q is unknown; the only kind is host", spec.Root)
	}
	spec.Limits = spec.Limits.WithDefaults()
	if spec.Expires.IsZero() {
		spec.Expires = now.Add(24 * time.Hour)
	}
	for _, limit := range []struct {
		name       string
		value, min int64
	}{
		{"memory", spec.Limits.Memory, minMemory},
		{"disk", spec.Limits.Disk, minDisk},
		{"pids", spec.Limits.PIDs, minPIDs},
		{"milliCPU", spec.Limits.MilliCPU, minCPU},
		{"inodes", spec.Limits.Inodes, minInodes},
		{"files", spec.Limits.Files, minFiles},
	} {
		if limit.value < limit.min {
			return spec, invalid("limit %s is %d; the least is %d", limit.name, limit.value, limit.min)
		}
	}
	return spec, nil
}

package task

import "time"

// Limits bound one sandbox and its commands. Zero means the default of
// DefaultLimits, never "unlimited".
type Limits struct {
	MilliCPU    int64         `json:"milliCPU,omitempty"`    // thousandths of a core
	Memory      int64         `json:"memory,omitempty"`      // bytes, all processes and the sandbox's own kernel
	PIDs        int64         `json:"pids,omitempty"`        // processes of the workload's user
	Disk        int64         `json:"disk,omitempty"`        // bytes written to workspace, HOME, /tmp and the root layer together
	Inodes      int64         `json:"inodes,omitempty"`      // files, folders and links made, all of them together
	Files       int64         `json:"files,omitempty"`       // open files of one process
	Output      int64         `json:"output,omitempty"`      // bytes of output of one command
	Time        time.Duration `json:"time,omitempty"`        // wall time of one command
	Names       int64         `json:"names,omitempty"`       // host names the sandbox may ask for
	Connections int64         `json:"connections,omitempty"` // open at one time
}

// DefaultLimits are the limits of a sandbox whose request names none.
func DefaultLimits() Limits {
	return Limits{
		MilliCPU: 2000, Memory: 4 << 30, PIDs: 4096, Disk: 10 << 30, Inodes: 2_000_000, Files: 65_536,
		Output: 1 << 30, Time: time.Hour, Names: 4096, Connections: 512,
	}
}

// WithDefaults returns l with each zero field set from DefaultLimits.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ to, from *int64 }{
		{&l.MilliCPU, &d.MilliCPU}, {&l.Memory, &d.Memory}, {&l.PIDs, &d.PIDs}, {&l.Disk, &d.Disk}, {&l.Inodes, &d.Inodes},
		{&l.Files, &d.Files}, {&l.Output, &d.Output}, {&l.Names, &d.Names}, {&l.Connections, &d.Connections},
	} {
		if *f.to <= 0 {
			*f.to = *f.from
		}
	}
	if l.Time <= 0 {
		l.Time = d.Time
	}
	return l
}

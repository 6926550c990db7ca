package task

import (
	"cmp"
	"time"
)

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

	// Of what a task leaves; no sandbox knows them.
	Patch     int64 `json:"patch,omitempty"`     // bytes of the patch, and of the bundle
	Kept      int64 `json:"kept,omitempty"`      // bytes of all files kept by globs together
	KeptFiles int64 `json:"keptFiles,omitempty"` // how many files are kept by globs

	// Of what a task may use of models; zero: as much as other budgets leave.
	Tokens   int64 `json:"tokens,omitempty"`
	MicroUSD int64 `json:"microUSD,omitempty"` // millionths of a dollar
}

// DefaultLimits are the limits of a sandbox whose request names none.
func DefaultLimits() Limits {
	return Limits{
		MilliCPU: 2000, Memory: 4 << 30, PIDs: 4096, Disk: 10 << 30, Inodes: 2_000_000, Files: 65_536,
		Output: 1 << 30, Time: time.Hour, Names: 4096, Connections: 512,
		Patch: 64 << 20, Kept: 256 << 20, KeptFiles: 200,
	}
}

// WithDefaults returns l with each zero field of a sandbox set from DefaultLimits.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct{ to, from *int64 }{
		{&l.MilliCPU, &d.MilliCPU},
		{&l.Memory, &d.Memory},
		{&l.PIDs, &d.PIDs},
		{&l.Disk, &d.Disk},
		{&l.Inodes, &d.Inodes},
		{&l.Files, &d.Files},
		{&l.Output, &d.Output},
		{&l.Names, &d.Names},
		{&l.Connections, &d.Connections},
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

// OfOutputs returns the limits of a task's outputs, with the default of each that
// is zero.
func (l Limits) OfOutputs() (patch, kept, files int64) {
	d := DefaultLimits()
	return cmp.Or(max(l.Patch, 0), d.Patch), cmp.Or(max(l.Kept, 0), d.Kept), cmp.Or(max(l.KeptFiles, 0), d.KeptFiles)
}

// OfSandbox is l without what is about a task's outputs and its models.
func (l Limits) OfSandbox() Limits {
	l.Patch, l.Kept, l.KeptFiles, l.Tokens, l.MicroUSD = 0, 0, 0, 0, 0
	return l
}

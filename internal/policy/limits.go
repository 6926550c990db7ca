package policy

import (
	"fmt"
	"regexp"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// limits is what a file says about limits: the values, zero where it is silent,
// and the line of each by its name.
type limits struct {
	task.Limits
	lines map[string]int
}

// limit is one limit by its name in files.
type limit struct {
	name string
	of   func(l *task.Limits) *int64 // nil for time
}

// limitNames are the limits in the order in which they are told.
func limitNames() []limit {
	return []limit{
		{"cpus", func(l *task.Limits) *int64 { return &l.MilliCPU }},
		{"memory", func(l *task.Limits) *int64 { return &l.Memory }},
		{"pids", func(l *task.Limits) *int64 { return &l.PIDs }},
		{"disk", func(l *task.Limits) *int64 { return &l.Disk }},
		{"inodes", func(l *task.Limits) *int64 { return &l.Inodes }},
		{"files", func(l *task.Limits) *int64 { return &l.Files }},
		{"output", func(l *task.Limits) *int64 { return &l.Output }},
		{"time", func(l *task.Limits) *int64 { return (*int64)(&l.Time) }},
		{"names", func(l *task.Limits) *int64 { return &l.Names }},
		{"connections", func(l *task.Limits) *int64 { return &l.Connections }},
		{"patch", func(l *task.Limits) *int64 { return &l.Patch }},
		{"kept", func(l *task.Limits) *int64 { return &l.Kept }},
		{"keptFiles", func(l *task.Limits) *int64 { return &l.KeptFiles }},
		{"tokens", func(l *task.Limits) *int64 { return &l.Tokens }},
		{"usd", func(l *task.Limits) *int64 { return &l.MicroUSD }},
	}
}

// limits reads a mapping of limits.
func (r *reader) limits(n *yaml.Node, path string) limits {
	l := limits{lines: map[string]int{}}
	size := func(to *int64, min int64) func(*yaml.Node, string) {
		return func(n *yaml.Node, p string) { *to = r.size(n, p, min) }
	}
	count := func(to *int64, what string, least, most int64) func(*yaml.Node, string) {
		return func(n *yaml.Node, p string) { *to = r.count(n, p, what, least, most) }
	}
	known := map[string]func(*yaml.Node, string){
		"cpus": func(n *yaml.Node, p string) {
			var cpus float64
			if err := n.Load(&cpus); err != nil || !(cpus >= 0.05 && cpus <= 1024) {
				r.errorf(n, p, "%q is not a number of cores from 0.05 to 1024", n.Value)
				return
			}
			l.MilliCPU = int64(cpus*1000 + 0.5)
		},
		"memory": size(&l.Memory, 64<<20), "disk": size(&l.Disk, 1<<20), "output": size(&l.Output, 1<<10),
		"pids":        count(&l.PIDs, "processes", 8, 1<<20),
		"inodes":      count(&l.Inodes, "files and folders", 64, 1<<30),
		"files":       count(&l.Files, "open files", 32, 1<<20),
		"names":       count(&l.Names, "host names", 1, 1<<16),
		"connections": count(&l.Connections, "connections", 1, 1<<16),
		"patch":       size(&l.Patch, 1<<10), "kept": size(&l.Kept, 1<<10),
		"keptFiles": count(&l.KeptFiles, "kept files", 1, 10_000),
		"tokens":    count(&l.Tokens, "tokens", 1, 1e15),
		"usd":       func(n *yaml.Node, p string) { l.MicroUSD = r.dollars(n, p) },
		"time":      func(n *yaml.Node, p string) { l.Time = r.duration(n, p) },
	}
	for name, read := range known {
		known[name] = func(n *yaml.Node, p string) { l.lines[name] = n.Line; read(n, p) }
	}
	r.fields(n, path, known)
	return l
}

func (r *reader) count(n *yaml.Node, path, what string, least, most int64) int64 {
	var v int64
	if err := n.Load(&v); err != nil || n.Tag != "!!int" || v < least || v > most {
		r.errorf(n, path, "%q is not a number of %s from %d to %d", n.Value, what, least, most)
		return 0
	}
	return v
}

// dollars reads an amount, and gives millionths of it.
func (r *reader) dollars(n *yaml.Node, path string) int64 {
	var v float64
	if err := n.Load(&v); err != nil || !(v >= 0.0001 && v <= 1e9) {
		r.errorf(n, path, "%q is not a number of US dollars from 0.0001 to 1000000000, such as 2.50", n.Value)
		return 0
	}
	return int64(v*1e6 + 0.5)
}

func (r *reader) duration(n *yaml.Node, path string) time.Duration {
	d, err := time.ParseDuration(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode || d < time.Second || d > 30*24*time.Hour {
		r.errorf(n, path, "%q is not a duration from 1s to 720h, such as 30m", n.Value)
		return 0
	}
	return d
}

var sizePattern = regexp.MustCompile(`^([0-9]{1,12})(KiB|MiB|GiB|TiB)$`)

// size reads "512MiB" and its like: binary units only, so that nobody has to
// guess what 1G is.
func (r *reader) size(n *yaml.Node, path string, min int64) int64 {
	m := sizePattern.FindStringSubmatch(n.Value)
	if m == nil {
		r.errorf(n, path, "%q is not a size; write a whole number with KiB, MiB, GiB or TiB", n.Value)
		return 0
	}
	shift := map[string]uint{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[m[2]]
	var v int64
	if _, err := fmt.Sscan(m[1], &v); err != nil || v > (1<<50)>>shift || v<<shift < min {
		r.errorf(n, path, "%q is out of range; at least %d bytes, at most 1024TiB", n.Value, min)
		return 0
	}
	return v << shift
}

// show is a limit's value as a file would say it.
func show(name string, v int64) string {
	switch name {
	case "tokens", "usd":
		if v == 0 {
			return "no limit"
		}
		if name == "usd" {
			return fmt.Sprintf("%g", float64(v)/1e6)
		}
	case "cpus":
		return fmt.Sprintf("%g", float64(v)/1000)
	case "time":
		return time.Duration(v).String()
	case "memory", "disk", "output", "patch", "kept":
		for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
			if shift := 40 - 10*i; v >= 1<<shift && v%(1<<shift) == 0 {
				return fmt.Sprintf("%d%s", v>>shift, unit)
			}
		}
	}
	return fmt.Sprint(v)
}

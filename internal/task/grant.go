package task

import "time"

// Verdict is the answer to one use of a grant. The zero value denies.
type Verdict uint8

// The verdicts.
const (
	Denied  Verdict = 0
	Allowed Verdict = 1
)

// String returns "denied" or "allowed"; anything unknown is denied.
func (v Verdict) String() string {
	if v == Allowed {
		return "allowed"
	}
	return "denied"
}

// Decision answers one use of a grant, with the rule that matched.
type Decision struct {
	Verdict Verdict
	Reason  Reason // empty when allowed
	Rule    string // the rule that matched, such as "setup.network.allow[0]"; empty when none did
	Private bool   // an operator-layer rule allows private, loopback and link-local addresses for this use
}

// Rule allows one host on some ports.
type Rule struct {
	ID      string   `json:"id"`                // where it stands, such as "agent.network.allow[2]"
	Host    string   `json:"host"`              // exact lowercase name without a trailing dot, or a literal IP address
	Ports   []uint16 `json:"ports"`             // never empty; an empty list allows nothing
	Private bool     `json:"private,omitempty"` // set by the operator layer only
}

// Grant is what one stage in one sandbox may reach. It is decided once, by
// policy, and is part of the record. The zero Grant reaches nothing.
type Grant struct {
	Task         string    `json:"task,omitempty"` // empty for a sandbox without a task
	Stage        StageName `json:"stage,omitempty"`
	Sandbox      string    `json:"sandbox"`
	PolicyDigest Digest    `json:"policyDigest,omitempty"`
	Rules        []Rule    `json:"rules,omitempty"`
}

// Limits bound one sandbox and its commands. Zero means the default of
// DefaultLimits, never "unlimited".
type Limits struct {
	MilliCPU int64         `json:"milliCPU,omitempty"` // thousandths of a core
	Memory   int64         `json:"memory,omitempty"`   // bytes, all processes and the sandbox's own kernel
	PIDs     int64         `json:"pids,omitempty"`     // processes of the workload's user
	Disk     int64         `json:"disk,omitempty"`     // bytes written to workspace, HOME, /tmp and the root layer together
	Output   int64         `json:"output,omitempty"`   // bytes of output of one command
	Time     time.Duration `json:"time,omitempty"`     // wall time of one command
}

// DefaultLimits are the limits of a sandbox whose request names none.
func DefaultLimits() Limits {
	return Limits{
		MilliCPU: 2000, Memory: 4 << 30, PIDs: 4096, Disk: 10 << 30,
		Output: 1 << 30, Time: time.Hour,
	}
}

// WithDefaults returns l with each zero field set from DefaultLimits.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	if l.MilliCPU <= 0 {
		l.MilliCPU = d.MilliCPU
	}
	if l.Memory <= 0 {
		l.Memory = d.Memory
	}
	if l.PIDs <= 0 {
		l.PIDs = d.PIDs
	}
	if l.Disk <= 0 {
		l.Disk = d.Disk
	}
	if l.Output <= 0 {
		l.Output = d.Output
	}
	if l.Time <= 0 {
		l.Time = d.Time
	}
	return l
}

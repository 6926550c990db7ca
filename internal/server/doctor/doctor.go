// Package doctor is what the server finds about itself, about its folder, and about
// the workers and what is left over on them.
package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Probe is one thing that doctor asks the server's own side.
type Probe struct {
	ID  string // such as "store"
	Ask func(ctx context.Context) error
	OK  string // what it means that Ask returned nil
	Fix string // what to do when it didn't

	Warn bool // that it did is a warning
}

// Workers asks every worker about itself. Implemented by fleet.
type Workers interface {
	Doctor(ctx context.Context) []fleet.Report
}

// Desk looks for what is wrong. Workers and Log are required.
type Desk struct {
	Probes  []Probe
	Workers Workers
	DataDir string // whose disk is looked at; empty: none
	Log     *slog.Logger
}

// Ask looks also when much is broken: each check stands for itself.
func (d Desk) Ask(ctx context.Context) api.Doctor {
	var checks []api.Check
	for _, p := range d.Probes {
		checks = append(checks, d.probe(ctx, p))
	}
	if d.DataDir != "" {
		checks = append(checks, diskCheck(d.DataDir))
	}
	checks = append(checks, d.workerChecks(ctx)...)
	found := api.Doctor{OK: true, Checks: checks}
	for _, c := range checks {
		if c.Outcome == api.CheckFailed || len(c.Leftovers) > 0 {
			found.OK = false
		}
	}
	return found
}

// probeTime bounds one question of doctor's.
const probeTime = 5 * time.Second

func (d Desk) probe(ctx context.Context, p Probe) api.Check {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := p.Ask(ctx); err != nil {
		d.Log.WarnContext(ctx, "doctor: check failed", "check", p.ID, "error", err.Error())
		outcome := api.CheckFailed
		if p.Warn {
			outcome = api.CheckWarning
		}
		return api.Check{ID: p.ID, Outcome: outcome, Text: problem.Of(err).Detail + "; " + p.Fix}
	}
	return api.Check{ID: p.ID, Outcome: api.CheckOK, Text: p.OK}
}

// Free space below which doctor warns and fails.
const (
	lowDisk   = 2 << 30
	emptyDisk = 256 << 20
)

func diskCheck(dir string) api.Check {
	c := api.Check{ID: "disk", Outcome: api.CheckOK}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		c.Outcome, c.Text = api.CheckFailed, "the data folder can't be looked at: "+err.Error()
		return c
	}
	free := int64(st.Bavail) * st.Bsize
	c.Text = fmt.Sprintf("%d MiB free in the data folder", free>>20)
	switch {
	case free < emptyDisk:
		c.Outcome, c.Text = api.CheckFailed, c.Text+"; make room, or tasks will fail with infra.storage"
	case free < lowDisk:
		c.Outcome, c.Text = api.CheckWarning, c.Text+"; make room soon"
	}
	return c
}

// heldNow counts the sandboxes of a ledger, which is younger than what the worker
// said when it connected.
func heldNow(r fleet.Report) int {
	held := map[string]bool{}
	for _, record := range r.Doctor.Ledger {
		held[record.Sandbox] = true
	}
	return len(held)
}

// workerChecks asks every worker about itself; what it holds beyond its
// sandboxes is a leftover.
func (d Desk) workerChecks(ctx context.Context) []api.Check {
	reports := d.Workers.Doctor(ctx)
	if len(reports) == 0 {
		return []api.Check{{ID: "workers", Outcome: api.CheckFailed, Text: "no worker has connected since the server started; start cofferdam-worker and see its log"}}
	}
	var checks []api.Check
	for _, r := range reports {
		name := "worker." + r.Worker.ID
		if m := r.Worker.Mark; m.State != "" {
			checks = append(checks, markCheck(name, m))
			if m.State == task.WorkerForgotten {
				continue // it is known not to answer
			}
		}
		if r.Err != nil {
			checks = append(checks, api.Check{ID: name, Outcome: api.CheckFailed, Text: problem.Of(r.Err).Detail})
			continue
		}
		checks = append(checks, api.Check{ID: name, Outcome: api.CheckOK, Text: fmt.Sprintf("connected, boot %s, sandboxes: %d", r.Worker.Boot, heldNow(r))})
		if r.Worker.Gateway == "" {
			checks = append(checks, api.Check{
				ID: "gateway." + r.Worker.ID, Outcome: api.CheckFailed,
				Text: "no gateway answers on this machine: sandboxes there reach nothing; see the log of cofferdam-gateway",
			})
		} else {
			checks = append(checks, api.Check{ID: "gateway." + r.Worker.ID, Outcome: api.CheckOK, Text: "epoch " + r.Worker.Gateway})
		}
		for _, c := range r.Doctor.Checks {
			checks = append(checks, api.Check{ID: name + "." + c.ID, Outcome: c.Outcome, Text: c.Text})
		}
		checks = append(checks, leftoverCheck(name, r.Doctor.Leftovers))
	}
	return checks
}

// markCheck tells that a worker is set apart.
func markCheck(name string, m task.WorkerMark) api.Check {
	text := fmt.Sprintf("%s by %s since %s", m.State, m.By, m.At.UTC().Format(time.RFC3339))
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return api.Check{ID: name + ".mark", Outcome: api.CheckWarning, Text: text + "; it takes part again with: cofferdam worker release"}
}

func leftoverCheck(name string, list []sandbox.Leftover) api.Check {
	c := api.Check{ID: name + ".leftovers", Outcome: api.CheckOK, Text: "nothing is left over"}
	for _, l := range list {
		c.Leftovers = append(c.Leftovers, api.Leftover{Kind: l.Kind, Name: l.Name, Sandbox: l.Sandbox, Detail: l.Detail})
	}
	if n := len(list); n > 0 {
		c.Outcome, c.Text = api.CheckFailed, fmt.Sprintf("%d objects that no record explains; remove them, or restart the worker, which removes its own", n)
	}
	return c
}

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxCommands bounds the commands in a sandbox's description: the latest.
const maxCommands = 2000

// trim leaves the latest commands of a description.
func trim(info sandbox.Info, most int) sandbox.Info {
	if extra := len(info.Commands) - most; extra > 0 {
		info.Commands = slices.Clone(info.Commands[extra:])
	}
	return info
}

func (d *Door) find(ctx context.Context, id string) (sandbox.Info, error) {
	infos, err := d.opts.Driver.List(ctx)
	if err != nil {
		return sandbox.Info{}, err
	}
	for _, info := range infos {
		if info.ID == id {
			info.Frozen = d.opts.Frozen.Has(id)
			return info, nil
		}
	}
	return sandbox.Info{}, task.Fail(task.InputNotFound, fmt.Sprintf("no sandbox %s on this worker", id), nil)
}

func (d *Door) info(w http.ResponseWriter, r *http.Request) error {
	info, err := d.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, trim(info, maxCommands))
}

func (d *Door) list(w http.ResponseWriter, r *http.Request) error {
	infos, err := d.opts.Driver.List(r.Context())
	if err != nil {
		return err
	}
	list := link.SandboxList{Sandboxes: make([]sandbox.Info, 0, len(infos))}
	for _, info := range infos {
		info.Commands, info.Frozen = nil, d.opts.Frozen.Has(info.ID)
		list.Sandboxes = append(list.Sandboxes, info)
	}
	return writeJSON(w, http.StatusOK, list)
}

func (d *Door) hello(w http.ResponseWriter, r *http.Request) error {
	var welcome link.Welcome
	if err := read(r, &welcome); err != nil {
		return err
	}
	infos, err := d.opts.Driver.List(r.Context())
	if err != nil {
		return err
	}
	hello := link.Hello{
		ID: d.opts.ID, Boot: d.opts.Boot, Version: d.opts.Version,
		Gateway: d.opts.Egress.Epoch(), Machine: d.opts.Machine(),
		Sandboxes: make([]string, 0, len(infos)), Ledger: d.ledger(),
	}
	for _, info := range infos {
		hello.Sandboxes = append(hello.Sandboxes, info.ID)
		hello.Machine.Committed += info.Limits.WithDefaults().Memory
	}
	return writeJSON(w, http.StatusOK, hello)
}

// maxMirror bounds how much of the ledger one hello carries.
const maxMirror = 2000

func (d *Door) ledger() []link.OpenRecord {
	if d.opts.Ledger == nil {
		return []link.OpenRecord{}
	}
	records := d.opts.Ledger()
	return records[:min(len(records), maxMirror)]
}

func (d *Door) doctor(w http.ResponseWriter, r *http.Request) error {
	report := link.Doctor{Checks: []link.Check{}, Leftovers: []sandbox.Leftover{}, Ledger: d.ledger()}
	gateway := link.Check{ID: "gateway", Outcome: link.CheckOK, Text: "answers, epoch " + d.opts.Egress.Epoch()}
	if d.opts.Egress.Epoch() == "" {
		gateway.Outcome = link.CheckFailed
		gateway.Text = "no gateway answers on this machine: sandboxes reach nothing; see that cofferdam-gateway runs"
	}
	report.Checks = append(report.Checks, gateway)
	leftovers, err := d.opts.Driver.Audit(r.Context())
	if err != nil {
		report.Checks = append(report.Checks, link.Check{ID: "audit", Outcome: link.CheckFailed, Text: "the machine can't be compared with the ledger: " + err.Error()})
	}
	report.Leftovers = append(report.Leftovers, leftovers...)
	if d.opts.Checks != nil {
		report.Checks = append(report.Checks, d.opts.Checks(r.Context())...)
	}
	return writeJSON(w, http.StatusOK, report)
}

// recordsSize bounds the bytes of one page of records.
const recordsSize = link.MaxJSON / 2

func (d *Door) records(w http.ResponseWriter, r *http.Request) error {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		return task.Fail(task.InputInvalid, "after is not a sequence number", err)
	}
	records, err := d.opts.Egress.Records(r.Context(), r.PathValue("id"), after)
	if err != nil {
		return err
	}
	page := struct {
		Records []json.RawMessage `json:"records"`
	}{Records: []json.RawMessage{}}
	size := 0
	for _, record := range records[:min(len(records), link.MaxRecords)] {
		text, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("egress record %d: %w", record.Seq, err)
		}
		if size += len(text); size > recordsSize && len(page.Records) > 0 {
			break
		}
		page.Records = append(page.Records, text)
	}
	return writeJSON(w, http.StatusOK, page)
}

// reconciler is a driver that cleans up after itself: it destroys what has
// expired and tries again what could not be removed.
type reconciler interface {
	Reconcile(ctx context.Context) error
}

// pruner is a way out that forgets records which nobody asks for any more.
type pruner interface {
	Prune(now time.Time) error
}

// Keep destroys expired sandboxes and what is left of half-destroyed ones,
// once every pace, until ctx ends. It needs no control plane.
func (d *Door) Keep(ctx context.Context, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		if err := d.reconcile(ctx, time.Now()); err != nil && ctx.Err() == nil {
			d.opts.Log.Warn("clean-up is not complete; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (d *Door) reconcile(ctx context.Context, now time.Time) error {
	var failed error
	if driver, ok := d.opts.Driver.(reconciler); ok {
		failed = driver.Reconcile(ctx)
	}
	if egress, ok := d.opts.Egress.(pruner); ok {
		failed = errors.Join(failed, egress.Prune(now))
	}
	// Read before the list: a sandbox that is made meanwhile must not lose its notes.
	noted, err := d.epochs.sandboxes()
	if err != nil {
		failed = errors.Join(failed, err)
	}
	infos, err := d.opts.Driver.List(ctx)
	if err != nil {
		return errors.Join(failed, err)
	}
	alive := map[string]bool{}
	for _, info := range infos {
		if !expired(info, now) || d.opts.Frozen.Has(info.ID) {
			alive[info.ID] = true
			continue
		}
		d.opts.Log.Info("sandbox has expired", "sandbox", info.ID)
		if err := d.opts.Driver.Destroy(ctx, info.ID); err != nil {
			failed = errors.Join(failed, fmt.Errorf("sandbox %s: %w", info.ID, err))
			alive[info.ID] = true
			continue
		}
		d.forget(info.ID)
	}
	for _, id := range noted {
		if !alive[id] {
			d.forget(id)
		}
	}
	return failed
}

// expired says whether a sandbox outlived what its request allowed; without a
// time that is a day.
func expired(info sandbox.Info, now time.Time) bool {
	end := info.Expires
	if end.IsZero() {
		end = info.CreatedAt.Add(24 * time.Hour)
	}
	return now.After(end)
}

// DestroyAll destroys every sandbox of this machine but those that are kept as
// evidence.
func (d *Door) DestroyAll(ctx context.Context) error {
	infos, err := d.opts.Driver.List(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, info := range infos {
		if d.opts.Frozen.Has(info.ID) {
			d.opts.Log.Warn("a sandbox that is kept as evidence stays; release it with: cofferdam sandbox rm --evidence", "sandbox", info.ID)
			continue
		}
		if err := d.opts.Driver.Destroy(ctx, info.ID); err != nil {
			failed = errors.Join(failed, fmt.Errorf("sandbox %s: %w", info.ID, err))
			continue
		}
		d.forget(info.ID)
	}
	return failed
}

package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/traffic"
)

// Audit appends to the account that is believed later. Implemented by audit.
type Audit interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
}

// way is the loop's way out, and its record: one as a sandbox has it, under the
// sandbox's name and "/loop".
type way struct {
	*run
	transport Transport
	name      string

	mu   sync.Mutex
	last int64
}

// openWay makes the transport of the job's grant. Its records go on where those
// of a run before ended.
func (r *run) openWay(ctx context.Context) (*way, error) {
	w := &way{run: r, name: r.job.Grant.Sandbox + "/loop"}
	records, err := r.Facts.Egress(ctx, r.job.Task)
	if err != nil {
		return nil, err
	}
	for _, rec := range records {
		if rec.Sandbox == w.name {
			w.last = max(w.last, rec.Seq)
		}
	}
	// A decision must be on record before it is carried out, also when the run is
	// being cut off.
	kept := context.WithoutCancel(ctx)
	w.transport, err = r.Transport(r.job.Grant, func(rec task.EgressRecord) error { return w.record(kept, rec) })
	return w, err
}

// record keeps one record.
func (w *way) record(ctx context.Context, rec task.EgressRecord) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	rec.Seq, rec.Sandbox, rec.Time = w.last+1, w.name, w.Now()
	rec.Task, rec.Stage = w.job.Task, task.Agent
	if err := w.Facts.AddEgress(ctx, w.job.Task, []task.EgressRecord{rec}); err != nil {
		return err
	}
	w.last++
	return nil
}

// collected are the facts of the audit's record, as of a sandbox's.
type collected struct {
	Task    string      `json:"task"`
	Sandbox string      `json:"sandbox"`
	LastSeq int64       `json:"lastSeq"`
	Allowed int         `json:"allowed"`
	Denied  int         `json:"denied"`
	Digest  task.Digest `json:"digest"`
	traffic.Sum
}

// close ends the grant and accounts for all that the way has carried so far.
func (w *way) close(ctx context.Context) error {
	if w.transport == nil {
		return nil
	}
	w.transport.Close()
	records, err := w.Facts.Egress(ctx, w.job.Task)
	if err != nil {
		return err
	}
	facts := collected{Task: w.job.Task, Sandbox: w.name}
	sum := sha256.New()
	lines := json.NewEncoder(sum)
	var tally traffic.Tally
	for _, rec := range records {
		if rec.Sandbox != w.name {
			continue
		}
		if err := lines.Encode(rec); err != nil {
			return err
		}
		facts.LastSeq = max(facts.LastSeq, rec.Seq)
		tally.Add(rec)
		switch {
		case rec.Done:
		case rec.Verdict == task.Allowed.String():
			facts.Allowed++
		default:
			facts.Denied++
		}
	}
	if facts.LastSeq == 0 {
		return nil
	}
	facts.Sum = tally.Sum()
	facts.Digest = task.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil)))
	return w.Audit.Record(ctx, w.job.Task, fmt.Sprintf("egress.collected/%s/%d", w.name, facts.LastSeq), "egress.collected", "control plane", facts)
}

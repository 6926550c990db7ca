package steps

import (
	"context"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// trafficPause is how long nobody looks at the gateway's records while a stage
// runs; where looking takes long, it is this many times as long.
const (
	trafficPause = time.Second
	trafficShare = 20
)

// traffic takes the gateway's records over while a stage runs, so that who
// watches the task sees them at once. What it misses is taken over at the
// stage's end, which is also when they are put on record.
type traffic struct {
	stop context.CancelFunc
	done sync.WaitGroup
}

// watchTraffic begins it, once a run.
func (r *run) watchTraffic(ctx context.Context) {
	if r.traffic != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &traffic{stop: cancel}
	r.traffic = t
	// The run's own fields may change meanwhile.
	taskID, sandbox := r.in.Task, r.row.Sandbox
	t.done.Go(func() { r.followTraffic(ctx, taskID, sandbox) })
}

func (r *run) endTraffic() {
	if r.traffic != nil {
		r.traffic.stop()
		r.traffic.done.Wait()
	}
}

func (w *Work) followTraffic(ctx context.Context, taskID, sandbox string) {
	var seen int64
	timer := time.NewTimer(trafficPause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		from := time.Now()
		records, err := w.Sandboxes.Egress(ctx, sandbox, seen)
		if err == nil && len(records) > 0 {
			if err = w.Facts.AddEgress(ctx, taskID, records); err == nil {
				seen = newest(seen, records)
			}
		}
		if err != nil && ctx.Err() == nil {
			w.Logger.Debug("egress records not followed; the stage's end takes them over", "task", taskID, "sandbox", sandbox, "err", err)
		}
		timer.Reset(max(trafficPause, trafficShare*time.Since(from)))
	}
}

func newest(seen int64, records []task.EgressRecord) int64 {
	for _, r := range records {
		seen = max(seen, r.Seq)
	}
	return seen
}

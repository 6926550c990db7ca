package egress

import (
	"time"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// await sees to it that connections end with the rules that they may pass under.
// The lock is held.
func (w *way) await() {
	if w.ending != nil {
		w.ending.Stop()
		w.ending = nil
	}
	if next := task.NextEnd(w.grant.Rules, time.Now()); next != nil && !w.closed {
		w.ending = time.AfterFunc(time.Until(*next), func() { w.over(*next) })
	}
}

// over cuts what may pass under a rule that ended at the given moment, and has
// what was lent with it forgotten.
func (w *way) over(at time.Time) {
	w.mu.Lock()
	ended := decide.NewIndex(task.Grant{Rules: task.EndedAt(w.grant.Rules, at)})
	cut := w.cutWhere(func(c *connection) bool { return ended.Decide(c.use()).Verdict == task.Allowed })
	lasting := w.grant.Lasting(at)
	w.await()
	w.mu.Unlock()
	w.log.Info("rules ended", "at", at, "cut", len(cut))
	w.gateway.granted(lasting)
	wait(cut)
}

package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

// The time of a command whose tree is stopped stands still.
func TestHeldTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{}
		over := false
		c := &command{mark: 1}
		c.timer = time.AfterFunc(time.Hour, func() { over = true })
		c.held.expires = time.Now().Add(time.Hour)
		time.Sleep(40 * time.Minute)
		for range 2 {
			a.hold(c, true)
			a.hold(c, true) // once more is the same
			time.Sleep(50 * time.Hour)
			a.hold(c, false)
			a.hold(c, false)
			time.Sleep(9 * time.Minute)
		}
		if synctest.Wait(); over {
			t.Fatal("what was held ran out of time")
		}
		time.Sleep(2*time.Minute + time.Second)
		if synctest.Wait(); !over {
			t.Fatal("it has more time than it was given")
		}
		a.hold(c, true)
		a.hold(c, false) // over is over
		time.Sleep(2 * time.Hour)
		if c.held.now {
			t.Error("it is held")
		}
	})
	c := &command{} // without a bound
	c.clock(true)
	if c.held.now {
		t.Error("time that is not bounded was stopped")
	}
}

package loop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
)

// waited is a purse whose task waited for so long.
type waited struct{ d *time.Duration }

func (waited) Await(context.Context, string, string) error    { return nil }
func (w waited) Waited(context.Context, string) time.Duration { return *w.d }

// A job's clock stands still while its task waits for a budget.
func TestClockStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := time.Duration(0)
		l := New(Options{Purse: waited{&d}})
		ctx, cancel := l.clocked(t.Context(), stage.LoopJob{Until: time.Now().Add(time.Hour)})
		defer cancel()
		time.Sleep(50 * time.Minute)
		d = 5 * time.Hour // it waits
		time.Sleep(5 * time.Hour)
		if ctx.Err() != nil {
			t.Fatal("what was waited counts")
		}
		time.Sleep(9 * time.Minute)
		if ctx.Err() != nil {
			t.Fatal("its time was over too early")
		}
		time.Sleep(time.Minute + time.Second)
		if !errors.Is(context.Cause(ctx), errTime) {
			t.Fatal("its time is not over")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		d := time.Duration(0)
		ctx, cancel := New(Options{Purse: waited{&d}}).clocked(t.Context(), stage.LoopJob{Until: time.Now().Add(time.Hour)})
		cancel()
		if errors.Is(context.Cause(ctx), errTime) || ctx.Err() == nil {
			t.Error("it did not end with its run")
		}
	})
}

//go:build soak

package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/testenv"
)

// config is how much is done.
type config struct {
	tasks, parallel int
	life            time.Duration // after which no task is submitted; 0: none
	pause           time.Duration // mean, between kills
	seed            uint64
}

func configure(t *testing.T) config {
	t.Helper()
	number := func(name string, fallback int) int {
		text := os.Getenv(name)
		if text == "" {
			return fallback
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			t.Fatalf("%s=%q: want a number of 0 or more", name, text)
		}
		return n
	}
	c := config{
		tasks: number("COFFERDAM_SOAK_TASKS", 1000), parallel: max(number("COFFERDAM_SOAK_PARALLEL", 6), 1),
		life: time.Duration(number("COFFERDAM_SOAK_MINUTES", 0)) * time.Minute, pause: 5 * time.Second,
		seed: uint64(number("COFFERDAM_SOAK_SEED", int(rand.Uint32()))),
	}
	if text := os.Getenv("COFFERDAM_SOAK_PAUSE"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			t.Fatalf("COFFERDAM_SOAK_PAUSE=%q: want a duration such as 5s", text)
		}
		c.pause = d
	}
	return c
}

// TestSoak is everything: storm, calm, and the look at what is left.
func TestSoak(t *testing.T) {
	c := configure(t)
	t.Logf("%d tasks, %d at once, a kill every %v, COFFERDAM_SOAK_SEED=%d", c.tasks, c.parallel, c.pause, c.seed)
	w := newWorld(t)
	before := w.e.Census()
	started := time.Now()
	storm := c.tasks * 7 / 10

	l := &load{world: w, started: started, life: c.life}
	kills := newStorm(w.e, rand.New(rand.NewPCG(c.seed, 1)), c.pause)
	done := l.start(c, 0, storm)
	sampled := make(chan series)
	go func() { sampled <- l.sample(t, done) }()
	kills.rage(done)
	<-sampled // of many processes each: told, not judged
	t.Logf("calm: kills so far %v", kills.count)
	calm := l.sample(t, l.start(c, storm, c.tasks))

	t.Logf("%d tasks in %v (%d of them in the storm); kills: %v; endings: %v", l.ended.Load(), time.Since(started).Round(time.Second), storm, kills.count, l.endings())
	calm.judge(t)
	w.judgeTasks(t, l.work())
	w.judgeReceipts(t, l.work())
	w.settle(t, before)
	w.judgeDisk(t, l.work())
	w.e.Down()
	w.judgeDatabases(t)
}

// load submits tasks, a few at a time, and keeps what became of them.
type load struct {
	world   *world
	started time.Time
	life    time.Duration
	ended   atomic.Int64

	mu   sync.Mutex
	done []*job
}

// start submits the jobs from and below to; the channel is closed when the last
// of them has ended.
func (l *load) start(c config, from, to int) <-chan struct{} {
	next := make(chan int)
	go func() {
		defer close(next)
		for i := from; i < to && (l.life == 0 || time.Since(l.started) < l.life); i++ {
			next <- i
		}
	}()
	var wg sync.WaitGroup
	for range c.parallel {
		wg.Go(func() {
			for i := range next {
				j := newJob(i, rand.New(rand.NewPCG(c.seed, uint64(i)+2)))
				j.run(l.world)
				l.mu.Lock()
				l.done = append(l.done, j)
				l.mu.Unlock()
				l.ended.Add(1)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	return done
}

func (l *load) work() []*job {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*job(nil), l.done...)
}

// endings counts the tasks by kind and by what they ended as.
func (l *load) endings() map[string]int {
	count := map[string]int{}
	for _, j := range l.work() {
		count[fmt.Sprintf("%s: %s %s", j.kind, j.task.State, j.task.Reason)]++
	}
	return count
}

// settle waits until the platform has cleaned up and is content.
func (w *world) settle(t *testing.T, before []string) {
	t.Helper()
	var said string
	testenv.Until(t, 3*time.Minute, "doctor to be content", func() bool {
		out, err := w.e.CLI("doctor", "--data", w.e.Data)
		if said != out {
			said = out
		}
		return err == nil
	})
	w.e.Unchanged(before)
}

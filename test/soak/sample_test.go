//go:build soak

package soak

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/testenv"
)

// point is the memory of one daemon when some tasks had ended.
type point struct {
	tasks int64
	rss   float64 // MiB
}

// series are the points of each daemon.
type series map[string][]point

// sample looks at the daemons until done is closed.
func sample(e *testenv.Env, ended *atomic.Int64, done <-chan struct{}) series {
	s := series{}
	for {
		for _, daemon := range testenv.Daemons() {
			boot, err := e.Boot(daemon)
			if err != nil {
				continue
			}
			if rss := resident(boot.PID); rss > 0 {
				s[daemon] = append(s[daemon], point{ended.Load(), rss})
			}
		}
		select {
		case <-done:
			return s
		case <-time.After(time.Second):
		}
	}
}

// resident is a process's anonymous memory in MiB: mapped files are the
// kernel's to take back.
func resident(pid int) float64 {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}

// judge fails the test for a daemon whose memory grows over the second half of
// the calm: by more than 64 KiB a task as the median of all slopes says, and by
// more than a quarter of itself, which a collector's rhythm stays below.
func (s series) judge(t *testing.T) {
	t.Helper()
	for _, daemon := range testenv.Daemons() {
		points := s[daemon]
		half := points[len(points)/2:]
		if len(half) < 10 {
			t.Logf("memory of %s: %d points are too few to tell a slope", daemon, len(half))
			continue
		}
		slope := slope(half)
		tasks := float64(half[len(half)-1].tasks - half[0].tasks)
		grown := slope * tasks
		t.Logf("memory of %s: %.1f MiB at first, %.1f at the end, %.1f at most; over the last %.0f tasks %+.1f KiB a task", daemon,
			points[0].rss, points[len(points)-1].rss, most(points), tasks, slope*1024)
		if slope > 64.0/1024 && grown > half[0].rss/4 {
			t.Errorf("the memory of %s grows: by %.1f MiB over %.0f tasks from %.1f MiB", daemon, grown, tasks, half[0].rss)
		}
	}
}

func most(points []point) float64 {
	return slices.MaxFunc(points, func(a, b point) int { return int(a.rss*1024) - int(b.rss*1024) }).rss
}

// slope is the median of the slopes between all points, in MiB a task (Theil and
// Sen): a few peaks don't move it.
func slope(points []point) float64 {
	var all []float64
	for i, a := range points {
		for _, b := range points[i+1:] {
			if b.tasks > a.tasks {
				all = append(all, (b.rss-a.rss)/float64(b.tasks-a.tasks))
			}
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// size says how much is below a folder, for people.
func size(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

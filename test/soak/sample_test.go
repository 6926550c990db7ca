//go:build soak

package soak

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
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

// sample looks at the daemons until done is closed, and logs what they have
// every twenty tasks: in the storm, too, where each line may be of another
// process.
func (l *load) sample(t *testing.T, done <-chan struct{}) series {
	s, told := series{}, int64(-20)
	for {
		ended := l.ended.Load()
		var line strings.Builder
		for _, daemon := range testenv.Daemons() {
			boot, err := l.world.e.Boot(daemon)
			if err != nil {
				continue
			}
			if rss := resident(boot.PID); rss > 0 {
				s[daemon] = append(s[daemon], point{ended, rss})
				fmt.Fprintf(&line, " %s %.1f", daemon, rss)
			}
		}
		if ended >= told+20 {
			told = ended
			t.Logf("%d tasks ended after %v; MiB:%s", ended, time.Since(l.started).Round(time.Second), line.String())
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

// judge fails the test for a daemon whose memory is not flat over the second
// half of the calm, when its caches are full. It grows when the median of all
// slopes says so (by a sixth of itself and 8 MiB over that half, which a
// collector's rhythm stays below) and when the last third of the calm stands
// above the second one by as much.
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
		second, last := median(points[len(points)/3:len(points)*2/3]), median(points[len(points)*2/3:])
		t.Logf("memory of %s: %.1f MiB at first, %.1f at the end, %.1f at most; median of the second third %.1f, of the last %.1f; over the last %.0f tasks %+.1f KiB a task",
			daemon, points[0].rss, points[len(points)-1].rss, most(points), second, last, tasks, slope*1024)
		allowed := half[0].rss/6 + 8
		if slope*tasks > allowed {
			t.Errorf("the memory of %s grows: by %.1f MiB over %.0f tasks from %.1f MiB", daemon, slope*tasks, tasks, half[0].rss)
		}
		if last > second+allowed {
			t.Errorf("the memory of %s grows: from %.1f to %.1f MiB between the thirds", daemon, second, last)
		}
	}
}

func median(points []point) float64 {
	all := make([]float64, len(points))
	for i, p := range points {
		all[i] = p.rss
	}
	slices.Sort(all)
	return all[len(all)/2]
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

//go:build soak

package soak

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cofferdam/cofferdam/internal/testenv"
)

// storm kills things at random.
type storm struct {
	e     *testenv.Env
	r     *rand.Rand
	pause time.Duration
	count map[string]int
}

func newStorm(e *testenv.Env, r *rand.Rand, pause time.Duration) *storm {
	return &storm{e: e, r: r, pause: pause, count: map[string]int{}}
}

// rage kills until done is closed. It ends with every daemon alive.
func (s *storm) rage(done <-chan struct{}) {
	victims := []string{"cofferdamd", "worker", "gateway", "engine", "supervisor", "sentry", "sentry", "gofer"}
	for {
		select {
		case <-done:
			return
		case <-time.After(s.pause/2 + time.Duration(s.r.Int64N(int64(s.pause)))):
		}
		victim := victims[s.r.IntN(len(victims))]
		switch victim {
		case "supervisor":
			s.supervisor()
		case "sentry", "gofer":
			if !s.sandbox("runsc-" + map[string]string{"sentry": "sandbox", "gofer": "gofer"}[victim]) {
				continue
			}
		default:
			s.e.Reborn(victim, s.e.Kill(victim))
		}
		s.count[victim]++
	}
}

// supervisor kills `cofferdam up`, and the daemons end with it.
func (s *storm) supervisor() {
	old, err := s.e.Boot("cofferdamd")
	if err != nil {
		s.e.T.Fatal(err)
	}
	pid := s.e.KillSupervisor()
	testenv.Until(s.e.T, 3*time.Minute, "the supervisor to be gone", func() bool { return dead(pid) })
	s.e.Up()
	s.e.Reborn("cofferdamd", old)
}

// dead says that nothing is left of the process, its files and locks included:
// they are closed after its arguments have gone and before it is a zombie.
func dead(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// sandbox kills one process of one sandbox, when there is one.
func (s *storm) sandbox(name string) bool {
	var alive []int
	for _, p := range s.e.Processes() {
		if strings.HasPrefix(p.Name, name) {
			alive = append(alive, p.PID)
		}
	}
	if len(alive) == 0 {
		return false
	}
	pid := alive[s.r.IntN(len(alive))]
	// It may have ended meanwhile; a pid is not used again so soon.
	args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || !strings.Contains(string(args), s.e.Data) {
		return false
	}
	return syscall.Kill(pid, syscall.SIGKILL) == nil
}

package agent

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// stopWithin is how long processes may take to stop.
const stopWithin = 10 * time.Second

// errFrozen is why nothing is started any more.
var errFrozen = errors.New("the sandbox is frozen")

// freezeAll stops every process but this one, for good: from here on nothing is
// started, ended or told to go on, and transfers that run are cut.
func (a *Agent) freezeAll() *guest.Error {
	if !a.init {
		return guest.Errorf(guest.ReasonInternal, "only a sandbox's first process can freeze it")
	}
	a.mu.Lock()
	a.frozen.Store(true)
	for id, f := range a.flows {
		f.cut()
		delete(a.flows, id)
	}
	a.mu.Unlock()
	// A process that is being born belongs to us until it runs its program.
	a.procs.Lock()
	defer a.procs.Unlock()
	for until := time.Now().Add(stopWithin); ; pause(poll) {
		_ = unix.Kill(-1, unix.SIGSTOP) // ESRCH: there is none
		running := 0
		for _, pid := range processes() {
			if state, ok := stateOf(pid); ok && state != 'T' && state != 'Z' && state != 'X' {
				running++
			}
		}
		if running == 0 {
			return nil
		}
		if time.Now().After(until) {
			return guest.Errorf(guest.ReasonInternal, "%d processes of the sandbox don't stop", running)
		}
	}
}

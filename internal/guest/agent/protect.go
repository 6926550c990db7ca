package agent

import (
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent/protect"
)

// keepOwn clears the inheritable capabilities of every thread, so that what the
// agent starts, also as root, does not get the one that it alone has: to mount.
func keepOwn(caps [2]unix.CapUserData) error {
	if caps[0].Inheritable == 0 && caps[1].Inheritable == 0 {
		return nil
	}
	caps[0].Inheritable, caps[1].Inheritable = 0, 0
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&caps[0])), 0) //nolint:gosec // the call takes addresses; both stand on this stack until it returns
	if errno != 0 {
		return fmt.Errorf("keep the own capabilities from others: %w", errno)
	}
	return nil
}

// protection is what became of the one Protect of a sandbox's life.
type protection struct {
	mu      sync.Mutex
	asked   *guest.Protection // nil: none yet
	done    guest.Protected
	refused *guest.Error
}

// aloneWithin is how long processes that were killed may take to be gone.
const aloneWithin = 10 * time.Second

// protect takes rights on paths away from the workload, once. Asked again, as
// after a worker's death, it tells what became of it and ends nothing.
func (a *Agent) protect(p guest.Protection) guest.Answer {
	s := &a.protection
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != nil {
		if !reflect.DeepEqual(*s.asked, p) {
			return guest.Answer{Error: guest.Errorf(guest.ReasonInvalid, "the workspace is protected already, by other rules")}
		}
		done := s.done
		return guest.Answer{Error: s.refused, Protected: &done}
	}
	if refused := a.endAll(); refused != nil {
		return guest.Answer{Error: refused} // Nothing was done; it may be asked again.
	}
	s.asked = &p
	done, err := protect.Apply(protect.Place{
		Workspace: filepath.Join(a.opts.Root, a.opts.Workspace), Private: filepath.Join(a.opts.Root, "/.cofferdam"), Owner: agentUID,
	}, p)
	s.done, s.refused = done, refusal(err)
	return guest.Answer{Error: s.refused, Protected: &done}
}

// endAll ends every process but the first: what has a file open, mapped or a
// folder held could write past any protection.
func (a *Agent) endAll() *guest.Error {
	if !a.init {
		return guest.Errorf(guest.ReasonInternal, "only a sandbox's first process can protect its workspace")
	}
	for until := time.Now().Add(aloneWithin); ; pause(poll) {
		if refused := a.shutdown(); refused != nil {
			return refused
		}
		living := 0
		for _, pid := range processes() {
			if state, ok := stateOf(pid); ok && state != 'Z' && state != 'X' {
				living++
			}
		}
		if living == 0 {
			return nil
		}
		if time.Now().After(until) {
			return guest.Errorf(guest.ReasonInternal, "%d processes of the sandbox don't end", living)
		}
	}
}

// unreal adds to exclude what stands for absent paths: it is nothing that the
// workload left.
func (a *Agent) unreal(name string, exclude []string) []string {
	s := &a.protection
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.done.Placeholders) == 0 {
		return exclude
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return exclude
	}
	exclude = append([]string(nil), exclude...)
	for _, p := range s.done.Placeholders {
		at := path.Join(a.opts.Root, a.opts.Workspace, p)
		if rel, ok := strings.CutPrefix(at, strings.TrimSuffix(real, "/")+"/"); ok {
			exclude = append(exclude, rel)
		}
	}
	return exclude
}

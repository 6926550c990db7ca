package supervise

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Stop says how Down is to work.
type Stop struct {
	Data          string
	KeepSandboxes bool     // leave the sandboxes as they are, to be adopted by the next Up
	Bin           string   // folder of the programs, should a worker have to be started to clean up; empty: that of this executable
	Hold          []string // see Options
	Log           *slog.Logger
}

// Stopped is what Down did.
type Stopped struct {
	Running   bool     `json:"running"`   // there was something to stop
	Ended     []string `json:"ended"`     // programs that Down itself ended, since their supervisor was gone
	Sandboxes []string `json:"sandboxes"` // that were kept
	Evidence  []string `json:"evidence"`  // that are kept as evidence, whatever was asked
}

// Down stops an installation and returns when all of its processes are gone:
// through its supervisor, or by the programs' records when that was killed.
func Down(ctx context.Context, o Stop) (Stopped, error) {
	none := Stopped{Ended: []string{}, Sandboxes: []string{}, Evidence: []string{}}
	if err := checkRoot("down"); err != nil {
		return none, err
	}
	l, err := NewLayout(o.Data)
	if err != nil {
		return none, err
	}
	if _, err := os.Stat(l.path("run")); err != nil {
		return none, faultOf(CodeNotFound, err, "there is no installation in %s; name its folder with --data", l.Data)
	}
	done := none
	unlock, asked, err := l.takeFromSupervisor(ctx, !o.KeepSandboxes)
	if err != nil {
		return none, err
	}
	defer unlock()
	ended, err := l.endPrograms(!o.KeepSandboxes)
	if err != nil {
		return none, err
	}
	done.Running = asked || len(ended) > 0
	done.Ended = append(done.Ended, ended...)
	l.dropRecord(supervisorName)
	done.Evidence = append(done.Evidence, l.frozen()...)
	if o.KeepSandboxes {
		done.Sandboxes = append(done.Sandboxes, l.sandboxes()...)
		return done, nil
	}
	return done, l.drainLeft(ctx, o)
}

// drainLeft destroys the sandboxes that were left because no worker was alive
// to be asked: a worker is started for that alone.
func (l Layout) drainLeft(ctx context.Context, o Stop) error {
	if len(l.drainable()) == 0 {
		return nil
	}
	bin, err := binFolder(o.Bin)
	if err != nil {
		return err
	}
	if err := l.markStop(); err != nil {
		return err
	}
	// Nothing answers at the URL; a worker needs no server to clean up.
	c := newChild(workerProgram(l, bin, "http://127.0.0.1:7070", "off"), l, bin, o.Hold, o.Log)
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	switch err := c.start(limited); {
	case err == nil:
		c.end()
	case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if left := l.drainable(); len(left) > 0 {
		return fault(CodeMachine, "these sandboxes could not be removed: %s; see %s, then run `cofferdam up --data %s` and `cofferdam doctor`", strings.Join(left, ", "), l.LogFile(workerName), l.Data)
	}
	return nil
}

// takeFromSupervisor ends the supervisor, when there is one, and returns with
// the lock.
func (l Layout) takeFromSupervisor(ctx context.Context, drain bool) (unlock func(), asked bool, err error) {
	deadline := time.Now().Add(4*grace + drainGrace)
	for {
		unlock, locked, err := l.lock()
		if err != nil || locked {
			return unlock, asked, err
		}
		if time.Now().After(deadline) {
			return nil, asked, fault(CodeMachine, "the installation in %s does not stop; see %s", l.Data, l.LogFile("up"))
		}
		r, ok, err := l.readRecord(supervisorName)
		if err != nil {
			return nil, asked, err
		}
		if ok && !asked {
			if asked, err = l.askSupervisor(r, drain); err != nil {
				return nil, asked, err
			}
		}
		if err := pauseFor(ctx, 20*time.Millisecond); err != nil {
			return nil, asked, err
		}
	}
}

func (l Layout) askSupervisor(r Record, drain bool) (bool, error) {
	p, ok, err := r.open()
	if err != nil || !ok {
		return false, err
	}
	defer p.close()
	if drain {
		if err := l.markStop(); err != nil {
			return false, err
		}
	}
	return true, p.signal(unix.SIGTERM)
}

// endPrograms ends the programs that their records name, the last started
// first. It needs the lock.
func (l Layout) endPrograms(drain bool) ([]string, error) {
	var ended []string
	for _, name := range slices.Backward(order()) {
		r, ok, err := l.readRecord(name)
		if err != nil {
			return ended, err
		}
		if !ok {
			continue
		}
		p, alive, err := r.open()
		if err != nil {
			return ended, err
		}
		if alive {
			wait := grace
			if drain && name == workerName {
				wait = drainGrace
				err = l.markStop()
			}
			if err == nil {
				_, err = p.end(wait)
			}
			p.close()
			if err != nil {
				return ended, err
			}
			ended = append(ended, name)
		}
		l.dropRecord(name)
	}
	return ended, nil
}

// sandboxes lists the sandboxes that the worker keeps a folder of.
func (l Layout) sandboxes() []string { return l.named("sandboxes") }

// frozen are the sandboxes that are kept as evidence.
func (l Layout) frozen() []string { return l.named("frozen") }

// drainable are the sandboxes that are not kept as evidence.
func (l Layout) drainable() []string {
	kept := l.frozen()
	return slices.DeleteFunc(l.sandboxes(), func(id string) bool { return slices.Contains(kept, id) })
}

func (l Layout) named(folder string) []string {
	entries, err := os.ReadDir(l.path("worker", folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var ids []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "sb-") {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

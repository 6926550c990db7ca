package agent

import (
	"errors"
	"syscall"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent/files"
)

// as runs work on files with the rights of a user: the workload's, or the
// platform's own.
func (a *Agent) as(user string, work func(files.Place) error) *guest.Error {
	place := files.Place{Roots: []string{a.opts.Workspace, a.opts.Root + "/home/agent", a.opts.Root + "/tmp"}, Owner: agentUID}
	var err error
	switch user {
	case "", guest.UserAgent:
		err = a.asAgent(func() error { return work(place) })
	case guest.UserRoot:
		place.Root = true
		err = work(place)
	default:
		err = guest.Errorf(guest.ReasonInvalid, "user %.80q: files are worked on by agent and root", user)
	}
	if errors.Is(err, syscall.EROFS) {
		return guest.Errorf(guest.ReasonProtected, "%v", err)
	}
	for _, shape := range []syscall.Errno{syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL} {
		if errors.Is(err, shape) {
			return guest.Errorf(guest.ReasonInvalid, "%v", err)
		}
	}
	return refusal(err)
}

// doFile carries an operation on one file out.
func (a *Agent) doFile(epoch, id uint64, op guest.FileOp) {
	var result guest.FileResult
	refused := a.as(op.User, func(p files.Place) (err error) {
		result, err = a.effects.Once(op.Key, op, func() (guest.FileResult, error) { return p.Do(op) })
		return err
	})
	a.answer(epoch, id, guest.Answer{Error: refused, File: &result})
}

// openFileRead sends a file.
func (a *Agent) openFileRead(epoch, id uint64, r guest.FileReadRequest) {
	f := a.openFlow(epoch, id, false)
	go func() {
		refused := a.as(r.User, func(p files.Place) error { return p.Read(f, r) })
		f.close(guest.Answer{Error: refused})
	}()
}

// openFileWrite takes a file.
func (a *Agent) openFileWrite(epoch, id uint64, w guest.FileWriteRequest) {
	f := a.openFlow(epoch, id, true)
	go func() {
		var result guest.FileResult
		refused := a.as(w.User, func(p files.Place) (err error) {
			result, err = a.effects.Once(w.Key, w, func() (guest.FileResult, error) {
				info, err := p.Write(f, w)
				return guest.FileResult{Info: &info}, err
			})
			if err != nil {
				return err
			}
			return files.Drain(f) // What a repeated request sends again.
		})
		f.close(guest.Answer{Error: refused, File: &result})
	}()
}

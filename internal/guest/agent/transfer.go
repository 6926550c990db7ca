package agent

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/cofferdam/cofferdam/internal/guest"
	"github.com/cofferdam/cofferdam/internal/guest/agent/archive"
)

// openGet packs a file or folder as a tar stream.
func (a *Agent) openGet(epoch, id uint64, r guest.GetRequest) {
	f := a.openFlow(epoch, id, false)
	go func() {
		exclude := a.unreal(r.Path, r.Exclude)
		var notes []string
		err := a.asAgent(func() (err error) {
			notes, err = archive.Pack(f, r.Path, exclude)
			return err
		})
		f.close(guest.Answer{Error: refusal(err), Notes: notes})
	}()
}

// openPut unpacks a tar stream beneath a folder.
func (a *Agent) openPut(epoch, id uint64, r guest.PutRequest) {
	f := a.openFlow(epoch, id, true)
	go func() {
		err := a.asAgent(func() error { return archive.Unpack(f, r.Dir) })
		f.close(guest.Answer{Error: refusal(err)})
	}()
}

// refusal turns an error into what the worker is told.
func refusal(err error) *guest.Error {
	var refused *guest.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return guest.Errorf(guest.ReasonDisk, "%v", err)
	case errors.Is(err, fs.ErrNotExist):
		return guest.Errorf(guest.ReasonNotFound, "%v", err)
	case errors.Is(err, fs.ErrPermission), leaves(err):
		return guest.Errorf(guest.ReasonInvalid, "%v", err)
	}
	return guest.Errorf(guest.ReasonInternal, "%v", err)
}

// leaves says whether os.Root refused a path because a link on it leads out of
// the root: an error on a path that no system call gave.
func leaves(err error) bool {
	var onPath *fs.PathError
	var onLink *os.LinkError
	var errno syscall.Errno
	return (errors.As(err, &onPath) || errors.As(err, &onLink)) && !errors.As(err, &errno)
}

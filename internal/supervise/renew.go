package supervise

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// renewable are the keys that are made anew while nothing runs, by name: each is a
// file that its program makes where there is none.
func renewable() map[string][2]string {
	return map[string][2]string{
		"engine-token": {"engine", "token"},
		"gateway-seal": {"gateway", "seal.key"},
	}
}

// Renewable says whether Renew knows the key.
func Renewable(name string) bool {
	_, ok := renewable()[name]
	return ok
}

// Renew has a key made anew at the next Up. It refuses while anything runs that
// holds it, and while sandboxes wait to be taken over whose authorities are sealed
// under it.
func Renew(data, name string) error {
	if err := checkRoot("key rotate --data"); err != nil {
		return err
	}
	l, err := NewLayout(data)
	if err != nil {
		return err
	}
	return l.renew(name)
}

func (l Layout) renew(name string) error {
	file, ok := renewable()[name]
	if !ok {
		return fault(CodeNotFound, "%.64q is no key that is made anew while nothing runs; see `cofferdam key ls`", name)
	}
	if !l.Exists() {
		return fault(CodeNotFound, "there is no installation in %s; name its folder with --data", l.Data)
	}
	unlock, locked, err := l.lock()
	if err != nil {
		return err
	}
	if !locked {
		return l.runningFault()
	}
	defer unlock()
	for _, program := range order() {
		r, ok, err := l.readRecord(program)
		if err != nil {
			return err
		}
		if ok && r.Alive() {
			return fault(CodeConflict, "%s runs still (process %d), though its supervisor is gone; stop it with `cofferdam down --data %s`", program, r.PID, l.Data)
		}
	}
	if left := l.sandboxes(); name == "gateway-seal" && len(left) > 0 {
		return fault(CodeConflict, "sandboxes were kept whose authorities are sealed under this key: %s; end them with `cofferdam down --data %s`, or release what is kept as evidence", strings.Join(left, " "), l.Data)
	}
	folder, err := os.OpenRoot(l.path(file[0]))
	if err != nil {
		return faultOf(CodeStorage, err, "key %s", name)
	}
	defer folder.Close()
	if err := folder.Remove(file[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return faultOf(CodeStorage, err, "key %s", name)
	}
	dir, err := folder.Open(".")
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	if err != nil {
		return faultOf(CodeStorage, err, "key %s", name)
	}
	return nil
}

package steps

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Flags of the base.
const (
	flagLFS     = "lfs-pointers"     // files of Git LFS are pointers, as they are in the repository
	flagModules = "submodules"       // submodules were fetched
	flagMissing = "submodules-empty" // some could not be, and are empty folders
)

// shapes is what was found.
type shapes struct{ lfs, modules, missing int }

func (s shapes) flags() []string {
	var flags []string
	for _, f := range []struct {
		n    int
		name string
	}{{s.lfs, flagLFS}, {s.modules, flagModules}, {s.missing, flagMissing}} {
		if f.n > 0 {
			flags = append(flags, f.name)
		}
	}
	return flags
}

// shapes reads what the script counted and tells it in the stage's text.
func (r *run) shapes(ctx context.Context) (shapes, error) {
	var text []byte
	err := r.getFile(ctx, "/tmp/cofferdam-work/shapes", func(from io.Reader) (err error) {
		text, err = io.ReadAll(io.LimitReader(from, 100))
		return err
	})
	if err != nil {
		return shapes{}, err
	}
	var s shapes
	fields := strings.Fields(string(text))
	if len(fields) != 3 {
		return s, task.Fail(task.CheckoutFailed, "what was checked out could not be looked at", nil)
	}
	for i, to := range []*int{&s.lfs, &s.modules, &s.missing} {
		if *to, err = strconv.Atoi(fields[i]); err != nil || *to < 0 {
			return s, task.Fail(task.CheckoutFailed, "what was checked out could not be looked at", err)
		}
	}
	if s.lfs > 0 {
		r.note(fmt.Sprintf("%d files of Git LFS are pointers (%s); where they are needed, setup can get them with `git -c lfs.url=https://HOST/REPO.git/info/lfs lfs pull`", s.lfs, flagLFS))
	}
	if s.missing > 0 {
		r.note(fmt.Sprintf("%d submodules are empty (%s): they have no https URL, or checkout may not reach it; allow it in the policy's checkout.network", s.missing, flagMissing))
	}
	return s, nil
}

// keepModules keeps the files of the submodules for verify.
func (r *run) keepModules(ctx context.Context, s shapes) error {
	if s.modules == 0 {
		return nil
	}
	return r.getFile(ctx, "/tmp/cofferdam-work/modules.tar", func(from io.Reader) error {
		_, err := r.keep(ctx, "base.modules", "base", from, maxBase)
		return err
	})
}
